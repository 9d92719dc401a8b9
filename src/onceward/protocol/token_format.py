"""
The format of tokens: `ow_live_` or `ow_test_`, a public id, a secret and a checksum.

    ow_live_k3v9x2m8q4ab_7Xq...33 characters of secret...6 of checksum
       |    |            |
       |    |            192 random bits, and a CRC-32 of everything before it
       |    the id: public, for logs, lists and lookups
       environment: live or test

The checksum is no secret and guards nothing. It tells a typo, or half a token, without a lookup, and lets a scanner of
leaked secrets be sure of a find. The service makes tokens in `service/access/issued_token.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from zlib import crc32

from onceward._core.errors import TokenInvalid

ID_CHARACTERS = 12
"""62 bits. Unique by the table's primary key; this many, so that a new one is practically never taken."""
SECRET_BYTES = 24
"""192 bits, beyond the 128 that make guessing hopeless; so a fast hash is enough, and bcrypt would only cost time."""
SECRET_CHARACTERS = 33
CHECKSUM_CHARACTERS = 6
TOKEN_CHARACTERS = len("ow_live__") + ID_CHARACTERS + SECRET_CHARACTERS + CHECKSUM_CHARACTERS

PATTERN = r"ow_(live|test)_([0-9a-z]{12})_([0-9A-Za-z]{33})([0-9A-Za-z]{6})"
"""For scanners of leaked secrets."""
ID_PATTERN = re.compile(r"[0-9a-z]{12}")

_TOKEN = re.compile(PATTERN, re.ASCII)
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A token as a caller sent it: well-formed, and not yet verified."""

    environment: str
    id: str
    body: bytes = field(repr=False)
    """Everything but the checksum: what is hashed. A live token cannot be passed off as a test one."""


def parse_token(text: str) -> PresentedToken:
    """The parts of a token; `TokenInvalid` if it cannot be one. Nothing of it is repeated in the error."""
    found = _TOKEN.fullmatch(text) if isinstance(text, str) and len(text) == TOKEN_CHARACTERS else None
    if found is None:
        raise TokenInvalid(
            f"this is not a token. Copy all of it, without spaces or line ends: a token has {TOKEN_CHARACTERS} "
            "characters and begins with ow_live_ or ow_test_"
        )
    body = text[:-CHECKSUM_CHARACTERS]
    if checksum(body) != found[4]:
        raise TokenInvalid("the token was copied wrongly: its checksum does not match. Copy all of it again")
    return PresentedToken(found[1], found[2], body.encode())


def checksum(body: str) -> str:
    """The last characters of a token, from everything before them."""
    return in_base(crc32(body.encode()), 62, CHECKSUM_CHARACTERS)


def in_base(number: int, base: int, characters: int) -> str:
    """A number in base 36 or 62, as so many digits."""
    digits = []
    for _ in range(characters):
        number, digit = divmod(number, base)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
