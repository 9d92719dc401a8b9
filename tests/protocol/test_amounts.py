"""Amounts are exact: by their digits, never through a float."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import RequestInvalid
from onceward.keys import parse_json
from onceward.protocol.amounts import BILLION, DELTA_MAX, format_amount, parse_amount


@pytest.mark.requirement("C17")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1", "-1"),
        ("1", "1"),
        ("0.1", "0.1"),
        ("0.30000000000000004", None),
        ("0.000000001", "0.000000001"),
        ("-0.000000001", "-0.000000001"),
        ("0.0000000001", None),
        ("1.50000000000000000000000", "1.5"),
        ("1." + "0" * 5_000, "1"),
        ("1e3", "1000"),
        ("1E-9", "0.000000001"),
        ("1e-10", None),
        ("1000000000", "1000000000"),
        ("-1000000000.000000000", "-1000000000"),
        ("1000000000.000000001", None),
        ("999999999.999999999", "999999999.999999999"),
        ("1e9", "1000000000"),
        ("1e10", None),
        ("1e999999999", None),
        ("-1e999999999", None),
        ("1e-999999999", None),
        ("0", None),
        ("-0.0", None),
        ("0e99", None),
        ('"12.50"', "12.5"),
        ('"-1"', "-1"),
        ('"+1"', "1"),
        ('"1e999999999"', None),
        ('"NaN"', None),
        ('"Infinity"', None),
        ('"1_000"', None),
        ('" 1"', None),
        ('"１"', None),
        ('"0x10"', None),
        ('""', None),
        ('"' + "1" * 65 + '"', None),
        ("true", None),
        ("null", None),
        ("[1]", None),
        ("{}", None),
    ],
)
def test_a_delta_is_taken_by_its_digits_or_refused(text: str, expected: str | None) -> None:
    """
    Signed, not zero, within a thousand million of either sign, at most nine places; nothing is rounded to fit.
    """
    value = parse_json(text, exact=True)
    if expected is None:
        with pytest.raises(RequestInvalid, match=r"delta .* Nothing was booked"):
            parse_amount(value)
        return

    assert format_amount(parse_amount(value)) == expected


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.requirement("C17")
def test_what_is_no_number_is_no_json(text: str) -> None:
    """
    NaN and the infinities are refused as they are read.
    """
    with pytest.raises(RequestInvalid):
        parse_json(f'{{"delta": {text}}}', exact=True)


@pytest.mark.parametrize("value", [0.1, 1.0, float("nan")])
def test_a_float_is_refused_whatever_it_is(value: Any) -> None:
    """
    A float has lost its digits before it came here: even 1.0 is refused, so that nobody gets used to it.
    """
    with pytest.raises(RequestInvalid, match="is a float"):
        parse_amount(value)


@given(st.integers(min_value=-DELTA_MAX * BILLION, max_value=DELTA_MAX * BILLION).filter(bool))
def test_every_amount_comes_back_as_it_went(amount: int) -> None:
    """
    What is answered, sent again, is the same amount: as a text, as a number, and written in another way.
    """
    text = format_amount(amount)

    assert amount == parse_amount(text)
    assert amount == parse_amount(parse_json(text, exact=True))
    assert amount == parse_amount(Decimal(text).normalize())
    assert amount == Decimal(text).scaleb(9)


def test_the_negative_control_a_float_would_be_wrong() -> None:
    """
    The same digits through a float are another amount: what this is all for.
    """
    text = "999999999.999999999"

    assert text == format_amount(parse_amount(parse_json(text, exact=True)))
    assert text != str(parse_json(text))
