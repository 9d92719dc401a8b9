"""
Values and rows in an export file, and digests of rows whose order does not matter.

    null, true, false, 17, 1.5, "text"     as JSON has them; 1 and 1.0 are two values
    {"blob": "3q2+7w=="}                   bytes
    {"real": "inf"}                        infinities and NaN
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, Final, TypeAlias

MovedValue: TypeAlias = bool | int | float | str | bytes | None
MovedRow: TypeAlias = Sequence[MovedValue]

BUCKETS: Final = 4_096
_MODULUS: Final = 1 << 256
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


def json_line(document: Any) -> bytes:
    """A document on a line of its own."""
    return _encode(document).encode() + b"\n"


def to_plain(value: MovedValue) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return {"blob": b64encode(value).decode("ascii")}
    if isinstance(value, float) and not isfinite(value):
        return {"real": repr(value)}
    return value


def from_plain(value: Any) -> MovedValue:
    """A value of a file's."""
    match value:
        case {"blob": str(text)}:
            return b64decode(text, validate=True)
        case {"real": str(text)}:
            return float(text)
        case None | bool() | int() | float() | str():
            return value
    raise ValueError("a value of this kind is not known")


class RowDigest:
    """
    A digest of rows in any order: two are equal if the same rows were added, each as often.

    It is the sum of the rows' hashes, by bucket: where two digests differ, the buckets say which rows to look at.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sums = [0] * BUCKETS

    def add(self, row: Sequence[Any]) -> int:
        """Add a row of values that JSON has; its bucket."""
        digest = sha256(_encode(row).encode()).digest()
        bucket = int.from_bytes(digest[:2], "big") % BUCKETS
        self._sums[bucket] = (self._sums[bucket] + int.from_bytes(digest, "big")) % _MODULUS
        self.count += 1
        return bucket

    def hexdigest(self) -> str:
        """All of it, in 64 digits."""
        return f"{sum(self._sums) % _MODULUS:064x}"

    def differing(self, other: RowDigest) -> set[int]:
        """The buckets that are not the same in both."""
        return {number for number, (one, two) in enumerate(zip(self._sums, other._sums, strict=True)) if one != two}
