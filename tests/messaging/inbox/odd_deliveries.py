"""Deliveries that must not be believed, for every scheme: headers and a body, and the code that refuses them."""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple

from onceward.messaging.webhooks import PlainHmac, Scheme, Secret, StandardWebhooks, Stripe
from onceward.messaging.webhooks.signatures import hmac_sha256

BODY = b'{"id": "evt_1", "type": "paid"}'
HMAC = PlainHmac(header="X-Sig", id_header="X-Id", spelling="base64")

TIMES = [
    "nan", "inf", "-inf", "1e9", " 1_0 ", "１６１４２６５３３０", "-1", "+1", "", "0x60", "9" * 30, "1.0", "\xb2",
]  # fmt: skip
"""A time is ASCII digits and nothing else. (Blanks around a header are HTTP's own, and are gone before we see it.)"""


class Odd(NamedTuple):
    """One delivery."""

    name: str
    scheme: Scheme
    headers: dict[str, str]
    body: bytes
    code: str


def _right(secret: Secret, id: str, at: str, body: bytes = BODY) -> str:
    text = f"{id}.{at}.".encode("utf-8", "surrogateescape")
    return "v1," + b64encode(hmac_sha256(secret, text, body)).decode()


def _standard(name: str, code: str, at: str, signature: str, id: str = "evt_1", body: bytes = BODY) -> Odd:
    headers = {"webhook-id": id, "webhook-timestamp": at, "webhook-signature": signature}
    return Odd(name, StandardWebhooks(), headers, body, code)


def odd(text: str, now: int, *, ahead: int = 301) -> list[Odd]:
    """
    All of them; signed correctly wherever the signature is not what is odd, with a secret as its scheme reads it.

    `ahead`: seconds, of the one that is dated too far ahead. Where the clock moves while they are sent, one that is
    only just too far ahead is soon within the tolerance: take an hour.
    """
    at = str(now)
    secret, plainly = Secret.parse(text), Secret.plain(text)
    good = _right(secret, "evt_1", at)
    plain = good.removeprefix("v1,")
    wrong = "signature_invalid"
    found = [_standard(f"time {text!r}", wrong, text, _right(secret, "evt_1", text)) for text in TIMES]
    for name, away in {"too old": -301, "too far ahead": ahead}.items():
        other = str(now + away)
        found.append(_standard(name, wrong, other, _right(secret, "evt_1", other)))
    signatures = {
        "without a comma": plain,
        "v2": f"v2,{plain}",
        "empty": "",
        "of nothing": "v1,",
        "not ASCII": f"v1,{plain}\xe9",
        "a thousand": " ".join([f"v1,{'A' * 43}="] * 999 + [good]),
        "alphabet for URLs": "v1," + plain.replace("+", "-").replace("/", "_") + "-",
        "junk in base64": f"v1,!{plain[:10]}!{plain[10:]}",
        "changed trailing bits": "v1," + plain[:-2] + chr(ord(plain[-2]) + 1) + "=",
        "of another secret": _right(Secret.plain("another secret that is long"), "evt_1", at),
    }
    found += [_standard(f"signature {name}", wrong, at, text) for name, text in signatures.items()]
    found.append(_standard("changed body", wrong, at, good, body=BODY + b" "))
    for name, id in {
        "with a time in it": "a.1614265330",
        "empty": "",
        "blank in it": "a b",
        "long": "x" * 2049,
    }.items():
        found.append(_standard(f"id {name}", "event_invalid", at, _right(secret, id, at), id))
    found.append(Odd("nothing at all", StandardWebhooks(), {}, b"", "event_invalid"))
    for name, body in {"no JSON": b"not JSON", "no id": b"{}", "two ids": b'{"id":"a","id":"b"}'}.items():
        value = f"t={at},v1={hmac_sha256(plainly, f'{at}.'.encode(), body).hex()}"
        found.append(Odd(f"stripe {name}", Stripe(), {"stripe-signature": value}, body, "event_invalid"))
    for name, value in {"junk": "=,=,=", "two times": f"t={at},t={at},v1={'0' * 64}", "nan": "t=nan"}.items():
        found.append(Odd(f"stripe {name}", Stripe(), {"stripe-signature": value}, BODY, wrong))
    mac = b64encode(hmac_sha256(plainly, BODY)).decode()
    found.append(Odd("plain, junk", HMAC, {"x-sig": f"{mac}!!", "x-id": "evt_1"}, BODY, wrong))
    found.append(Odd("plain, no id", HMAC, {"x-sig": mac}, BODY, "event_invalid"))
    return found


NAMES = [one.name for one in odd("canarysecret0123456789abcdef0123", 1_614_265_330)]
