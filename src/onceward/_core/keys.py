"""
What may be a key, and what a record is found by.

`check_key` and `check_scope` let good names through untouched and give each kind of bad one its own
advice; nothing is ever cut to fit, because two long keys cut alike would be one record. `record_id` turns
(kind, scope, key) into the 32 bytes that every store uses as its primary key.

A key never appears in an error or a log: people put personal data into keys. `digest_of` does.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from onceward._core.errors import ConfigurationError, KeyInvalid, KeyMissing, ScopeMissing
from onceward._core.short_hash import short_sha256

if TYPE_CHECKING:
    from hashlib import _Hash as HASH

# Stripe's limit, the longest among the providers that people already build keys for.
KEY_CHARACTERS_MAX = 255
SCOPE_CHARACTERS_MAX = 255
ENVIRONMENTS = ("live", "test")
# Hex digits shown in logs and errors: 48 bits, enough to find one record among millions.
DIGEST_CHARACTERS = 12
_DIGEST_BYTES = DIGEST_CHARACTERS // 2

_DOMAIN = b"onceward/1"
# Callers use few (kind, scope) pairs and many keys; a tenant each is what the limit is for.
_SCOPES_REMEMBERED = 1024


def check_key(key: str, limit: int = KEY_CHARACTERS_MAX) -> str:
    """Give the key back if it can be one: 1 to `limit` visible ASCII characters. Otherwise `KeyInvalid`."""
    # `isprintable` on ASCII text means 0x20 to 0x7e; the blank is the one to leave out.
    if type(key) is str and 0 < len(key) <= limit and key.isascii() and key.isprintable() and " " not in key:
        return key
    if isinstance(key, str) and type(key) is not str:
        return check_key(str.__str__(key), limit)
    kind = KeyMissing if key is None or key == "" else KeyInvalid
    raise kind(f"the key {_fault_of(key, limit)}")


def check_scope(scope: str | None) -> str:
    """Give the scope back if it can be one: 1 to 255 visible ASCII characters. Raises `ScopeMissing` for none."""
    if scope is None or scope == "":
        raise ScopeMissing
    try:
        return check_key(scope, SCOPE_CHARACTERS_MAX)
    except KeyInvalid:
        raise ConfigurationError(f"the scope {_fault_of(scope, SCOPE_CHARACTERS_MAX)}") from None


def environment_key(environment: str, key: str) -> str:
    """
    Put the environment in front of a key (`live:`, `test:`), so that the two can never meet.

    A key that already carries it is left alone; one that carries the other is refused. The limit of 255
    counts what follows the prefix.
    """
    if environment not in ENVIRONMENTS:
        raise ConfigurationError(f"an environment is one of {', '.join(ENVIRONMENTS)}; name one of them")
    found, colon, rest = key.partition(":") if isinstance(key, str) else ("", "", "")
    if not colon or found not in ENVIRONMENTS:
        return f"{environment}:{check_key(key)}"
    if found != environment:
        raise KeyInvalid(
            f"the key belongs to the {found} environment and this is {environment} (digest {key_digest(key)}); "
            "use a key of this environment, and not one that begins with the name of the other"
        )
    return f"{environment}:{check_key(rest)}"


def bare_key(scope: str, stored: str) -> str:
    """A stored key without the environment that its scope put in front of it: the shortest way to give it."""
    environment, colon, _ = scope.partition(":")
    return stored.removeprefix(f"{environment}:") if colon and environment in ENVIRONMENTS else stored


def record_id(kind: str, scope: str, *parts: str) -> bytes:
    """
    The 32 bytes that a record is found by: SHA-256 over the length-prefixed kind, scope and key parts.

    Lengths go first, so that ("a:b", "c") and ("a", "b:c") are two records; and the kind is part of it,
    so that a plan's step can never be somebody's key.
    """
    hasher = _hasher(kind, scope).copy()
    if len(parts) == 1:  # The usual one, without a call for it.
        key = parts[0].encode("utf-8")
        hasher.update(len(key).to_bytes(8, "big") + key)
    else:
        hasher.update(b"".join(map(length_prefixed, parts)))
    return hasher.digest()


KEY_PARTS = " / "
"""Between the parts of a key of several, where it is written as one text: a plan and its step."""


def plan_family(scope: str, plan: str) -> bytes:
    """The id that the records of one plan's steps share."""
    return record_id("plan", scope, plan)


@lru_cache(maxsize=16)
def kind_family(kind: str) -> bytes:
    """The id that records of a kind share which operators look for: dead letters, breakers. Every store indexes it."""
    return record_id("kind", kind)


def digest_of(identity: bytes) -> str:
    """What logs and errors show in place of a key: the first 12 hex digits of the record's id."""
    return identity[:_DIGEST_BYTES].hex()


def key_digest(key: str) -> str:
    """What an error shows of a key whose record is not known yet. Not a secret: short keys can be guessed."""
    return digest_of(sha256(key.encode("utf-8", "surrogatepass")).digest())


def mint_from(random16: bytes) -> str:
    """Write 16 random bytes as a UUIDv4 (RFC 4122): 36 characters, 122 of the 128 bits kept."""
    if len(random16) != 16:
        raise ConfigurationError(f"a UUID is made of 16 random bytes, not {len(random16)}; pass os.urandom(16)")
    return uuid_text(random16, version=4)


def uuid_text(octets: bytes, *, version: int) -> str:
    """16 bytes as a UUID of that version: six bits say what it is, the rest stay as they are."""
    bits = int.from_bytes(octets, "big")
    bits = bits & ~(0xF << 76) | version << 76
    bits = bits & ~(0b11 << 62) | 0b10 << 62  # The variant of RFC 4122.
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def length_prefixed(part: str) -> bytes:
    """A part of something hashed, its length in front, so that no two lists of parts run together alike."""
    encoded = part.encode("utf-8")
    return len(encoded).to_bytes(8, "big") + encoded


@lru_cache(maxsize=_SCOPES_REMEMBERED)
def _hasher(kind: str, scope: str) -> HASH:
    """It has read what the ids of one kind and scope begin with. To copy it takes less than to make a new one."""
    return short_sha256(_DOMAIN + length_prefixed(kind) + length_prefixed(scope))


def _fault_of(name: object, limit: int) -> str:
    """What is wrong with a key or a scope, and what to do. Says how long it is, never what it is."""
    if name is None:
        return "is missing; derive it from what the operation is about, for example charge:order-17"
    if not isinstance(name, str):
        return f"is a {type(name).__name__} and must be a str; write it as text, the same on every attempt"
    if not name:
        return "is empty; derive it from what the operation is about, for example charge:order-17"
    facts = f"({len(name)} characters, digest {key_digest(name)})"
    if len(name) > limit:
        return (
            f"is longer than {limit} characters {facts}; it is never shortened: "
            "use fewer parts, or hash them with derive(...)"
        )
    if not name.isascii():
        return f"has characters outside ASCII {facts}; use an id instead of a name, or percent-encode it"
    if not name.isprintable():
        return f"has control characters {facts}; strip line ends and tabs before using it"
    return f"has spaces {facts}; use visible characters only, for example - or :"
