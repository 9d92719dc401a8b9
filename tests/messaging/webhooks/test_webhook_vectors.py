"""Others' own libraries and documented examples: what they sign we believe, and what we sign they believe."""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
import standardwebhooks
import stripe
import svix.webhooks

from onceward import ConfigurationError
from onceward.errors import EventInvalid, SignatureInvalid
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.inbox.source import headers_by_name, headers_to_keep
from onceward.messaging.webhooks import GitHub, PacSpace, PlainHmac, StandardWebhooks, Stripe

SECRETS = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
           "whsec_" + b64encode(bytes(range(64))).decode().rstrip("=")]  # fmt: skip
BODIES = ['{"test": 2432232314}', '{"name": "Zoë", "of": "日本"}', '{ "id" : "evt_1" , "a":1.0 }\n']
EVENT = '{"id": "evt_1", "object": "event", "type": "charge.succeeded"}'
SVIX = StandardWebhooks(prefix="svix")


@pytest.fixture(params=["standardwebhooks", "svix"])
def theirs(request: pytest.FixtureRequest) -> tuple[Any, StandardWebhooks, str]:
    """A library, our scheme for its headers, and what they begin with."""
    if request.param == "svix":
        return svix.webhooks.Webhook, SVIX, "svix"
    return standardwebhooks.Webhook, StandardWebhooks(), "webhook"


@pytest.mark.fault("every-prefix-is-webhook")
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("secret", SECRETS)
def test_what_standard_webhooks_and_svix_sign_is_believed(
    theirs: tuple[Any, StandardWebhooks, str], secret: str, body: str
) -> None:
    """
    With the secret as their users write it, prefix and padding or not.
    """
    library, ours, prefix = theirs
    now = int(time.time())
    signature = library(secret).sign("msg_1", datetime.fromtimestamp(now, UTC), body)
    headers = {f"{prefix}-id": "msg_1", f"{prefix}-timestamp": str(now), f"{prefix}-signature": signature}

    assert id_of(ours, headers, body, secret, now) == "msg_1"
    assert "no signature matches" in id_of(ours, headers, body + " ", secret, now)


@pytest.mark.fault("every-prefix-is-webhook")
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("secret", SECRETS)
def test_what_we_sign_standard_webhooks_and_svix_believe(
    theirs: tuple[Any, StandardWebhooks, str], secret: str, body: str
) -> None:
    """
    Their verifier, their errors: right as it is, refused when changed.
    """
    library, ours, prefix = theirs
    headers = ours.sign("msg_1", body.encode(), [secret], now=time.time())

    assert {f"{prefix}-{name}" for name in ("id", "timestamp", "signature")} == set(headers)
    library(secret).verify(body, headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        library(secret).verify(body + " ", headers)


@pytest.mark.fault("whsec-is-base64-to-everybody")
def test_what_stripe_signs_is_believed() -> None:
    """
    Their own header for tests, with a secret as their dashboard shows it.
    """
    now = int(time.time())
    for secret in ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_test_secret"):
        header = stripe.WebhookSignature.generate_signature_header(EVENT, secret, timestamp=now)

        assert id_of(Stripe(), {"stripe-signature": header}, EVENT, secret, now) == "evt_1"
        assert "no signature matches" in id_of(Stripe(), {"stripe-signature": header}, EVENT + " ", secret, now)


def test_what_we_sign_stripe_believes() -> None:
    """
    With two secrets, by a receiver that has either: an event of theirs comes out. With a third, their error does.
    """
    secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_another_secret_of_theirs"]
    header = Stripe().sign("evt_1", EVENT.encode(), secrets, now=time.time())["stripe-signature"]

    for secret in secrets:
        assert stripe.Webhook.construct_event(EVENT, header, secret).id == "evt_1"
    with pytest.raises(stripe.SignatureVerificationError):
        stripe.Webhook.construct_event(EVENT, header, "whsec_a_third_one_entirely")


def test_github_s_documented_example_goes_both_ways() -> None:
    """
    Secret, body and signature as their page on validating deliveries prints them.
    """
    documented = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    }
    secret, id = "It's a Secret to Everybody", documented["x-github-delivery"]

    assert documented == GitHub().sign(id, b"Hello, World!", [secret], now=0)
    assert id == id_of(GitHub(), documented, "Hello, World!", secret, 0)


