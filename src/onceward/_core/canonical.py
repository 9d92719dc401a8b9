"""
One value, one spelling: the bytes that a request is compared by.

`canonical` writes a value as RFC 8785 (JCS) bytes, so that a retry which rebuilt its request in another
order, another process or another language is still seen as the same request. `parse_json` reads JSON as
strictly as that needs. Fingerprints, `derive` and the HTTP adapters use both.

    value                                   form
    --------------------------------------  ------------------------------------------------------------
    None, bool, str, list, dict             RFC 8785: names in UTF-16 code unit order, fewest escapes
    int, float                              RFC 8785: as ECMAScript writes it; 1, 1.0 and 1e0 are `1`, -0.0 is `0`
    int beyond 2**53                        every digit (RFC 8785 would round); more than 4000 digits: refused
    str                                     as it is: Unicode normal forms stay different
    Decimal                                 string of plain digits, no trailing zeros: "12.5"; any zero is "0"
    datetime with a time zone               string in UTC: "2026-01-31T09:30:00Z", six digits of fraction if any
    date; time without a zone               ISO string
    timedelta                               whole microseconds
    UUID                                    string, lower case, 36 characters
    bytes, bytearray, memoryview            string, base64url without padding
    Enum                                    the form of its value
    dataclass, pydantic model, msgspec      object of its fields, by field name
    Mapping                                 object; names are str (or an Enum of str)
    tuple, NamedTuple                       array
    set, frozenset                          array, sorted by the elements' forms
    subclass of a type above                as the type above
    NaN, infinities, lone surrogates        refused
    datetime without a zone, other types    refused
    deeper than 256 levels, cycles          refused

There are two ways to the same bytes. The plain one (`canonical_writer.py`) walks the value in Python. The fast one
(extra `fast`) looks through the value once, lets orjson write it, and mends what orjson spells otherwise with a few
replacements over the bytes. Whenever it is not sure, it hands over to the plain one.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import copysign, isfinite
from typing import Any
from uuid import UUID

from onceward._core.canonical_writer import DEPTH_MAX, canonical_pure, ecmascript_number, write_value
from onceward._core.plain_values import to_plain
from onceward._core.strict_json import parse_json

try:
    import orjson
except ImportError:
    _dumps: Callable[..., bytes] | None = None
    _OPTIONS = 0
    _FOREIGN: tuple[type, ...] = ()
else:
    _dumps = orjson.dumps
    # Subclasses, dataclasses and dates come back to us, because our rules for them differ. UUID and Enum
    # do not, and need not: orjson writes them by the same rule.
    _OPTIONS = (
        orjson.OPT_SORT_KEYS
        | orjson.OPT_PASSTHROUGH_SUBCLASS
        | orjson.OPT_PASSTHROUGH_DATACLASS
        | orjson.OPT_PASSTHROUGH_DATETIME
    )
    # orjson's own: bytes that it copies unread. It has no canonical form.
    _FOREIGN = (orjson.Fragment,) if hasattr(orjson, "Fragment") else ()  # Since 3.9; older ones have none.

__all__ = [
    "DEPTH_MAX",
    "canonical",
    "canonical_bytes",
    "canonical_json",
    "canonical_pure",
    "canonical_texts",
    "parse_json",
]

# Bytes of JSON text that are worth a try: one that is in vain costs a tenth of the strict reading that follows it, but
# orjson lets no other thread run meanwhile (a few milliseconds for so many).
SHORT_TEXT = 1 << 20
# White space of JSON. In a string only the blank can stand as it is.
_BLANKS = b" \t\n\r"

# Types that are written without a float or another value in them.
_LEAVES = frozenset({str, int, bool, type(None)})
_WORDS = frozenset({Decimal, UUID, datetime, date, time, timedelta, bytes, bytearray})
# The exponents that ECMAScript writes out, e-6 to e+20; and any without a sign, as older releases had them.
_EXPONENT = re.compile(rb"e(?:-[1-6]|\+1?[0-9]|\+20|[0-9]+)(?![0-9])")
# What every float has as orjson writes it: a digit, then one of ".eE". Strings may have it, too: then they are looked
# through for nothing. Every digit becomes "0" and those three "e", so that one search finds it: half a pattern's time.
_TO_FLOAT_MARKS = bytes.maketrans(b"123456789.E", b"000000000ee")
_FLOAT_MARK = b"0e"
# More than there can be floats in any request.
_CLOSER = 1 << 60
_TO_COMMAS = bytes.maketrans(b"[:", b",,")
# Base64 as URLs have it.
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def canonical(value: object) -> bytes:
    """
    Write `value` in its one canonical form (RFC 8785, with written rules for Python's own types).

    Equal requests give equal bytes, whatever the order of their members and whether or not orjson is
    installed. Raises `RequestInvalid`, naming the path, when a value has no such form.
    """
    if _dumps is None:
        return canonical_pure(value)
    if type(value) is bytes:
        return canonical_bytes(value)
    try:
        wholes = _survey(value, DEPTH_MAX - 1) if type(value) is dict else _survey((value,), DEPTH_MAX)
        raw = _dumps(value, _converted, _OPTIONS)
    except (TypeError, RecursionError):
        return canonical_pure(value)  # It copes, or says where and why not.
    if not raw.isascii() and _order_may_differ(raw):
        return canonical_pure(value)
    if wholes == 0:
        return raw
    # If the ends of 1.0 occur as often as there are such floats, then no string has one, and all are cut at once.
    if wholes == raw.count(b".0,") + raw.count(b".0]") + raw.count(b".0}"):
        return raw.replace(b".0,", b",").replace(b".0]", b"]").replace(b".0}", b"}")
    return _mended(raw)


def canonical_bytes(value: bytes) -> bytes:
    """The canonical form of bytes: `canonical(value)`."""
    return b'"' + b2a_base64(value, newline=False).translate(_URL_SAFE, b"=") + b'"'


def canonical_texts(texts: list[str | None]) -> bytes:
    """The canonical form of a list of texts and Nones: `canonical(texts)`, without looking for what cannot be there."""
    if _dumps is None:
        return canonical_pure(texts)
    try:
        return _dumps(texts, None, _OPTIONS)
    except TypeError:  # Half a character.
        return canonical_pure(texts)


def canonical_json(text: bytes) -> bytes:
    """
    The canonical form of what JSON text says: `canonical(parse_json(text))`, and most often a good deal faster.

    If orjson writes what it read as the very same bytes, then nothing in them can be read in two ways: a member that
    occurs twice would be gone, an integer that is too long would be a float, and half a character it refuses. White
    space is left out on both sides, in strings, too: that takes no token away and joins no two (a number or a word
    never follows another without a comma or a colon), so equal bytes still mean the same tokens, one for one.
    """
    if _dumps is not None and len(text) <= SHORT_TEXT:
        try:
            value = orjson.loads(text)
            written = _dumps(value)
            if written == text or written.translate(None, _BLANKS) == text.translate(None, _BLANKS):
                # Without a float there is nothing to mend, and nothing to look through.
                sure = text.isascii() and _FLOAT_MARK not in text.translate(_TO_FLOAT_MARKS)
                return _dumps(value, None, _OPTIONS) if sure else canonical(value)
        except (ValueError, TypeError):  # Not JSON, or not as orjson reads it: the strict reader says why.
            pass
    return canonical(parse_json(text))


def _survey(node: Any, depth: int) -> int:
    """
    How many floats orjson would write with .0 at the end; `_CLOSER` or more if there may be others to mend.

    Raises TypeError where orjson must not be asked: it would write NaN as null, and it counts the levels of dicts
    and lists but follows nested tuples until the process dies (seen with 3.13).
    """
    wholes = 0
    for item in node.values() if type(node) is dict else node:
        kind = type(item)
        if kind in _LEAVES:
            continue
        if kind is dict or kind is list or kind is tuple:
            if depth == 0:
                raise TypeError
            wholes += _survey(item, depth - 1)
        elif kind is float:
            if not -1e16 < item < 1e16:
                if not isfinite(item):
                    raise TypeError
                wholes += _CLOSER
            elif item.is_integer():
                wholes += 1 if item or copysign(1, item) > 0 else _CLOSER
            elif -1e-4 < item < 1e-4 and abs(item) >= 1e-6:
                wholes += _CLOSER  # orjson may write an exponent here, and ECMAScript does not yet.
        elif kind not in _WORDS:
            if kind in _FOREIGN:
                raise TypeError
            # An object: `_converted` looks into it when orjson comes to it; but an Enum it opens by itself.
            wholes += _CLOSER
            if issubclass(kind, Enum):
                wholes += _survey((item.value,), depth)
    return wholes


def _converted(value: object) -> object:
    """What orjson calls for a type that it leaves to us. Raising makes it give up."""
    if type(value) is set or type(value) is frozenset:
        simpler: object = sorted(value, key=_element_form)
    else:
        simpler = to_plain(value)
    _survey((simpler,), DEPTH_MAX)
    return simpler


def _element_form(element: object) -> str:
    return write_value(element, DEPTH_MAX - 1)


def _order_may_differ(raw: bytes) -> bool:
    """
    Whether orjson, which sorts by code point, may have departed from the order of UTF-16 code units.

    Only between a character from U+E000 to U+FFFF and one beyond: both kinds show by their first bytes.
    """
    has_late = b"\xee" in raw or b"\xef" in raw
    return has_late and any(lead in raw for lead in (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4"))


def _mended(raw: bytes) -> bytes:
    """Spell the floats in orjson's output the ECMAScript way, and leave its strings alone."""
    # What stands outside strings is every second piece between quotes. Bytes that never occur in UTF-8
    # stand in for the two escapes that would spoil the count.
    escaped = b"\\" in raw
    text = raw.replace(b"\\\\", b"\xff").replace(b'\\"', b"\xfe") if escaped else raw
    pieces = text.split(b'"')
    outside = b'"'.join(pieces[::2])
    numbers = _respelled(outside)
    if numbers == outside:
        return raw
    pieces[::2] = numbers.split(b'"')
    text = b'"'.join(pieces)
    return text.replace(b"\xff", b"\\\\").replace(b"\xfe", b'\\"') if escaped else text


def _respelled(outside: bytes) -> bytes:
    """The same for text that has numbers, literals and punctuation, but no strings."""
    outside = _without_exponents(outside) + b","  # So that a bare number, too, is followed by something.
    outside = outside.replace(b".0,", b",").replace(b".0]", b"]").replace(b".0}", b"}")
    if b"-0" in outside:
        outside = outside.replace(b"-0,", b"0,").replace(b"-0]", b"0]").replace(b"-0}", b"0}")
    return outside[:-1]


def _without_exponents(outside: bytes) -> bytes:
    parts: list[bytes] = []
    done = 0
    commas = b""
    for exponent in _EXPONENT.finditer(outside):
        commas = commas or outside.translate(_TO_COMMAS)
        start = commas.rfind(b",", 0, exponent.start()) + 1
        number = outside[start : exponent.end()].decode("ascii")
        parts += outside[done:start], ecmascript_number(number).encode("ascii")
        done = exponent.end()
    return b"".join(parts) + outside[done:] if parts else outside
