"""
The canonical form, written out in Python: one value, one text.

This is the plain way of `canonical.py` (whose table says which value is written how). It needs no
compiled library, the fast way must agree with it byte for byte, and it alone says where a refused
value stands, because it collects the path while the refusal passes through the levels.
"""

from __future__ import annotations

from enum import Enum
from json.encoder import encode_basestring as _quote
from math import isfinite
from typing import Any

from onceward._core.display_text import python_kind
from onceward._core.errors import RequestInvalid
from onceward._core.plain_values import NoCanonicalForm, to_plain

# Levels of objects and arrays. Nothing written by hand comes near it, a cycle always does, and Python's
# stack (1000 frames) holds it. Not less than orjson's own limit of 254, so that the two ways agree.
DEPTH_MAX = 256
# Python itself refuses to read or write an int of more than 4300 digits.
INT_DIGITS_MAX = 4000
# How much of a path an error shows: enough to find the place, and one line of it.
PATH_STEPS_SHOWN = 12
NAME_CHARACTERS_SHOWN = 40

FLATTEN = "flatten it, break the cycle, or send the deep part as a string"
_INT_END = 10**INT_DIGITS_MAX


def canonical_pure(value: object) -> bytes:
    """The canonical bytes, written without orjson. Every faster way must produce the same bytes."""
    try:
        return write_value(value, DEPTH_MAX).encode("utf-8")
    except NoCanonicalForm as refusal:
        raise RequestInvalid(f"{_path(refusal.path)} {refusal.reason}") from refusal.__cause__
    except RecursionError:
        raise RequestInvalid(f"$ is nested too deeply for Python's stack; {FLATTEN}") from None


def write_value(value: Any, depth: int) -> str:
    """Write one value. One Python frame for each level, so that `DEPTH_MAX` levels fit on the stack."""
    kind = type(value)
    if kind is str:
        return _quote(value) if value.isascii() else _quote(_whole(value))
    if kind is int:
        return _integer(value)
    if kind is float:
        return _number(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind not in _CONTAINERS:
        return write_value(to_plain(value), depth)

    if depth == 0:
        raise NoCanonicalForm(f"is nested more than {DEPTH_MAX} levels deep, or contains itself; {FLATTEN}")
    parts: list[str] = []
    step = ""
    if kind is dict:
        value = _named(value)
        names = _ordered(value)
        try:
            for step in names:
                parts.append(f"{_quote(step)}:{write_value(value[step], depth - 1)}")
        except NoCanonicalForm as refusal:
            refusal.path.append(step)
            raise
        return "{" + ",".join(parts) + "}"
    try:
        for element in value:
            parts.append(write_value(element, depth - 1))  # noqa: PERF401 - a generator is one more frame for each level
    except NoCanonicalForm as refusal:
        refusal.path.append(len(parts) if kind in _SEQUENCES else "*")
        raise
    if kind not in _SEQUENCES:
        parts.sort()  # Code points sort like the UTF-8 bytes that they become.
    return "[" + ",".join(parts) + "]"


_SEQUENCES = frozenset({list, tuple})
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset})


def _named(value: dict[Any, object]) -> dict[str, object]:
    """The same object, its names plain text."""
    if {*map(type, value)} <= {str}:
        return value
    named = {_name(name): member for name, member in value.items()}
    if len(named) != len(value):
        raise NoCanonicalForm("has two members with the same name; rename one of them")
    return named


def _name(name: object) -> str:
    text = to_plain(name) if isinstance(name, str | Enum) else None
    if type(text) is str:
        return text
    raise NoCanonicalForm(f"has a member name that is {python_kind(name)}; names are text: use str(...)")


def _ordered(value: dict[str, object]) -> list[str]:
    if "".join(value).isascii():
        return sorted(value)
    return sorted(value, key=_utf16)


def _utf16(name: str) -> bytes:
    try:
        return name.encode("utf-16-be")
    except UnicodeEncodeError:
        raise NoCanonicalForm(f"has a member name with {_SURROGATE}") from None


def _whole(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise NoCanonicalForm(f"is text with {_SURROGATE}") from None
    return text


_SURROGATE = "half a character (a lone surrogate); decode the text again, or send its bytes"


def _integer(value: int) -> str:
    if -_INT_END < value < _INT_END:
        return int.__repr__(value)
    raise NoCanonicalForm(f"is an int of more than {INT_DIGITS_MAX} digits; pass it as a str or as bytes")


def _number(value: float) -> str:
    if not isfinite(value):
        raise NoCanonicalForm("is not a finite number; leave the member out or pass None")
    text = float.__repr__(value)
    if text.endswith(".0"):
        return "0" if value == 0 else text[:-2]
    return ecmascript_number(text) if "e" in text else text


def ecmascript_number(text: str) -> str:
    """Lay out a number in exponent notation (1.5e-07) as ECMAScript's Number::toString does, digits unchanged."""
    mantissa, _, power = text.partition("e")
    exponent = int(power)
    if not -7 < exponent < 21:
        return f"{mantissa}e{exponent:+d}"
    sign = "-" if text.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if exponent < 0:
        return sign + "0." + "0" * (-exponent - 1) + digits
    # Exponent notation starts at 1e16, and a double has 17 digits at most: no fraction is left.
    return sign + digits.ljust(exponent + 1, "0")


def _path(steps: list[str | int]) -> str:
    """`$.items[3].price`: the steps were collected from the inside out."""
    shown = "".join(_path_step(step) for step in steps[: -PATH_STEPS_SHOWN - 1 : -1])
    return "$" + shown + ("..." if len(steps) > PATH_STEPS_SHOWN else "")


def _path_step(step: str | int) -> str:
    if isinstance(step, int) or step == "*":
        return f"[{step}]"
    if step.isidentifier() and len(step) <= NAME_CHARACTERS_SHOWN:
        return f".{step}"
    return f"[{step[:NAME_CHARACTERS_SHOWN]!a}]"
