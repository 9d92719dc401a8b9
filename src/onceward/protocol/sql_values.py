"""
Values between JSON and SQLite, without loss in either direction.

    SQLite                         JSON
    -----------------------------  -------------------------------------------------
    NULL, TEXT                     null, string
    INTEGER within +-(2**53 - 1)   number
    INTEGER beyond that            {"integer": "9223372036854775807"}: JavaScript would round it
    REAL                           number; infinities have no JSON form and are refused
    BLOB                           {"base64": "3q2+7w=="}

A parameter takes the same forms, and besides: true and false (1 and 0), and a whole number of 64 bits written as a
number. NaN, infinities, larger numbers, lists and other objects are refused: SQLite would store something else.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from json import JSONEncoder
from math import isfinite
from typing import Any, TypeAlias

from onceward._core.display_text import json_kind
from onceward._core.json_text import encode_with
from onceward.protocol.errors import SqlError, SqlKind

Value: TypeAlias = int | float | str | dict[str, str] | None
"""A value as JSON has it."""

EXACT_MAX = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER."""
INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)

_WHOLE = re.compile(r"-?[0-9]{1,19}")

json_text = encode_with(JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")))
"""The compact JSON text of a plain value."""


def to_sqlite(value: Any, where: str) -> int | float | str | bytes | None:
    """A parameter as SQLite takes it. `where` names it in an error."""
    if type(value) is str and value.isascii():
        return value
    match value:
        case None | bool():
            return None if value is None else int(value)
        case int():
            if not INTEGER_MIN <= value <= INTEGER_MAX:
                raise _refused(where, "is a whole number beyond 64 bits", "send it as text")
            return value
        case float():
            if not isfinite(value):
                raise _refused(where, "is not a finite number, and SQLite would store NULL or lose it", "send null")
            return value
        case str():
            return _text(value, where)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case {"base64": str(text)} if len(value) == 1:
            try:
                return b64decode(text, validate=True)
            except (Base64Error, ValueError):
                raise _refused(where, "is not base64", 'blobs are {"base64": "3q2+7w=="}') from None
        case {"integer": str(text)} if len(value) == 1 and _WHOLE.fullmatch(text):
            return to_sqlite(int(text), where)
    raise _refused(
        where,
        f"is {json_kind(value)}, which SQLite cannot store",
        'send null, a number, text, {"base64": "..."} or {"integer": "..."}; lists and objects as JSON text',
    )


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(where, "has half of a surrogate pair", "send valid Unicode, or a blob") from None
    return value


def to_json(value: Any, column: str) -> Value:
    """A value of SQLite's as JSON has it. `column` names it in an error."""
    kind = type(value)
    if kind is str or value is None:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return value if -EXACT_MAX <= value <= EXACT_MAX else {"integer": str(value)}
    if kind is float:
        if not isfinite(value):
            raise SqlError(
                SqlKind.TYPE,
                f"column {column[:100]!r} holds an infinity, which JSON cannot express",
                hint="select CAST(... AS TEXT) instead",
            )
        return value  # type: ignore[no-any-return]
    return blob_to_json(value)


def blob_to_json(blob: bytes | bytearray | memoryview) -> dict[str, str]:
    """A blob as JSON has it."""
    return {"base64": b64encode(blob).decode()}


def from_json(value: Any) -> Any:
    """A value of a response as Python has it: blobs as bytes, and whole numbers of any size as ints."""
    match value:
        case {"base64": str(text)}:
            return b64decode(text)
        case {"integer": str(text)}:
            return int(text)
    return value


def _refused(where: str, why: str, hint: str) -> SqlError:
    return SqlError(SqlKind.TYPE, f"parameter {where[:100]} {why}", hint=hint)
