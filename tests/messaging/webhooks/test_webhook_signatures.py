"""Who really sent it: vectors of each scheme, and every odd thing that must not pass."""

from __future__ import annotations

import hmac
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.errors import SignatureInvalid
from onceward.messaging.webhooks import GitHub, PacSpace, PlainHmac, Secret, StandardWebhooks, Stripe
from onceward.messaging.webhooks.signature_schemes import secret_for_scheme

NOW = 1_614_265_330
STANDARD = Secret.parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
OTHER = Secret.parse("whsec_" + b64encode(b"another secret of 24 byt").decode())
PLAIN = Secret.plain("a secret that is long enough")
OTHER_PLAIN = Secret.plain("another secret that is long enough")
BODY = b'{"test": 2432232314}'
EVENT = b'{"id":"evt_1","type":"charge.succeeded"}'


def mac(secret: Secret, text: bytes) -> bytes:
    return hmac.new(secret.value, text, sha256).digest()


def standard(**changes: str) -> dict[str, str]:
    """The example of the specification, with changes."""
    return {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": str(NOW),
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }


def verified_id(headers: dict[str, str]) -> str:
    """The id that a message of Standard Webhooks is known by, or why there is none."""
    try:
        return StandardWebhooks().verify(headers, BODY, [STANDARD], now=NOW).id
    except SignatureInvalid as refused:
        return str(refused)


def stripe(at: str = str(NOW), body: bytes = EVENT, secret: Secret = PLAIN) -> str:
    return f"t={at},v1={mac(secret, at.encode() + b'.' + body).hex()}"


