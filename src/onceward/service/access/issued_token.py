"""
New tokens. The service keeps a hash of each (see `peppers`), and never the token itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from onceward.protocol.token_format import (
    CHECKSUM_CHARACTERS,
    ID_CHARACTERS,
    SECRET_BYTES,
    SECRET_CHARACTERS,
    checksum,
    in_base,
)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token. `text` is shown once, to whoever asked for it, and is kept nowhere."""

    id: str
    text: str = field(repr=False)

    @property
    def body(self) -> bytes:
        """What is hashed."""
        return self.text[:-CHECKSUM_CHARACTERS].encode()


def issue_token(environment: str, random: Callable[[int], bytes]) -> IssuedToken:
    """A new token."""
    id = in_base(int.from_bytes(random(8), "big") % 36**ID_CHARACTERS, 36, ID_CHARACTERS).lower()
    secret = in_base(int.from_bytes(random(SECRET_BYTES), "big"), 62, SECRET_CHARACTERS)
    body = f"ow_{environment}_{id}_{secret}"
    return IssuedToken(id, body + checksum(body))
