"""
Values between JSON and PostgreSQL, without loss in either direction.

    PostgreSQL                          JSON
    ----------------------------------  -----------------------------------------------------------
    NULL, boolean, text                 null, true and false, string
    smallint, integer, bigint           number; beyond 2**53 - 1: {"integer": "9223372036854775807"}
    real, double precision              number; infinities and NaN as PostgreSQL writes them, a string
    json, jsonb                         {"json": ...}
    bytea                               {"base64": "3q2+7w=="}
    numeric, dates and times, uuid,     string, as PostgreSQL writes it and takes it back: no digit of a numeric is
    arrays, ranges, enums ...           lost, times are ISO 8601 in UTC

A parameter takes the same forms, and besides {"array": [...]} for an array. PostgreSQL finds out by itself which type a
parameter is of, as it does for a literal.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

from onceward._core.display_text import json_kind
from onceward.protocol.errors import SqlError, SqlKind
from onceward.protocol.sql_values import EXACT_MAX, blob_to_json, json_text

ARRAYS_DEEP: Final = 6
"""Dimensions of an array, as many as PostgreSQL has."""
_WHOLE = re.compile(r"-?[0-9]{1,1000}")


def to_postgres(value: Any, where: int | str) -> bytes | None:
    """A parameter as text of PostgreSQL's. `where` names it in an error."""
    if type(value) is str:  # Most are.
        return _text(value, where)
    match value:
        case None:
            return None
        case bool():
            return b"true" if value else b"false"
        case int():
            return str(value).encode()
        case float():
            if not isfinite(value):
                raise _refused(where, "is not a finite number", 'send it as text: "NaN", "Infinity"')
            return repr(value).encode()
        case str():
            return _text(value, where)
        case {"base64": str(text)} if len(value) == 1:
            try:
                return b"\\x" + b64decode(text, validate=True).hex().encode()
            except (Base64Error, ValueError):
                raise _refused(where, "is not base64", 'blobs are {"base64": "3q2+7w=="}') from None
        case {"integer": str(text)} if len(value) == 1 and _WHOLE.fullmatch(text):
            return text.encode()
        case {"json": inner} if len(value) == 1:
            return _text(json_text(inner), where)
        case {"array": list(items)} if len(value) == 1:
            return _array(items, where, ARRAYS_DEEP)
    raise _refused(
        where,
        f"is {json_kind(value)}, and PostgreSQL has to be told what it is",
        'send {"json": ...} for json and jsonb, {"array": [...]} for an array, {"base64": "..."} for bytea',
    )


def _array(items: list[Any], where: int | str, levels: int) -> bytes:
    if not levels:
        raise _refused(where, f"is an array of more than {ARRAYS_DEEP} dimensions", "send it as jsonb")
    parts = []
    for item in items:
        if isinstance(item, list):
            parts.append(_array(item, where, levels - 1))
            continue
        text = to_postgres(item, where)
        parts.append(b"NULL" if text is None else b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"')
    return b"{" + b",".join(parts) + b"}"


def _text(value: str, where: int | str) -> bytes:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise _refused(where, "has half of a surrogate pair", "send valid Unicode, or a blob") from None
    if b"\0" in encoded:
        raise _refused(where, "has a NUL character in it, which PostgreSQL's texts cannot hold", "send a blob")
    return encoded


def _refused(where: int | str, why: str, hint: str) -> SqlError:
    return SqlError(SqlKind.TYPE, f"parameter {str(where)[:100]} {why}", hint=hint)


def _whole(text: str) -> Any:
    number = int(text)
    return number if -EXACT_MAX <= number <= EXACT_MAX else {"integer": text}


def _real(text: str) -> Any:
    number = float(text)
    return number if isfinite(number) else text


_READERS: Final[dict[int, Callable[[str], Any]]] = {
    **dict.fromkeys((20, 21, 23, 26), _whole),  # bigint, smallint, integer, oid
    **dict.fromkeys((700, 701), _real),
    **dict.fromkeys((114, 3802), lambda text: {"json": json.loads(text)}),  # json, jsonb
    16: lambda text: text == "t",  # boolean
    17: lambda text: blob_to_json(bytes.fromhex(text[2:])),  # bytea, written as \x...
}
"""By the type's number in pg_type; the others are texts."""


def from_postgres(raw: bytes | None, kind: int) -> Any:
    """A value of PostgreSQL's, in its text form, as JSON has it."""
    if raw is None:
        return None
    reader = _READERS.get(kind)
    text = raw.decode("utf-8", "replace")
    if reader is None:
        return text
    try:
        return reader(text)
    except (ValueError, RecursionError):  # A json that only PostgreSQL takes for one: numbers beyond a float, depth.
        return text