class TestStandardWebhooks:
    """The scheme that we send ourselves."""

    def test_the_example_of_the_specification_is_right(self) -> None:
        """
        The published vector: id, time, body and secret as they are printed there.
        """
        verified = StandardWebhooks().verify(standard(), BODY, [STANDARD], now=NOW)

        assert verified == ("msg_p5jXN8AQM9LWM0D4loKWxJek", NOW, None)

    def test_we_sign_as_the_specification_does(self) -> None:
        """
        The published vector, made anew: all three headers, letter for letter.
        """
        made = StandardWebhooks().sign("msg_p5jXN8AQM9LWM0D4loKWxJek", BODY, [STANDARD], now=NOW + 0.9)

        assert standard() == made

    def test_the_bytes_are_signed_and_not_what_they_mean(self) -> None:
        """
        Bytes that are no UTF-8, none at all, and JSON that a parser would write in another way.
        """
        for body in (b"", b"\xff\x00", b'{ "a":1.0, "a":1 }'):
            headers = StandardWebhooks().sign("evt_1", body, [STANDARD], now=NOW)
            assert StandardWebhooks().verify(headers, body, [STANDARD], now=NOW).id == "evt_1"

    def test_what_is_signed_is_verified(self) -> None:
        """
        Both ways, with one secret.
        """
        headers = StandardWebhooks().sign("evt_1", BODY, [STANDARD], now=NOW + 0.9)

        assert StandardWebhooks().verify(headers, BODY, [STANDARD], now=NOW) == ("evt_1", NOW, None)

    @pytest.mark.parametrize("known", [STANDARD, OTHER])
    def test_while_a_secret_is_replaced_either_is_right(self, known: Secret) -> None:
        """
        Signed with both: a receiver that has the old one and one that has the new one both believe it.
        """
        headers = StandardWebhooks().sign("evt_1", BODY, [STANDARD, OTHER], now=NOW)

        assert StandardWebhooks().verify(headers, BODY, [known], now=NOW).id == "evt_1"

    @pytest.mark.parametrize("known", [[STANDARD, OTHER], [OTHER, STANDARD]])
    def test_a_receiver_may_have_two_secrets(self, known: list[Secret]) -> None:
        """
        In any order.
        """
        headers = StandardWebhooks().sign("evt_1", BODY, [STANDARD], now=NOW)

        assert StandardWebhooks().verify(headers, BODY, known, now=NOW).id == "evt_1"

    @pytest.mark.parametrize(
        "text",
        ["nan", "inf", "1e9", " 1614265330", "1614265330 ", "1_614_265_330", "１６１４２６５３３０",
         "-1", "+1614265330",
         "", "1614265330.0", "0x60380000", "9" * 30, "1614265330\n"],
    )  # fmt: skip
    def test_a_time_is_ascii_digits_and_nothing_else(self, text: str) -> None:
        """
        `abs(float("nan") - now) > 300` is false; `int` takes blanks, underscores and digits of any script.
        """
        signature = "v1," + b64encode(mac(STANDARD, b"evt_1." + text.encode() + b"." + BODY)).decode()
        headers = standard(webhook_id="evt_1", webhook_timestamp=text, webhook_signature=signature)

        with pytest.raises(SignatureInvalid, match="time"):
            StandardWebhooks().verify(headers, BODY, [STANDARD], now=NOW)

    @pytest.mark.fault("a-message-dated-ahead-is-believed")
    @pytest.mark.parametrize(("away", "right"), [(-301, False), (-300, True), (300, True), (301, False)])
    def test_a_message_may_be_five_minutes_old_or_early(self, away: int, right: bool) -> None:
        """
        The clocks of two machines differ; an old message is a replay.
        """
        headers = StandardWebhooks().sign("evt_1", BODY, [STANDARD], now=NOW + away)
        if right:
            assert NOW + away == StandardWebhooks().verify(headers, BODY, [STANDARD], now=NOW).signed_at
        else:
            with pytest.raises(SignatureInvalid, match="300 seconds"):
                StandardWebhooks().verify(headers, BODY, [STANDARD], now=NOW)

    @pytest.mark.parametrize(
        "signature",
        [
            "",
            " ",
            "v1",
            "v1,",
            "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            "v1,g0hM9SsE-OTPJTGt_tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OF=",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=!!",
            "v1,!g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\xe9",
            "v1,é",
            "v1,😀",
            "v1," + "A" * 43 + "=",
        ],
    )
    def test_what_is_no_right_signature_is_refused_and_never_an_accident(self, signature: str) -> None:
        """
        No comma, another version, the alphabet for URLs, junk that readers skip, changed trailing bits, not ASCII.
        """
        with pytest.raises(SignatureInvalid, match="no signature matches"):
            StandardWebhooks().verify(standard(webhook_signature=signature), BODY, [STANDARD], now=NOW)

    def test_a_thousand_signatures_are_not_tried(self) -> None:
        """
        The right one is among them; whoever sends a thousand wants something else.
        """
        right = standard()["webhook-signature"]
        headers = standard(webhook_signature=" ".join([f"v1,{'A' * 43}="] * 999 + [right]))

        with pytest.raises(SignatureInvalid, match="more than 16"):
            StandardWebhooks().verify(headers, BODY, [STANDARD], now=NOW)

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    def test_every_header_is_needed(self, name: str) -> None:
        """
        Any of the three missing: refused, and the name of it is said.
        """
        headers = {one: value for one, value in standard().items() if one != name}

        with pytest.raises(SignatureInvalid, match=name):
            StandardWebhooks().verify(headers, BODY, [STANDARD], now=NOW)

    @pytest.mark.fault("an-id-with-a-time-in-it-is-taken")
    @pytest.mark.parametrize("id", ["a.1", f"a.{NOW}", f"a.{NOW}.b", "", "a b", "ä", "x" * 2049, "a\n"])
    def test_an_id_that_could_be_read_in_two_ways_is_refused(self, id: str) -> None:
        """
        Signed correctly: "a.1" and a time could be "a" and the time 1, with a body that begins with the other time.
        """
        signature = "v1," + b64encode(mac(STANDARD, f"{id}.{NOW}.".encode() + BODY)).decode()

        with pytest.raises(SignatureInvalid, match="id"):
            StandardWebhooks().verify(standard(webhook_id=id, webhook_signature=signature), BODY, [STANDARD], now=NOW)

    @pytest.mark.fault("ids-with-a-full-stop-are-refused")
    @pytest.mark.parametrize("id", ["a.b", "msg.2xyz.x3", "..", "evt_1.", f"a.{NOW}123"])
    def test_an_id_with_a_full_stop_is_taken_where_it_is_read_in_one_way(self, id: str) -> None:
        """
        No part of it could be the time, so no shorter id and no longer one can be meant.
        """
        signature = "v1," + b64encode(mac(STANDARD, f"{id}.{NOW}.".encode() + BODY)).decode()
        headers = standard(webhook_id=id, webhook_signature=signature)

        assert id == verified_id(headers)

    @pytest.mark.fault("long-ids-are-refused")
    def test_a_long_id_is_known_by_its_hash(self) -> None:
        """
        Signed as it is, known by 71 characters; two long ids that begin alike are two.
        """
        found = []
        for id in ("x" * 256, "x" * 2048):
            signature = "v1," + b64encode(mac(STANDARD, f"{id}.{NOW}.".encode() + BODY)).decode()
            headers = standard(webhook_id=id, webhook_signature=signature)
            found.append(verified_id(headers))

        assert found == [f"sha256:{sha256(b'x' * 256).hexdigest()}", f"sha256:{sha256(b'x' * 2048).hexdigest()}"]

    def test_one_cannot_be_sent_either(self) -> None:
        """
        Refused when it is signed, and not by the receiver.
        """
        with pytest.raises(ConfigurationError, match="full stop"):
            StandardWebhooks().sign("a.b", BODY, [STANDARD], now=NOW)
        for id in ("", "a b", "ä", "x" * 256, "a\r\nX-A: b"):
            with pytest.raises(SignatureInvalid, match="id"):
                StandardWebhooks().sign(id, BODY, [STANDARD], now=NOW)
            with pytest.raises(SignatureInvalid, match="id"):
                PacSpace().sign(id, BODY, [PLAIN], now=NOW)

    @pytest.mark.parametrize("changed", [BODY + b" ", BODY[:-1], b"", BODY.replace(b"4", b"5", 1)])
    def test_a_body_that_was_changed_is_refused(self, changed: bytes) -> None:
        """
        Also where it would still be the same JSON.
        """
        with pytest.raises(SignatureInvalid, match="no signature matches"):
            StandardWebhooks().verify(standard(), changed, [STANDARD], now=NOW)


