"""
What every signature scheme shares: secrets, signed times, and comparing signatures.

A signature is checked on the bytes as they came, in constant time, against every secret in force (two while one is
being replaced). A text that could be read in two ways is refused: times are ASCII digits only ("nan" passes every
comparison that is written the usual way), base64 has one spelling, a header occurs once.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple, Protocol

from onceward._core.errors import ConfigurationError, EventInvalid, SignatureInvalid

TOLERANCE = 300
"""Seconds that a signed time may lie in the past or the future: what Standard Webhooks and Stripe use."""

SIGNATURES_MAX = 16
"""Signatures in one header. Two are enough for a rotation; a thousand would be a thousand HMACs for nothing."""

SECRET_BYTES_MIN = 16
"""Nothing is signed with fewer: they can be guessed. A sender that issues shorter ones is believed all the same."""
SECRET_BYTES_MAX = 1_024

ID_CHARACTERS_MAX = 255
LONG_ID_CHARACTERS_MAX = 2_048
"""Longer ids than `ID_CHARACTERS_MAX`, up to this, are known by their SHA-256; still longer ones are refused."""

_TIME = re.compile(r"[0-9]{1,12}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ID = re.compile(r"[!-~]+", re.ASCII)


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """
    A secret's bytes. Its repr does not show them.

    A plain `str` is enough wherever a secret is asked for: the scheme reads it as its sender means it.
    """

    value: bytes
    read_as: Literal["bytes", "text", "base64"] = field(default="bytes", compare=False)
    """How it was given, so that a scheme that would have read it differently can say so."""

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes) or not 1 <= len(self.value) <= SECRET_BYTES_MAX:
            raise ConfigurationError(
                f"a webhook secret has 1 to {SECRET_BYTES_MAX} bytes; make one with secrets.token_bytes(32), and keep "
                "it with your other secrets"
            )

    @classmethod
    def parse(cls, text: str) -> Secret:
        """
        A secret as Standard Webhooks writes it: base64, after `whsec_` or alone.

        Stripe's and PacSpace's begin with `whsec_`, too, and are used as they are written: give those as plain `str`.
        """
        if text.startswith(("whsk_", "whpk_")):
            raise ConfigurationError(
                "whsk_ and whpk_ are keys of Standard Webhooks' asymmetric signatures (v1a), which are not made here; "
                "use a secret that begins with whsec_"
            )
        value = _lenient_base64(text.removeprefix("whsec_"))
        if not value:
            raise ConfigurationError(
                "a secret of Standard Webhooks is base64, after whsec_ or alone, and this one is not. If its sender "
                "really uses the text itself as the key, use Secret.plain(text), or write the text in base64"
            )
        return cls(value, "base64")

    @classmethod
    def plain(cls, text: str) -> Secret:
        """A text that stands for its own bytes, however it begins."""
        return cls(text.encode(), "text")

    @property
    def is_short(self) -> bool:
        """Whether it can be guessed: good enough to verify what somebody else signed with it, and for nothing more."""
        return len(self.value) < SECRET_BYTES_MIN

    def text(self) -> str:
        """As Standard Webhooks writes it, to be shown once."""
        return "whsec_" + b64encode(self.value).decode()

    def __repr__(self) -> str:
        return "<Secret>"


class VerifiedMessage(NamedTuple):
    """A message whose signature is right."""

    id: str
    """The sender's name for the event: the same on every delivery of it."""
    signed_at: int | None
    """When it was signed, in seconds since 1970; None where the scheme signs no time."""
    unsigned_id_digest: bytes | None = None
    """SHA-256 of what is signed, where the id is not a part of it: whoever has seen one such message can send it under
    any id, and it is known again by this. None where the id is signed."""


class Scheme(Protocol):
    """One way of signing. One of your own may also have `secret`, which reads a secret that is given as text."""

    def verify(
        self, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret | str], *, now: float
    ) -> VerifiedMessage:
        """The message's id and time, if the signature is right; else `SignatureInvalid`. Header names in lower case."""


def text_secret(given: Secret | str, whose: str) -> Secret:
    """A secret of a sender that uses its text as the key."""
    if isinstance(given, str):
        return Secret.plain(given)
    if given.read_as == "base64":
        raise ConfigurationError(
            f"{whose} uses a secret as it is written, also one that begins with whsec_, and this one was read as "
            "base64 (Secret.parse): give its text, as a plain str"
        )
    return given


