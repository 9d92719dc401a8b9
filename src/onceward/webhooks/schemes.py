"""
The schemes themselves. Each is a small table: which headers, what is signed, how it is spelled.

    Standard Webhooks   webhook-id, webhook-timestamp, webhook-signature: "v1,<base64> ..."   id.time.body
    Stripe              stripe-signature: "t=<time>,v1=<hex>,..."                              time.body; id in the body
    GitHub              x-hub-signature-256: "sha256=<hex>", x-github-delivery                 body
    PacSpace            x-pacspace-signature: "v1=<hex>,...", x-pacspace-timestamp, x-event-id time.body
    plain HMAC          a header that you name, in hex or base64                               body
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from onceward._core.canonical import parse_json
from onceward._core.errors import ConfigurationError, EventInvalid, RequestInvalid, SignatureInvalid
from onceward.webhooks.signatures import (
    TOLERANCE,
    Scheme,
    Secret,
    Verified,
    check,
    check_id,
    check_time,
    from_base64,
    from_hex,
    needed,
    signed_with,
    split,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooks:
    """Standard Webhooks 1.0: what we send, and what most senders have come to."""

    tolerance: int = TOLERANCE

    def sign(self, id: str, body: bytes, secrets: Iterable[Secret], *, now: float) -> dict[str, str]:
        """The headers of a message: a signature for each secret, so that receivers can change theirs in peace."""
        if "." in check_id(id):
            raise ConfigurationError("an event's id has no full stop in it: the signed text is divided by them")
        at = str(int(now))
        signatures = (signed_with(secret, f"{id}.{at}.".encode(), body) for secret in secrets)
        return {
            "webhook-id": id,
            "webhook-timestamp": at,
            "webhook-signature": " ".join("v1," + b64encode(one).decode() for one in signatures),
        }

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], *, now: float) -> Verified:
        """See `Scheme.verify`."""
        id = check_id(headers.get("webhook-id"), "webhook-id")
        if "." in id:
            raise EventInvalid("the event's id has a full stop in it: it could be read in two ways")
        text = needed(headers, "webhook-timestamp")
        at = check_time(text, now, self.tolerance)
        found = []
        for part in split(needed(headers, "webhook-signature"), " "):
            version, comma, signature = part.partition(",")
            decoded = from_base64(signature) if comma and version == "v1" else None
            if decoded is not None:
                found.append(decoded)
        check(found, (signed_with(secret, f"{id}.{text}.".encode(), body) for secret in secrets))
        return Verified(id, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripe:
    """Stripe's: the id is a member of the body."""

    tolerance: int = TOLERANCE

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], *, now: float) -> Verified:
        """See `Scheme.verify`."""
        times, found = [], []
        for part in split(needed(headers, "stripe-signature"), ","):
            name, _, value = part.partition("=")
            if name == "t":
                times.append(value)
            elif name == "v1" and (decoded := from_hex(value)) is not None:
                found.append(decoded)
        if len(times) != 1:
            raise SignatureInvalid("stripe-signature has one time in it, no more and no less")
        at = check_time(times[0], now, self.tolerance)
        check(found, (signed_with(secret, f"{times[0]}.".encode(), body) for secret in secrets))
        return Verified(member(body, "id"), at)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHub:
    """GitHub's: no time is signed, so an old message is known by its id alone."""

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], *, now: float) -> Verified:
        """See `Scheme.verify`."""
        name, _, value = needed(headers, "x-hub-signature-256").partition("=")
        decoded = from_hex(value) if name == "sha256" else None
        check([] if decoded is None else [decoded], (signed_with(secret, body) for secret in secrets))
        return Verified(check_id(headers.get("x-github-delivery"), "x-github-delivery"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacSpace:
    """PacSpace's: times may be in milliseconds; a second signature follows for a day after a rotation."""

    tolerance: int = TOLERANCE

    def sign(self, id: str, body: bytes, secrets: Iterable[Secret], *, now: float) -> dict[str, str]:
        """The headers of a message."""
        at = str(int(now))
        signatures = (signed_with(secret, f"{at}.".encode(), body).hex() for secret in secrets)
        return {
            "x-event-id": check_id(id),
            "x-pacspace-timestamp": at,
            "x-pacspace-signature": ",".join(f"v1={one}" for one in signatures),
        }

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], *, now: float) -> Verified:
        """See `Scheme.verify`."""
        text = needed(headers, "x-pacspace-timestamp")
        # Thirteen digits are milliseconds until the year 2286; seconds have ten.
        seconds = text[:-3] if len(text) == 13 and text.isascii() and text.isdigit() else text
        at = check_time(seconds, now, self.tolerance)
        found = []
        for part in split(needed(headers, "x-pacspace-signature"), ","):
            name, _, value = part.partition("=")
            if name == "v1" and (decoded := from_hex(value)) is not None:
                found.append(decoded)
        check(found, (signed_with(secret, f"{text}.".encode(), body) for secret in secrets))
        return Verified(check_id(headers.get("x-event-id"), "x-event-id"), at)


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
            raise ConfigurationError("say where the event's id is: id_header= or id_member=, one of them")

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], *, now: float) -> Verified:
        """See `Scheme.verify`."""
        text = needed(headers, self.header.lower())
        decoded = None
        if text.startswith(self.prefix):
            bare = text[len(self.prefix) :]
            decoded = from_hex(bare) if self.spelling == "hex" else from_base64(bare)
        check([] if decoded is None else [decoded], (signed_with(secret, body) for secret in secrets))
        if self.id_member is not None:
            return Verified(member(body, self.id_member), None)
        place = (self.id_header or "").lower()
        return Verified(check_id(headers.get(place), place), None)


def secret_of(scheme: Scheme, text: str) -> Secret:
    """A secret as its sender means it: only Standard Webhooks' (and PacSpace's) `whsec_` stands before base64."""
    return Secret.plain(text) if isinstance(scheme, Stripe | GitHub | PlainHmac) else Secret.parse(text)


def member(body: bytes, name: str) -> str:
    """A member of a JSON object that names the event. Only read once the signature is known to be right."""
    try:
        found = parse_json(body)
    except RequestInvalid as error:
        raise EventInvalid(f"the body is signed, and is not JSON that can be read: {error}") from None
    value = found.get(name) if isinstance(found, dict) else None
    return check_id(value if isinstance(value, str) else None, f"the member {name} of the body")
