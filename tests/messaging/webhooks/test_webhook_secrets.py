"""Secrets: a plain text is enough, and each scheme reads it as its sender means it."""

from __future__ import annotations

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.messaging.inbox import Inbox, Source
from onceward.messaging.inbox.stored_sources import StoredSource
from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.webhooks import (
    GitHub,
    PacSpace,
    PlainHmac,
    Secret,
    StandardWebhooks,
    Stripe,
    signature_schemes,
)

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BYTES = Secret.parse(WHSEC).value
HMAC = PlainHmac(header="X-Sig", id_header="X-Id")
AS_WRITTEN = [Stripe(), GitHub(), PacSpace(), HMAC]
NOW = 1_614_265_330
EVENT = b'{"id":"evt_1"}'


def ignored(event: Any) -> None:
    """A handler that does nothing."""


def source(scheme: Any, secret: Any) -> Source:
    return Source("src", scheme, [secret], ignored)


@pytest.mark.fault("whsec-is-base64-to-everybody")
@pytest.mark.parametrize("scheme", AS_WRITTEN, ids=lambda one: type(one).__name__)
def test_all_but_standard_webhooks_use_the_text_as_it_is_written(scheme: Any) -> None:
    """
    Also where it begins with whsec_ (Stripe's and PacSpace's do) and goes on with what could be base64.
    """
    for text in (WHSEC, "whsec_not_base64_but_long_enough", BYTES.hex()):
        assert text.encode() == scheme.secret(text).value


@pytest.mark.parametrize("text", [WHSEC, WHSEC.removeprefix("whsec_"), "whsec_" + b64encode(b"x" * 25).decode(),
                                  "whsec_" + b64encode(b"x" * 25).decode().rstrip("=")])  # fmt: skip
def test_standard_webhooks_read_base64_with_its_prefix_and_without(text: str) -> None:
    """
    Padding may be left out: their own libraries read it so.
    """
    [found] = source(StandardWebhooks(), text).read_secrets

    assert (BYTES if "MfKQ" in text else b"x" * 25) == found.value


@pytest.mark.fault("text-is-silently-the-key")
@pytest.mark.parametrize(
    "text", ["whsec_!!!!", "a text that is no base64", "whsec_", "canary-0123456789abcdef", "AAAAA"]
)
def test_what_is_no_base64_is_refused_where_base64_is_meant(text: str) -> None:
    """
    When it is declared, with the way out, and without repeating it. Events would all be refused otherwise.
    """
    for declare in (lambda: source(StandardWebhooks(), text), lambda: Secret.parse(text)):
        with pytest.raises(ConfigurationError, match=r"Secret\.plain") as refused:
            declare()
        assert len(text) <= 6 or text not in str(refused.value)


@pytest.mark.fault("a-contradiction-is-declared")
@pytest.mark.parametrize("scheme", AS_WRITTEN, ids=lambda one: type(one).__name__)
def test_a_secret_that_was_read_as_base64_is_refused_where_it_is_used_as_written(scheme: Any) -> None:
    """
    When it is declared. Every event would be a 401 that blames its sender.
    """
    with pytest.raises(ConfigurationError, match="plain str"):
        source(scheme, Secret.parse(WHSEC))
    with pytest.raises(ConfigurationError, match="plain str"):
        scheme.sign("evt_1", EVENT, [Secret.parse(WHSEC)], now=NOW)


@pytest.mark.fault("a-contradiction-the-other-way")
def test_a_whsec_that_was_read_as_text_is_refused_by_standard_webhooks() -> None:
    """
    A text that is spoken as one is taken; one that begins with whsec_ is base64 there, and nothing else.
    """
    with pytest.raises(ConfigurationError, match="plain str"):
        source(StandardWebhooks(), Secret.plain(WHSEC))

    assert source(StandardWebhooks(), Secret.plain("a text")).read_secrets[0].value == b"a text"


def test_bytes_are_bytes_to_everybody() -> None:
    """
    For whoever has them: no scheme reads them in another way.
    """
    for scheme in (*AS_WRITTEN, StandardWebhooks()):
        assert source(scheme, Secret(b"x" * 32)).read_secrets[0].value == b"x" * 32


