"""
What a request is known by: 33 bytes that say whether a retry asks for the same thing.

    byte 0       bytes 1..32
    1 canonical  SHA-256 of the canonical form               two spellings of one request are one request
    2 raw        SHA-256 of the bytes as they came           for bodies that are not JSON
    3 keyed      HMAC-SHA-256 of the canonical form          for requests so small that a hash could be guessed

The first byte travels with the hash, so that a later release can add a scheme and still read the old
ones. Each scheme hashes behind a prefix of its own: no hash of one can pass for a hash of another.
The engine stores a fingerprint at claim and compares it on every later call.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256

from onceward._core.canonical import canonical
from onceward._core.errors import ConfigurationError, RequestInvalid
from onceward._core.keys import length_prefixed
from onceward._core.short_hash import SHORT, short_sha256

FINGERPRINT_BYTES = 33
# HMAC is as strong as its secret is hard to guess: 128 bits, the least that NIST SP 800-107 calls strong.
SECRET_BYTES_MIN = 16

_CANONICAL, _RAW, _KEYED = b"\x01", b"\x02", b"\x03"
_SCHEMES = frozenset(_CANONICAL + _RAW + _KEYED)
# They have read the prefix of their scheme. To copy one takes less than to make a new one.
_CANONICAL_PREFIX = b"onceward/fingerprint/1\0"
_SHORT_HASHER, _CANONICAL_HASHER = short_sha256(_CANONICAL_PREFIX), sha256(_CANONICAL_PREFIX)
_RAW_HASHER = sha256(b"onceward/fingerprint/2\0")
_KEYED_PREFIX = b"onceward/fingerprint/3\0"


def fingerprint_canonical(request: object) -> bytes:
    """Fingerprint of a value, the same for every spelling of it. Raises `RequestInvalid` if it has no form."""
    return fingerprint_form(canonical(request))


def fingerprint_form(form: bytes) -> bytes:
    """The same of a value whose canonical form is known."""
    hasher = (_SHORT_HASHER if len(form) <= SHORT else _CANONICAL_HASHER).copy()
    hasher.update(form)
    return _CANONICAL + hasher.digest()


fingerprint = fingerprint_canonical


def fingerprint_raw(body: bytes) -> bytes:
    """Fingerprint of bytes as they came: any other byte makes another request."""
    hasher = _RAW_HASHER.copy()
    hasher.update(body)
    return _RAW + hasher.digest()


def fingerprint_keyed(request: object, secret: bytes) -> bytes:
    """
    Fingerprint of a value that only the holder of `secret` can compute.

    For requests with few possible values (a PIN, a yes or no): someone who reads the store cannot find
    the request by trying them all. Another secret makes every stored fingerprint differ, so keep it.
    """
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigurationError(
            f"the fingerprint secret has {len(secret)} bytes and needs {SECRET_BYTES_MIN} or more; "
            "make one with secrets.token_bytes(32) and keep it with your other secrets"
        )
    return _KEYED + hmac.digest(secret, _KEYED_PREFIX + canonical(request), "sha256")


def text_fields(fields: Mapping[str, str | None]) -> bytes:
    """
    The bytes of named texts, whatever their order: a request that other languages can spell alike.

    `onceward_fields` in PostgreSQL makes the same bytes. Each name and text is UTF-8 with its length (8 bytes) in
    front, sorted by the names' bytes; None has the length -1.
    """
    if any(not isinstance(text, str | None) or not isinstance(name, str) for name, text in fields.items()):
        raise RequestInvalid("a field is a name and a text (or None); write numbers as you want them compared: '12.50'")
    try:
        ordered = sorted(fields.items(), key=lambda field: field[0].encode())
        return b"".join(length_prefixed(name) + _prefixed(text) for name, text in ordered)
    except UnicodeEncodeError:
        raise RequestInvalid(
            "a field contains half a character (a lone surrogate); decode it correctly first"
        ) from None


def _prefixed(text: str | None) -> bytes:
    return length_prefixed(text) if text is not None else (-1).to_bytes(8, "big", signed=True)


def known_scheme(stored: bytes) -> bool:
    """Whether this version understands a stored fingerprint (if not, it was written by a later one)."""
    return len(stored) == FINGERPRINT_BYTES and stored[0] in _SCHEMES
