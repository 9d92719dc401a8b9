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

There are two ways to the same bytes. The plain one walks the value in Python. The fast one (extra `fast`)
lets orjson write it and then mends, with a few searches over the bytes, what orjson spells otherwise.
Whenever the fast one is not sure, it hands over to the plain one, which also finds the path for the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from onceward._core.plain import plain
from onceward._core.spelling import DEPTH_MAX, canonical_pure, ecmascript, form
from onceward._core.strict_json import parse_json

try:
    import orjson
except ImportError:
    _dumps: Callable[..., bytes] | None = None
    _OPTIONS = 0
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

_SHAPES = bytes.maketrans(b"123456789[]{}:", b"000000000,,,,,")
_NOISE = bytes({*range(ord("A"), ord("z") + 1)} - {*b"[]elnu"}) + b'+-"'
# The exponents that ECMAScript writes out, e-6 to e+20; and any without a sign, as older releases had them.
_EXPONENT = re.compile(rb"e(?:-[1-6]|\+1?[0-9]|\+20|[0-9]+)(?![0-9])")
_OPENERS = frozenset(b"[{")

__all__ = ["DEPTH_MAX", "canonical", "canonical_pure", "parse_json"]


def canonical(value: object) -> bytes:
    """
    Write `value` in its one canonical form (RFC 8785, with written rules for Python's own types).

    Equal requests give equal bytes, whatever the order of their members and whether or not orjson is
    installed. Raises `RequestInvalid`, naming the path, when a value has no such form.
    """
    if _dumps is None:
        return canonical_pure(value)
    try:
        raw = _dumps(value, _sortable, _OPTIONS)
    except TypeError:
        return canonical_pure(value)  # It copes, or says where and why not.
    if raw[0] not in _OPENERS:
        return canonical_pure(value)  # A bare value is quick either way, and has no commas around it.
    # orjson departs from RFC 8785 in three things, and each leaves a mark on the bytes. Names are sorted by
    # code point, which is another order only between characters from U+E000 on and those beyond U+FFFF.
    if not raw.isascii() and _order_may_differ(raw):
        return canonical_pure(value)
    # NaN becomes null, and floats are spelled 1.0 or 1e16. To see that there is nothing of the kind takes
    # one pass that makes every digit 0 and every bracket a comma, and three searches. A string may look
    # alike: then the closer look below finds nothing to mend.
    shape = raw.translate(_SHAPES, _NOISE)
    if b",null," in shape and not _finite(value):
        return canonical_pure(value)
    if b"0.0" in shape or b",0e0" in shape:
        return _mended(raw)
    return raw


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
    outside = _without_exponents(outside)
    outside = outside.replace(b".0,", b",").replace(b".0]", b"]").replace(b".0}", b"}")
    if b"-0" in outside:
        outside = outside.replace(b"-0,", b"0,").replace(b"-0]", b"0]").replace(b"-0}", b"0}")
    return outside


def _without_exponents(outside: bytes) -> bytes:
    parts: list[bytes] = []
    done = 0
    commas = b""
    for exponent in _EXPONENT.finditer(outside):
        commas = commas or outside.translate(_SHAPES)
        start = commas.rfind(b",", 0, exponent.start()) + 1
        number = outside[start : exponent.end()].decode("ascii")
        parts += outside[done:start], ecmascript(number).encode("ascii")
        done = exponent.end()
    return b"".join(parts) + outside[done:] if parts else outside


def _sortable(value: object) -> object:
    """What orjson calls for a type that it leaves to us."""
    if type(value) is set or type(value) is frozenset:
        return sorted(value, key=_element_form)
    return plain(value)


def _element_form(element: object) -> str:
    return form(element, DEPTH_MAX - 1)


def _order_may_differ(raw: bytes) -> bool:
    """Whether UTF-8 text has both a character from U+E000 to U+FFFF and one beyond (by their first bytes)."""
    has_late = b"\xee" in raw or b"\xef" in raw
    return has_late and any(lead in raw for lead in (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4"))


def _finite(value: object) -> bool:
    """Whether every null came from a None: true only of plain values whose floats are all finite."""
    pending: list[Any] = [value]
    for node in pending:  # Grows as it goes.
        kind = type(node)
        if kind in _LEAVES:
            continue
        if kind is dict:
            pending += node.values()
        elif kind is list or kind is tuple:
            pending += node
        elif kind is not float or not isfinite(node):
            return False
    return True


_LEAVES = frozenset({str, int, bool, type(None)})
