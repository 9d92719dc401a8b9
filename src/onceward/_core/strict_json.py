"""
JSON that can only mean one thing.

JSON text leaves room for two readers to disagree: which of two equal names counts, what NaN is, what
half a character is. A request that is compared with its retry must not have that room, so `parse_json`
refuses it. The HTTP adapters read bodies with it.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from math import isfinite

from onceward._core.canonical_writer import DEPTH_MAX, FLATTEN, NAME_CHARACTERS_SHOWN, canonical_pure
from onceward._core.errors import RequestInvalid
from onceward._core.plain_values import NoCanonicalForm


def parse_json(raw: bytes | str, *, exact: bool = False) -> object:
    """
    Read JSON text strictly. With `exact`, a number with a fraction or an exponent is a Decimal: every digit is kept.

    Raises `RequestInvalid` for a member that occurs twice, NaN or an infinity (also as a number too large,
    such as 1e999), a lone surrogate, bytes that are not UTF-8, or nesting deeper than `DEPTH_MAX`.
    """
    text = _decoded(raw)
    if text.count("[") + text.count("{") > DEPTH_MAX and _depth(text) > DEPTH_MAX:
        raise RequestInvalid(f"the JSON text is nested more than {DEPTH_MAX} levels deep; {FLATTEN}")
    try:
        value: object = (_read_exactly if exact else _read)(text)
    except NoCanonicalForm as refusal:
        raise RequestInvalid(f"the JSON text {refusal.reason}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestInvalid(f"the text is not JSON ({error.msg}: {where}); send valid JSON") from None
    except ValueError:
        raise RequestInvalid("the JSON text has an integer too long to read; send it as a string") from None
    # The text is whole Unicode, so only an escape can bring half a character in: \\ud800 to \\udfff.
    if "\\ud" in text or "\\uD" in text:
        canonical_pure(value if not exact else _read(text))
    return value


def _decoded(raw: bytes | str) -> str:
    try:
        if isinstance(raw, str):
            raw.encode("utf-8")
            return raw
        return bytes(raw).decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"the JSON text is not UTF-8 ({error.reason}); send it as UTF-8") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NoCanonicalForm(
            f"has the member {_twice(pairs)[:NAME_CHARACTERS_SHOWN]!a} twice in one object; send it once"
        )
    return members


def _twice(pairs: list[tuple[str, object]]) -> str:
    """The first name that is there again. In a set: counting each name among all would take quadratic time."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is there twice")


def _finite_float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise NoCanonicalForm("has a number beyond what a double can hold; send it as a string")
    return value


def _no_constant(text: str) -> object:
    raise NoCanonicalForm(f"has {text}, which is not JSON; leave the member out or send null")


def _finite_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # An exponent that not even a Decimal has.
        raise NoCanonicalForm("has a number beyond what can be held; send it as a string") from None


_read = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite_float, parse_constant=_no_constant).decode
_read_exactly = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite_decimal, parse_constant=_no_constant
).decode


def _depth(text: str) -> int:
    """How deep the brackets outside strings go. Text that is not JSON gives some number, which is enough."""
    pieces = text.replace("\\\\", "").replace('\\"', "").split('"')
    brackets = re.sub(r"[^][{}]+", "", "".join(pieces[::2]))
    return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
