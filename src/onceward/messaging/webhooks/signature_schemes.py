"""
The signature schemes: for each, which headers it uses, what is signed, how it is encoded, and how a secret is read.

    Standard Webhooks   webhook-id, webhook-timestamp, webhook-signature: "v1,<base64> ..."   id.time.body
                        (svix-id ... with a prefix of its own)
    Stripe              stripe-signature: "t=<time>,v1=<hex>,..."                              time.body; id in the body
    GitHub              x-hub-signature-256: "sha256=<hex>", x-github-delivery                 body
    PacSpace            x-pacspace-signature: "v1=<hex>,...", x-pacspace-timestamp, x-event-id time.body
    plain HMAC          a header that you name, in hex or base64                               body

A secret of Standard Webhooks is base64; everybody else uses its text as it is written.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from onceward._core.canonical import parse_json
from onceward._core.errors import ConfigurationError, EventInvalid, RequestInvalid, SignatureInvalid
from onceward.messaging.webhooks.signatures import (
    TOLERANCE,
    Scheme,
    Secret,
    VerifiedMessage,
    base64_secret,
    check_id,
    check_own_id,
    check_signatures,
    check_signing_secrets,
    check_time,
    could_be_time,
    from_base64,
    from_hex,
    hmac_sha256,
    read_secrets_of,
    required_header,
    split_signatures,
    text_secret,
)

_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooks:
    """Standard Webhooks 1.0: what we send, and what most senders have come to."""

    tolerance: int = TOLERANCE
    prefix: str = "webhook"
    """What the three headers begin with: `webhook-id`, or `svix-id` with prefix="svix"."""

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str) or not _PREFIX.fullmatch(self.prefix):
            raise ConfigurationError(
                'the prefix of the headers is lower-case letters, digits and hyphens, such as "webhook" or "svix"'
            )

    def secret(self, given: Secret | str) -> Secret:
        """A secret as it is read here: base64, after `whsec_` or alone."""
        return base64_secret(given)

    def sign(self, id: str, body: bytes, secrets: Iterable[Secret | str], *, now: float) -> dict[str, str]:
        """The headers of a message: a signature for each secret, so that receivers can change theirs in peace."""
        if "." in check_own_id(id):
            raise ConfigurationError("an event's id has no full stop in it: the signed text is divided by them")
        at = str(int(now))
        keys = check_signing_secrets(read_secrets_of(secrets, self.secret))
        signatures = (hmac_sha256(secret, f"{id}.{at}.".encode(), body) for secret in keys)
        return {
            f"{self.prefix}-id": id,
            f"{self.prefix}-timestamp": at,
            f"{self.prefix}-signature": " ".join("v1," + b64encode(one).decode() for one in signatures),
        }

    def verify(
        self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret | str], *, now: float
    ) -> VerifiedMessage:
        """The message's id and time, if the signature is right; otherwise `SignatureInvalid`."""
        text = headers.get(f"{self.prefix}-id", "")
        id = check_id(text, f"{self.prefix}-id")
        # The signed text is id.time.body. If no part of an id could be a time, it is divided in one way only: a longer
        # id would have the time of the shorter one in it.
        if any(could_be_time(part) for part in text.split(".")[1:]):
            raise EventInvalid(
                "a part of the event's id after a full stop could be a time: what is signed could be read in two ways"
            )
        time = required_header(headers, f"{self.prefix}-timestamp")
        at = check_time(time, now, self.tolerance)
        found = []
        for part in split_signatures(required_header(headers, f"{self.prefix}-signature"), " "):
            version, comma, signature = part.partition(",")
            decoded = from_base64(signature) if comma and version == "v1" else None
            if decoded is not None:
                found.append(decoded)
        keys = read_secrets_of(secrets, self.secret)
        check_signatures(found, (hmac_sha256(secret, f"{text}.{time}.".encode(), body) for secret in keys))
        return VerifiedMessage(id, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripe:
    """Stripe's: the id is a member of the body."""

    tolerance: int = TOLERANCE

    def secret(self, given: Secret | str) -> Secret:
        """A secret as it is read here: as it is written, `whsec_` included."""
        return text_secret(given, "Stripe")

    def sign(self, id: str, body: bytes, secrets: Iterable[Secret | str], *, now: float) -> dict[str, str]:
        """The headers of a message, as Stripe sends them; for tests of your own. The body has the id in it."""
        _check_member(body, "id", id)
        at = str(int(now))
        keys = check_signing_secrets(read_secrets_of(secrets, self.secret))
        signatures = (hmac_sha256(secret, f"{at}.".encode(), body).hex() for secret in keys)
        return {"stripe-signature": ",".join([f"t={at}", *(f"v1={one}" for one in signatures)])}

    def verify(
        self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret | str], *, now: float
    ) -> VerifiedMessage:
        """The message's id and time, if the signature is right; otherwise `SignatureInvalid`."""
        times, found = [], []
        for part in split_signatures(required_header(headers, "stripe-signature"), ","):
            name, _, value = part.partition("=")
            if name == "t":
                times.append(value)
            elif name == "v1" and (decoded := from_hex(value)) is not None:
                found.append(decoded)
        if len(times) != 1:
            raise SignatureInvalid("stripe-signature must have one timestamp")
        at = check_time(times[0], now, self.tolerance)
        keys = read_secrets_of(secrets, self.secret)
        check_signatures(found, (hmac_sha256(secret, f"{times[0]}.".encode(), body) for secret in keys))
        return VerifiedMessage(id_member_of(body, "id"), at)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHub:
    """GitHub's: neither the id nor a time is signed, so an old message is known by its bytes."""

    def secret(self, given: Secret | str) -> Secret:
        """A secret as it is read here: as it is written."""
        return text_secret(given, "GitHub")

    def sign(self, id: str, body: bytes, secrets: Iterable[Secret | str], *, now: float) -> dict[str, str]:
        """The headers of a delivery, as GitHub sends them; for tests of your own. One secret; no time is signed."""
        [key] = _only_one(check_signing_secrets(read_secrets_of(secrets, self.secret)))
        return {
            "x-hub-signature-256": f"sha256={hmac_sha256(key, body).hex()}",
            "x-github-delivery": check_own_id(id),
        }

    def verify(
        self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret | str], *, now: float
    ) -> VerifiedMessage:
        """The message's id and time, if the signature is right; otherwise `SignatureInvalid`."""
        name, _, value = required_header(headers, "x-hub-signature-256").partition("=")
        decoded = from_hex(value) if name == "sha256" else None
        keys = read_secrets_of(secrets, self.secret)
        check_signatures([] if decoded is None else [decoded], (hmac_sha256(secret, body) for secret in keys))
        return VerifiedMessage(check_id(headers.get("x-github-delivery"), "x-github-delivery"), None, _digest(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class PacSpace:
    """PacSpace's: times may be in milliseconds; a second signature follows for a day after a rotation."""

    tolerance: int = TOLERANCE

    def secret(self, given: Secret | str) -> Secret:
        """A secret as it is read here: as it is written, `whsec_` included."""
        return text_secret(given, "PacSpace")

    def sign(self, id: str, body: bytes, secrets: Iterable[Secret | str], *, now: float) -> dict[str, str]:
        """The headers of a message."""
        at = str(int(now))
        keys = check_signing_secrets(read_secrets_of(secrets, self.secret))
        signatures = (hmac_sha256(secret, f"{at}.".encode(), body).hex() for secret in keys)
        return {
            "x-event-id": check_own_id(id),
            "x-pacspace-timestamp": at,
            "x-pacspace-signature": ",".join(f"v1={one}" for one in signatures),
        }

    def verify(
        self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret | str], *, now: float
    ) -> VerifiedMessage:
        """The message's id and time, if the signature is right; otherwise `SignatureInvalid`."""
        text = required_header(headers, "x-pacspace-timestamp")
        # Thirteen digits are milliseconds until the year 2286; seconds have ten.
        seconds = text[:-3] if len(text) == 13 and text.isascii() and text.isdigit() else text
        at = check_time(seconds, now, self.tolerance)
        found = []
        for part in split_signatures(required_header(headers, "x-pacspace-signature"), ","):
            name, _, value = part.partition("=")
            if name == "v1" and (decoded := from_hex(value)) is not None:
                found.append(decoded)
        keys = read_secrets_of(secrets, self.secret)
        signed = f"{text}.".encode()
        check_signatures(found, (hmac_sha256(secret, signed, body) for secret in keys))
        return VerifiedMessage(check_id(headers.get("x-event-id"), "x-event-id"), at, _digest(signed, body))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainHmac:
    """HMAC-SHA-256 of the body in a header of its own; the id in another header, or a member of the body."""

    header: str
    spelling: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    id_header: str | None = None
    id_member: str | None = None

    def __post_init__(self) -> None:
        if (self.id_header is None) == (self.id_member is None):
            raise ConfigurationError("give the place of the event's id: id_header= or id_member=, one of them")

    def secret(self, given: Secret | str) -> Secret:
        """A secret as it is read here: as it is written. Where its sender means base64: `Secret(b64decode(text))`."""
        return text_secret(given, "plain HMAC")

    def sign(self, id: str, body: bytes, secrets: Iterable[Secret | str], *, now: float) -> dict[str, str]:
        """The headers of a message; for tests of your own. One secret; no time is signed."""
        [key] = _only_one(check_signing_secrets(read_secrets_of(secrets, self.secret)))
        digest = hmac_sha256(key, body)
        text = digest.hex() if self.spelling == "hex" else b64encode(digest).decode()
        signature = {self.header.lower(): self.prefix + text}
        if self.id_member is not None:
            _check_member(body, self.id_member, id)
            return signature
        return {**signature, (self.id_header or "").lower(): check_own_id(id)}

    def verify(
        self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret | str], *, now: float
    ) -> VerifiedMessage:
        """The message's id and time, if the signature is right; otherwise `SignatureInvalid`."""
        text = required_header(headers, self.header.lower())
        decoded = None
        if text.startswith(self.prefix):
            bare = text[len(self.prefix) :]
            decoded = from_hex(bare) if self.spelling == "hex" else from_base64(bare)
        keys = read_secrets_of(secrets, self.secret)
        check_signatures([] if decoded is None else [decoded], (hmac_sha256(secret, body) for secret in keys))
        if self.id_member is not None:
            return VerifiedMessage(id_member_of(body, self.id_member), None)
        place = (self.id_header or "").lower()
        return VerifiedMessage(check_id(headers.get(place), place), None, _digest(body))


def secret_for_scheme(scheme: Scheme, given: Secret | str) -> Secret:
    """A secret as a scheme reads it; one of your own that does not say how takes a text as it is written."""
    read = getattr(scheme, "secret", None)
    if read is not None:
        found: Secret = read(given)
        return found
    return given if isinstance(given, Secret) else Secret.plain(given)


def id_member_of(body: bytes, name: str) -> str:
    """A member of a JSON object that names the event. Only read once the signature is known to be right."""
    try:
        found = parse_json(body)
    except RequestInvalid as error:
        raise EventInvalid(f"the body is signed, and is not JSON that can be read: {error}") from None
    value = found.get(name) if isinstance(found, dict) else None
    return check_id(value if isinstance(value, str) else None, f"the member {name} of the body")


def _check_member(body: bytes, name: str, id: str) -> None:
    if id_member_of(body, name) != check_own_id(id):
        raise EventInvalid(f"the member {name} of the body is another id than the one that was given")


def _only_one(secrets: list[Secret]) -> list[Secret]:
    if len(secrets) != 1:
        raise ConfigurationError(f"this sender signs with one secret, and {len(secrets)} were given")
    return secrets


def _digest(*signed: bytes) -> bytes:
    return sha256(b"".join(signed)).digest()
