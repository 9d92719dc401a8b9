"""
Exact amounts: decimals with up to nine places, kept as whole billionths.

    on the wire     -1, 0.000000001, "12.50"        a JSON number or a text; read from its digits, never through a float
    in a row        -1000000000, 1, 12500000000     one bigint: the largest delta is 10^18 billionths, and fits
    in a response   "-1", "0.000000001", "12.5"     a text: no reader of JSON can round it

More than nine places are refused and not rounded: a ledger that rounds is wrong by a little, for ever.
"""

from __future__ import annotations

import re
from decimal import Decimal

from onceward._core.display_text import json_kind
from onceward._core.errors import RequestInvalid

PLACES = 9
BILLION: int = 10**PLACES
DELTA_MAX = 10**9
"""Units, of either sign; the bound of the API."""
TEXT_CHARACTERS_MAX = 64
"""A text longer than that is no amount, whatever it says."""

_SPELLED = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_ADVICE = f'send a number or a text such as -1 or "12.50": not zero, between -{DELTA_MAX:,} and {DELTA_MAX:,}, at most'


def parse_amount(value: object) -> int:
    """What was sent as a delta, as whole billionths; `RequestInvalid` for anything that is no amount."""
    if type(value) is int and 0 < abs(value) <= DELTA_MAX:
        return value * BILLION
    number = _decimal(value)
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise _refused("is not a finite number")
    # The exponent is looked at before anything is multiplied out: 1e999999999 would be a gigabyte of digits.
    if not any(digits):
        raise _refused("is zero")
    if number.adjusted() > 9:
        raise _refused("is out of bounds")
    # Zeros at the end say nothing, however many there are: 1.000 is 1.
    telling = "".join(map(str, digits)).rstrip("0")
    shift = exponent + len(digits) - len(telling) + PLACES
    if shift < 0:
        raise _refused(f"has more than {PLACES} decimal places, and amounts are never rounded")
    whole = int(telling) * int(10**shift)
    if whole > DELTA_MAX * BILLION:
        raise _refused("is out of bounds")
    return -whole if sign else whole


def format_amount(amount: int) -> str:
    """Billionths as an exact decimal, without needless zeros: 12500000000 -> 12.5."""
    sign, (units, rest) = "-" if amount < 0 else "", divmod(abs(amount), BILLION)
    if not rest:
        return f"{sign}{units}"
    return f"{sign}{units}.{rest:09}".rstrip("0")


def _decimal(value: object) -> Decimal:
    if type(value) is int or isinstance(value, Decimal):
        return Decimal(value)
    if isinstance(value, str) and len(value) <= TEXT_CHARACTERS_MAX and _SPELLED.fullmatch(value):
        return Decimal(value)
    if isinstance(value, str):
        raise _refused("is not a decimal number")
    # A float has lost digits before it came here; bool is an int to Python, and to nobody else.
    raise _refused("is a float" if isinstance(value, float) else f"is {json_kind(value)}")


def _refused(fault: str) -> RequestInvalid:
    return RequestInvalid(f"delta {fault}; {_ADVICE} {PLACES} decimal places. Nothing was booked")