class TestStripe:
    """The id is in the body, and is read only once the body is known to be theirs."""

    def test_a_signed_event_is_known_by_its_id(self) -> None:
        """
        Time and body are signed; further signatures, v0 among them, do no harm.
        """
        header = stripe() + ",v0=" + "0" * 64

        assert Stripe().verify({"stripe-signature": header}, EVENT, [OTHER_PLAIN, PLAIN], now=NOW) == (
            "evt_1",
            NOW,
            None,
        )

    @pytest.mark.parametrize("text", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not_base64_but_long_enough"])
    def test_its_secrets_are_used_as_they_are_written(self, text: str) -> None:
        """
        They begin with whsec_, too; what follows is not base64 to Stripe, also where it could be.
        """
        made = hmac.new(text.encode(), f"{NOW}.".encode() + EVENT, sha256).hexdigest()
        headers = {"stripe-signature": f"t={NOW},v1={made}"}

        assert Stripe().verify(headers, EVENT, [text], now=NOW) == ("evt_1", NOW, None)
        assert Stripe().verify(headers, EVENT, [secret_for_scheme(Stripe(), text)], now=NOW) == ("evt_1", NOW, None)

    @pytest.mark.parametrize(
        "header",
        ["", "t=", f"t={NOW}", "v1=" + "0" * 64, stripe().replace("v1=", "v0="), stripe(secret=OTHER_PLAIN),
         stripe() + f",t={NOW}", stripe("nan"), stripe(str(NOW - 301)), stripe().upper(), stripe()[:-1], stripe() + "0",
         stripe().replace("v1=", "v1=０"), "=,=,=", "t=" + "9" * 5000],
    )  # fmt: skip
    def test_anything_else_is_refused(self, header: str) -> None:
        """
        No signature, no time, two times, an old version, another secret, odd digits.
        """
        with pytest.raises(SignatureInvalid):
            Stripe().verify({"stripe-signature": header}, EVENT, [PLAIN], now=NOW)

    @pytest.mark.parametrize("body", [b"{}", b"[]", b"not JSON", b'{"id":7}', b'{"id":""}', b'{"id":"a","id":"b"}'])
    def test_a_signed_body_without_an_id_is_refused(self, body: bytes) -> None:
        """
        Without an id it could not be told from a repetition.
        """
        with pytest.raises(SignatureInvalid):
            Stripe().verify({"stripe-signature": stripe(body=body)}, body, [PLAIN], now=NOW)


class TestGitHub:
    """No time is signed: the delivery's id is what tells a repetition."""

    HEADERS = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    }

    def test_the_published_example_is_right(self) -> None:
        """
        Secret and body of their documentation.
        """
        verified = GitHub().verify(self.HEADERS, b"Hello, World!", ["It's a Secret to Everybody"], now=NOW)

        assert ("72d3162e-cc78-11e3-81ab-4c9367dc0958", None, sha256(b"Hello, World!").digest()) == verified

    @pytest.mark.parametrize("value", ["", "sha256=", "sha1=" + "0" * 40, "sha256=" + "0" * 64, "757107ea"])
    def test_anything_else_is_refused(self, value: str) -> None:
        """
        The old SHA-1 header included.
        """
        with pytest.raises(SignatureInvalid):
            GitHub().verify({**self.HEADERS, "x-hub-signature-256": value}, b"Hello, World!", [PLAIN], now=NOW)


