"""
The key that we pass on: one record, one key for each provider behind it.

When an effect calls a service that honours keys, the second call must carry the first one's key. It is
computed from the record's id, so a restarted process sends the same one without having stored it. Every
provider gets another key for the same record, so that none can use what it knows at the next.
"""

from __future__ import annotations

from hashlib import sha256

from onceward._core.errors import ConfigurationError
from onceward._core.keys import uuid_text

_DOMAIN = b"onceward/downstream/1\0"
_UUID = "uuid"
# Hex digits for each provider: never more than it takes, and never less than 128 bits.
_HEX_DIGITS = {
    "stripe": 64,  # takes 255
    "adyen": 64,  # takes 64
    "square": 44,  # takes 45
    "worldline": 40,  # takes 40
}
PROFILES = (*_HEX_DIGITS, _UUID)


def downstream_key(record_id: bytes, profile: str) -> str:
    """
    The key to send to a provider for this record, always the same one, within the provider's own limit.

    `profile` is one of `PROFILES`. The profile `uuid` is for anyone who wants a UUID: version 5 by its
    layout (RFC 4122), so 122 of its bits are hash.
    """
    if profile not in PROFILES:
        raise ConfigurationError(f"there is no downstream profile of that name; use one of {', '.join(PROFILES)}")
    if len(record_id) != 32:
        raise ConfigurationError(f"a record's id has 32 bytes, not {len(record_id)}; pass the id of a record")
    digest = sha256(_DOMAIN + profile.encode("ascii") + b"\0" + record_id).digest()
    if profile == _UUID:
        return uuid_text(digest[:16], version=5)
    return digest.hex()[: _HEX_DIGITS[profile]]