def base64_secret(given: Secret | str) -> Secret:
    """A secret of Standard Webhooks."""
    if isinstance(given, str):
        return Secret.parse(given)
    if given.read_as == "text" and given.value.startswith(b"whsec_"):
        raise ConfigurationError(
            "what follows whsec_ is base64 in Standard Webhooks, and this secret was read as text (Secret.plain): give "
            "its text, as a plain str"
        )
    return given


def read_secrets_of(given: Iterable[Secret | str], read: Callable[[Secret | str], Secret]) -> list[Secret]:
    """Secrets as a scheme reads them."""
    if isinstance(given, str | Secret):
        raise ConfigurationError("secrets must be a list, also if there is only one: [secret]")
    return [read(one) for one in given]


def check_signing_secrets(secrets: list[Secret]) -> list[Secret]:
    """Secrets that may sign: none that can be guessed. (Without any, there are headers without a signature.)"""
    if any(one.is_short for one in secrets):
        raise ConfigurationError(
            f"a secret of fewer than {SECRET_BYTES_MIN} bytes can be guessed, so it is not used for signing; "
            "make one with secrets.token_bytes(32). (It can still be used to verify what others sign.)"
        )
    return secrets


def hmac_sha256(secret: Secret, *parts: bytes) -> bytes:
    """HMAC-SHA-256 over these parts in a row."""
    return hmac.digest(secret.value, b"".join(parts), "sha256")


def check_signatures(found: list[bytes], expected: Iterable[bytes]) -> None:
    """One of the signatures that were found must be one that is expected. All are compared, whatever the first says."""
    right = False
    for one in expected:
        for other in found:
            right |= hmac.compare_digest(one, other)
    if not right:
        raise SignatureInvalid(
            "no signature matches: the secret is a different one, or the body was changed on the way"
        )


def check_time(text: str, now: float, tolerance: int) -> int:
    """A signed time, if it is one and near."""
    if not _TIME.fullmatch(text):
        raise SignatureInvalid("the signed time is not a whole number of seconds")
    at = int(text)
    if abs(now - at) > tolerance:
        raise SignatureInvalid(
            f"the signed time is more than {tolerance} seconds away from now: an old message, or a wrong clock"
        )
    return at


def check_id(text: str | None, place: str = "") -> str:
    """An event's id, as it is known here; `place` says where it is looked for. A long one is known by its SHA-256."""
    where = f" ({place})" if place else ""
    if not text:
        raise EventInvalid(f"the event's id{where} is missing")
    if len(text) > LONG_ID_CHARACTERS_MAX:
        raise EventInvalid(f"the event's id{where} has more than {LONG_ID_CHARACTERS_MAX} characters")
    if not _ID.fullmatch(text):
        raise EventInvalid(f"the event's id{where} is not visible ASCII characters")
    return text if len(text) <= ID_CHARACTERS_MAX else f"sha256:{sha256(text.encode()).hexdigest()}"


def check_own_id(text: str) -> str:
    """The id of an event that is about to be signed."""
    if check_id(text) != text:
        raise EventInvalid(f"an event's id has at most {ID_CHARACTERS_MAX} characters")
    return text


def could_be_time(text: str) -> bool:
    """Whether a text could be read as a signed time."""
    return _TIME.fullmatch(text) is not None


def required_header(headers: Mapping[str, str], name: str) -> str:
    """A header that the scheme needs."""
    if name not in headers:
        raise SignatureInvalid(f"the header {name} is missing")
    return headers[name]


def split_signatures(text: str, by: str) -> list[str]:
    """The parts of a header; refused if there are too many."""
    parts = [part.strip(" ") for part in text.split(by)]
    if len(parts) > SIGNATURES_MAX:
        raise SignatureInvalid(f"there are more than {SIGNATURES_MAX} signatures")
    return parts


def from_hex(text: str) -> bytes | None:
    """The 32 bytes of a signature in hex; None if it is malformed."""
    return bytes.fromhex(text) if _HEX.fullmatch(text) else None


def from_base64(text: str) -> bytes | None:
    """The bytes of a text in base64; None unless it is spelled in the one canonical way."""
    try:
        found = b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        return None
    return found if b64encode(found).decode() == text else None


def _lenient_base64(text: str) -> bytes | None:
    """The bytes of a secret in base64, also without its padding, as the libraries of Standard Webhooks accept it."""
    padded = text if text.endswith("=") else text + "=" * (-len(text) % 4)
    try:
        return b64decode(padded.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        return None