class TestPacSpace:
    """Times in seconds or milliseconds; a second signature after a rotation."""

    @pytest.mark.parametrize("text", [str(NOW), f"{NOW}123"])
    def test_seconds_and_milliseconds_are_taken(self, text: str) -> None:
        """
        What is signed is the text as it was sent.
        """
        headers = {
            "x-event-id": "e-1",
            "x-pacspace-timestamp": text,
            "x-pacspace-signature": f"v1={'0' * 64},v1={mac(PLAIN, text.encode() + b'.' + BODY).hex()}",
        }

        assert ("e-1", NOW, sha256(f"{text}.".encode() + BODY).digest()) == PacSpace().verify(
            headers, BODY, [PLAIN], now=NOW
        )

    def test_what_is_signed_is_verified(self) -> None:
        """
        With two secrets, by a receiver that has the second.
        """
        headers = PacSpace().sign("e-1", BODY, [PLAIN, OTHER_PLAIN], now=NOW)

        assert PacSpace().verify(headers, BODY, [OTHER_PLAIN], now=NOW).id == "e-1"

    @pytest.mark.parametrize("text", ["nan", f"{NOW}1234", "１６１４２６５３３０１２３", f"{NOW - 301}000"])
    def test_odd_times_are_refused(self, text: str) -> None:
        """
        Signed correctly, all of them.
        """
        headers = PacSpace().sign("e-1", BODY, [PLAIN], now=NOW)
        headers["x-pacspace-timestamp"] = text
        headers["x-pacspace-signature"] = f"v1={mac(PLAIN, text.encode() + b'.' + BODY).hex()}"

        with pytest.raises(SignatureInvalid, match="time"):
            PacSpace().verify(headers, BODY, [PLAIN], now=NOW)


class TestPlainHmac:
    """For everybody else."""

    @pytest.mark.parametrize(
        ("scheme", "value"),
        [
            (PlainHmac(header="X-Sig", id_header="X-Id"), mac(PLAIN, EVENT).hex()),
            (PlainHmac(header="X-Sig", id_member="id"), mac(PLAIN, EVENT).hex()),
            (PlainHmac(header="X-Sig", id_member="id", spelling="base64"), b64encode(mac(PLAIN, EVENT)).decode()),
            (PlainHmac(header="X-Sig", id_member="id", prefix="sha256="), "sha256=" + mac(PLAIN, EVENT).hex()),
        ],
    )
    def test_header_spelling_prefix_and_place_of_the_id_are_said(self, scheme: PlainHmac, value: str) -> None:
        """
        Right with the right secret, refused with another.
        """
        headers = {"x-sig": value, "x-id": "evt_1"}

        assert scheme.verify(headers, EVENT, [PLAIN], now=NOW).id == "evt_1"
        with pytest.raises(SignatureInvalid):
            scheme.verify(headers, EVENT, [OTHER_PLAIN], now=NOW)

    @pytest.mark.parametrize("places", [{}, {"id_header": "X-Id", "id_member": "id"}])
    def test_the_place_of_the_id_must_be_said(self, places: dict[str, Any]) -> None:
        """
        One place: no less, and no more.
        """
        with pytest.raises(ConfigurationError, match="id_header"):
            PlainHmac(header="X-Sig", **places)
