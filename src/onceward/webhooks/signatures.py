"""
What every scheme of signatures shares: secrets, times, and comparing.

A signature is checked on the bytes as they came, in constant time, against every secret in force (two while one is
being replaced). A text that could be read in two ways is refused: times are ASCII digits only ("nan" passes every
comparison that is written the usual way), base64 has one spelling, a header occurs once.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from onceward._core.errors import ConfigurationError, EventInvalid, SignatureInvalid

TOLERANCE = 300
"""Seconds that a signed time may lie in the past or the future: what Standard Webhooks and Stripe use."""

SIGNATURES_MAX = 16
"""Signatures in one header. Two are enough for a rotation; a thousand would be a thousand HMACs for nothing."""

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 1_024
STANDARD_BYTES = (24, 64)
"""What Standard Webhooks asks of a secret."""

ID_CHARACTERS_MAX = 255

_TIME = re.compile(r"[0-9]{1,12}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ID = re.compile(r"[!-~]{1,255}", re.ASCII)


class Secret(NamedTuple):
    """A secret's bytes. Its repr does not show them."""

    value: bytes

    @classmethod
    def parse(cls, text: str) -> Secret:
        """
        `whsec_` and base64, as Standard Webhooks writes it; any other text stands for its own bytes.

        Stripe's begin with `whsec_`, too, and are no base64: use `secret_of`, which knows the scheme, or `plain`.
        """
        if text.startswith("whsec_"):
            value = from_base64(text.removeprefix("whsec_"))
            if value is None or not STANDARD_BYTES[0] <= len(value) <= STANDARD_BYTES[1]:
                raise ConfigurationError("a secret that begins with whsec_ goes on with 24 to 64 bytes in base64")
            return cls(value)
        if text.startswith(("whsk_", "whpk_")):
            raise ConfigurationError(
                "whsk_ and whpk_ are keys of Standard Webhooks' asymmetric signatures (v1a), which are not made here; "
                "use a secret that begins with whsec_"
            )
        return cls.plain(text)

    @classmethod
    def plain(cls, text: str) -> Secret:
        """A text that stands for its own bytes, however it begins."""
        value = text.encode()
        if not SECRET_BYTES_MIN <= len(value) <= SECRET_BYTES_MAX:
            raise ConfigurationError(
                f"a webhook secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes; make one with "
                "secrets.token_bytes(32), and keep it with your other secrets"
            )
        return cls(value)

    def text(self) -> str:
        """As Standard Webhooks writes it, to be shown once."""
        return "whsec_" + b64encode(self.value).decode()

    def __repr__(self) -> str:
        return "<Secret>"


class Verified(NamedTuple):
    """A message whose signature is right."""

    id: str
    """The sender's name for the event: the same on every delivery of it."""
    signed_at: int | None
    """When it was signed, in seconds since 1970; None where the scheme signs no time."""


class Scheme(Protocol):
    """One way of signing."""

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], *, now: float) -> Verified:
        """Who this is, if the signature is right; otherwise `SignatureInvalid`. Header names are in lower case."""


def signed_with(secret: Secret, *parts: bytes) -> bytes:
    """HMAC-SHA-256 over these parts in a row."""
    return hmac.digest(secret.value, b"".join(parts), "sha256")


def check(found: list[bytes], expected: Iterable[bytes]) -> None:
    """One of the signatures that were found must be one that is expected. All are compared, whatever the first says."""
    right = False
    for one in expected:
        for other in found:
            right |= hmac.compare_digest(one, other)
    if not right:
        raise SignatureInvalid("no signature matches: the secret is another one, or the body was changed on its way")


def check_time(text: str, now: float, tolerance: int) -> int:
    """A signed time, if it is one and near."""
    if not _TIME.fullmatch(text):
        raise SignatureInvalid("the signed time is not a whole number of seconds")
    at = int(text)
    if abs(now - at) > tolerance:
        raise SignatureInvalid(
            f"the signed time lies more than {tolerance} seconds away: an old message, or a wrong clock"
        )
    return at


def check_id(text: str | None, place: str = "") -> str:
    """An event's id, if it can be one; `place` says where it is looked for."""
    if text is None or not _ID.fullmatch(text):
        where = f" ({place})" if place else ""
        raise EventInvalid(f"the event's id{where} is missing, or is not 1 to 255 visible ASCII characters")
    return text


def needed(headers: Mapping[str, str], name: str) -> str:
    """A header that the scheme needs."""
    if name not in headers:
        raise SignatureInvalid(f"the header {name} is missing")
    return headers[name]


def split(text: str, by: str) -> list[str]:
    """The parts of a header; refused if there are too many."""
    parts = [part.strip(" ") for part in text.split(by)]
    if len(parts) > SIGNATURES_MAX:
        raise SignatureInvalid(f"there are more than {SIGNATURES_MAX} signatures")
    return parts


def from_hex(text: str) -> bytes | None:
    """The 32 bytes that a signature in hex stands for; None if it is none."""
    return bytes.fromhex(text) if _HEX.fullmatch(text) else None


def from_base64(text: str) -> bytes | None:
    """What a text in base64 stands for; None unless it is the one spelling of it."""
    try:
        found = b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        return None
    return found if b64encode(found).decode() == text else None
