"""
Plain words for what people read: what kind of value something is, how long something took, and texts made harmless.
"""

from __future__ import annotations

from types import NoneType
from typing import Final

JSON_NAMES: Final[dict[type, str]] = {
    NoneType: "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "an array",
    dict: "an object",
    bytes: "bytes",
}
"""For whoever sent it over a wire: the words of JSON, whatever Python calls it."""


def json_kind(value: object) -> str:
    """What kind of value it is, to whoever sends JSON: null, a number, an array ..."""
    return JSON_NAMES.get(type(value)) or f"a {type(value).__name__}"


def python_kind(value: object) -> str:
    """What kind of value it is, to whoever writes Python: None, or a list, or a Decimal."""
    return "None" if value is None else f"a {type(value).__name__}"


def format_seconds(seconds: float) -> str:
    """How long something takes, rounded: less than 1 ms, 12 ms, 1.2 s, 45 s, 3 min."""
    if seconds < 0.001:
        return "less than 1 ms"
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def escape_invisible(text: str) -> str:
    """One line of text with everything invisible (controls, line ends, marks of direction) as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