@pytest.mark.fault("short-secrets-sign")
@pytest.mark.parametrize("scheme", [*AS_WRITTEN, StandardWebhooks()], ids=lambda one: type(one).__name__)
def test_a_short_secret_verifies_and_does_not_sign(
    scheme: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Whoever issued it decides how long it is: events are believed, and a warning says so once. We sign with none.
    """
    with Inbox(f"sqlite:///{tmp_path}/agent.db", scope="test:a") as inbox, caplog.at_level(logging.WARNING):
        inbox.add(source(scheme, "c2hvcnQh"))
    with monkeypatch.context() as theirs:
        theirs.setattr(signature_schemes, "check_signing_secrets", list)  # Somebody else does.
        headers = scheme.sign("evt_1", EVENT, ["c2hvcnQh"], now=NOW)

    assert scheme.verify(headers, EVENT, ["c2hvcnQh"], now=NOW).id == "evt_1"
    assert "src has a secret of fewer than 16 bytes, which can be guessed" in caplog.text
    with pytest.raises(ConfigurationError, match="16 bytes"):
        scheme.sign("evt_1", EVENT, ["c2hvcnQh"], now=NOW)


def test_a_short_secret_of_a_stored_source_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Not with every second look at the rows.
    """
    monkeypatch.setenv("SHORT_SECRET", "short")
    with Inbox(f"sqlite:///{tmp_path}/agent.db", stored_sources=True) as inbox:
        inbox.store_source(
            StoredSource("hub", "live:a", GitHub(), ("env:SHORT_SECRET",), "shop:paid", None, 5, None).checked()
        )
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                inbox._shelf._until = -1.0  # type: ignore[union-attr]
                inbox._known()

    assert caplog.text.count("can be guessed") == 1


@pytest.mark.parametrize("scheme", [*AS_WRITTEN, StandardWebhooks()], ids=lambda one: type(one).__name__)
def test_a_plain_text_signs_and_verifies_everywhere(scheme: Any) -> None:
    """
    No `Secret` is needed anywhere; a list is.
    """
    headers = scheme.sign("evt_1", EVENT, [WHSEC], now=NOW)

    assert scheme.verify(headers, EVENT, [WHSEC], now=NOW).id == "evt_1"
    with pytest.raises(ConfigurationError, match="a list"):
        scheme.sign("evt_1", EVENT, WHSEC, now=NOW)
    with pytest.raises(ConfigurationError, match="a list"):
        scheme.verify(headers, EVENT, WHSEC, now=NOW)


def test_an_endpoint_reads_its_secrets_as_its_form_does() -> None:
    """
    What it signs, receivers believe: base64 in Standard Webhooks' form, the text itself in PacSpace's.
    """
    found = [HttpEndpoint("https://example.com/", secrets=[WHSEC], form=form)._secrets for form in FORMS]

    assert [BYTES, WHSEC.encode()] == [one.value for (one,) in found]
    for wrong in ("no base64", "c2hvcnQh", Secret.plain(WHSEC)):
        with pytest.raises(ConfigurationError):
            HttpEndpoint("https://example.com/", secrets=[wrong])


FORMS: tuple[Any, ...] = ("standard", "pacspace")


@pytest.mark.parametrize("text", ["whsk_" + "A" * 44, "whpk_" + "A" * 44])
def test_a_key_of_another_kind_of_signature_is_not_taken_for_a_secret(text: str) -> None:
    """
    Its letters would do as a secret, and no receiver would ever believe what they sign.
    """
    with pytest.raises(ConfigurationError, match="whsec_"):
        Secret.parse(text)


@pytest.mark.parametrize("text", ["", "x" * 1025])
def test_an_empty_secret_and_a_very_long_one_are_refused(text: str) -> None:
    """
    However they are given.
    """
    for make in (Secret.plain, lambda given: Secret(given.encode())):
        with pytest.raises(ConfigurationError, match="1 to 1024 bytes"):
            make(text)


def test_its_repr_does_not_show_it() -> None:
    """
    Nor does a list of them, nor a source.
    """
    plain = Secret.plain("canary secret that is long")

    assert "<Secret>" == repr(plain) == str(plain)
    assert repr([plain]) == "[<Secret>]"
    assert "canary" not in repr(source(GitHub(), plain))


def test_its_text_is_what_it_was_read_from() -> None:
    """
    For the one time that it is shown. How it was given is no part of what it is.
    """
    assert Secret.parse(WHSEC) == Secret.parse(Secret.parse(WHSEC).text()) == Secret(BYTES)