def test_pacspace_s_documented_algorithm_goes_both_ways() -> None:
    """
    HMAC of time and body with the secret as their dashboard shows it; its whsec_ is a part of it.
    """
    now, secret, body = 1_739_270_400, "whsec_abc123def456xyz789", '{"event": "delta.verified"}'
    documented = {
        "x-event-id": "evt_a1b2c3d4",
        "x-pacspace-timestamp": str(now),
        "x-pacspace-signature": "v1=" + hmac.new(secret.encode(), f"{now}.{body}".encode(), sha256).hexdigest(),
    }

    assert documented == PacSpace().sign("evt_a1b2c3d4", body.encode(), [secret], now=now)
    assert id_of(PacSpace(), documented, body, secret, now) == "evt_a1b2c3d4"


@pytest.mark.parametrize(
    "scheme",
    [StandardWebhooks(), SVIX, Stripe(), GitHub(), PacSpace(), PlainHmac(header="X-Sig", id_header="X-Id"),
     PlainHmac(header="X-Sig", id_member="event", spelling="base64", prefix="v0=")],
    ids=str,
)  # fmt: skip
def test_every_scheme_signs_what_it_verifies(scheme: Any) -> None:
    """
    For tests of one's own, and for `onceward hooks test`.
    """
    made = signed_sample(scheme, SECRETS[0], "evt_9", now=1_000)

    assert scheme.verify(made.headers, made.body, [SECRETS[0]], now=1_000).id == "evt_9"
    with pytest.raises(SignatureInvalid):
        scheme.verify(made.headers, made.body + b" ", [SECRETS[0]], now=1_000)


def test_what_could_not_be_believed_is_not_signed() -> None:
    """
    Another id than the body's, two secrets where the sender has one, none at all.
    """
    with pytest.raises(EventInvalid, match="another id"):
        Stripe().sign("evt_2", EVENT.encode(), [SECRETS[0]], now=0)
    with pytest.raises(EventInvalid, match="another id"):
        PlainHmac(header="X-Sig", id_member="id").sign("evt_2", EVENT.encode(), [SECRETS[0]], now=0)
    with pytest.raises(ConfigurationError, match="one secret"):
        GitHub().sign("d-1", b"{}", SECRETS[:2], now=0)
    with pytest.raises(ConfigurationError, match="one secret"):
        GitHub().sign("d-1", b"{}", [], now=0)


@pytest.mark.parametrize("prefix", ["", "Svix", "svix-", "x y", "svix:", "ä", "x" * 51])
def test_a_prefix_is_the_beginning_of_a_header_s_name(prefix: str) -> None:
    """
    In lower case, as names are compared here; anything else would match no header.
    """
    with pytest.raises(ConfigurationError, match="prefix"):
        StandardWebhooks(prefix=prefix)


def test_a_handler_sees_svix_s_headers_and_not_their_signature() -> None:
    """
    As it sees those of Standard Webhooks.
    """
    came = {"Svix-Id": "msg_1", "Svix-Timestamp": "1", "Svix-Signature": "v1,x"}

    assert list(headers_to_keep(headers_by_name(came))) == ["svix-id", "svix-timestamp"]


def id_of(scheme: Any, headers: dict[str, str], body: str, secret: str, now: float) -> str:
    """The id that a message is known by, or why it is refused."""
    try:
        return str(scheme.verify(headers, body.encode(), [secret], now=now).id)
    except SignatureInvalid as refused:
        return str(refused)


def test_the_bodies_are_not_what_a_parser_would_write() -> None:
    """
    Otherwise nobody would notice a body that was read and written again on its way.
    """
    assert all(body != json.dumps(json.loads(body)) for body in BODIES[1:])
