"""
An event to try a source with: small, and signed as its sender would.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.webhooks import GitHub, PacSpace, PlainHmac, Scheme, Secret, StandardWebhooks, Stripe
from onceward.webhooks.signatures import signed_with


class Sample(NamedTuple):
    """What a sender would send."""

    headers: dict[str, str]
    body: bytes


def sample(scheme: Scheme, secret: Secret, id: str, *, now: float) -> Sample:
    """A signed event with this id."""
    document = {"type": "onceward.test", "test": True}
    if isinstance(scheme, Stripe):
        document |= {"id": id}
    if isinstance(scheme, PlainHmac) and scheme.id_member is not None:
        document |= {scheme.id_member: id}
    body = json.dumps(document).encode()
    return Sample({"content-type": "application/json", **_signed(scheme, secret, id, body, now)}, body)


def _signed(scheme: Scheme, secret: Secret, id: str, body: bytes, now: float) -> dict[str, str]:
    match scheme:
        case StandardWebhooks() | PacSpace():
            return scheme.sign(id, body, [secret], now=now)
        case Stripe():
            at = str(int(now))
            return {"stripe-signature": f"t={at},v1={signed_with(secret, f'{at}.'.encode(), body).hex()}"}
        case GitHub():
            return {"x-hub-signature-256": f"sha256={signed_with(secret, body).hex()}", "x-github-delivery": id}
        case PlainHmac():
            digest = signed_with(secret, body)
            text = digest.hex() if scheme.spelling == "hex" else b64encode(digest).decode()
            named = {} if scheme.id_header is None else {scheme.id_header.lower(): id}
            return {scheme.header.lower(): scheme.prefix + text, **named}
    raise ConfigurationError(f"no sample can be signed with a scheme of your own ({type(scheme).__name__})")
