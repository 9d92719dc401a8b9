"""The canonical form against an independent implementation, and its two ways against each other."""

from __future__ import annotations

import json
import math
import random
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward._core.canonical import canonical, canonical_pure
from onceward._core.errors import RequestInvalid

SAFE = 2**53 - 1  # rfc8785 refuses integers beyond it; ours are compared with each other further below.
OBJECTS = 20_000

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SPIKY = st.text(st.sampled_from('ab1.0e-+,:[]{}"\\/ \n\u00e9\u20ac\ue000\uffff\U00010000\U0001f600'), max_size=10)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-999, 999).map(float)
    | TEXT
    | SPIKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | SPIKY, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=300, deadline=None)
def test_agrees_with_an_independent_implementation(value: object) -> None:
    """
    Any JSON value is written as the rfc8785 package writes it, on both ways.
    """
    expected = rfc8785.dumps(value)  # type: ignore[arg-type]

    assert canonical(value) == expected
    assert canonical_pure(value) == expected


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_writing_what_was_read_changes_nothing(value: object) -> None:
    """
    A form read back and written again is the same form.
    """
    form = canonical(value)

    assert form == canonical(json.loads(form))


ANYTHING = st.recursive(
    st.one_of(
        st.integers(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        SPIKY,
        st.text(max_size=4),
        st.binary(max_size=9),
        st.decimals(),
        st.uuids(),
        st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11)), None])),
        st.dates(),
        st.times(),
        st.timedeltas(),
        st.frozensets(SPIKY | st.integers(), max_size=4),
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(SPIKY | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def outcome(form: Any, value: object) -> bytes | str:
    try:
        made: bytes = form(value)
    except RequestInvalid as error:
        return str(error)
    return made


@given(ANYTHING)
@settings(max_examples=400, deadline=None)
def test_both_ways_agree_on_every_type_also_in_what_they_refuse(value: object) -> None:
    """
    With and without orjson: the same bytes, or the same refusal.
    """
    assert outcome(canonical_pure, value) == outcome(canonical, value)


class Odd:
    """Values that trip writers up: floats of every kind and Unicode from every corner."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def number(self) -> float | int:
        chance = self.chance
        match chance.randrange(7):
            case 0:
                (bits,) = struct.unpack("d", chance.randbytes(8))
                return bits if math.isfinite(bits) else 0.5
            case 1:
                return float(chance.randint(-(10**18), 10**18))
            case 2:
                return chance.randint(1, 99) * 10.0 ** chance.randint(-12, 24)
            case 3:
                return chance.choice([0.0, -0.0, 1.0, 100.0, 1e16, 1e21, 1e-6, 1e-7, 5e-324, 12.5, 0.1])
            case 4:
                return round(chance.uniform(-1000, 1000), 2)
            case _:
                return chance.randint(-SAFE, SAFE)

    def text(self) -> str:
        chance = self.chance
        pieces = [
            '"',
            "\\",
            "\n",
            "\x00",
            "1.0,",
            "-0]",
            "e16",
            ":",
            "a",
            "\u00e9",
            "\ufb33",
            "\uffff",
            "\U0001f600",
            "\x7f",
        ]
        return "".join(chance.choice(pieces) for _ in range(chance.randrange(5)))

    def value(self, depth: int) -> object:
        chance = self.chance
        kind = chance.randrange(8 if depth else 5)
        if kind < 2:
            return self.number()
        if kind < 4:
            return self.text()
        if kind == 4:
            return chance.choice([None, True, False])
        if kind == 5:
            return [self.value(depth - 1) for _ in range(chance.randrange(5))]
        return {self.text(): self.value(depth - 1) for _ in range(chance.randrange(5))}


@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_odd_objects_agree(seed: int) -> None:
    """
    Tens of thousands of objects, heavy on floats and odd Unicode, come out the same three times.
    """
    odd = Odd(seed)
    for _ in range(OBJECTS // 2):
        value = {"a": odd.value(3), "b": odd.number()}

        expected = rfc8785.dumps(value)  # type: ignore[arg-type]
        assert canonical(value) == expected, value
        assert canonical_pure(value) == expected, value


def test_many_floats_agree_between_the_two_ways() -> None:
    """
    A hundred thousand floats, most of them random bits: orjson's digits and Python's are the same.
    """
    odd = Odd(3)
    for _ in range(100):
        numbers = [odd.number() for _ in range(1000)]

        assert canonical_pure(numbers) == canonical(numbers)


def test_types_with_rules_of_their_own_agree_between_the_two_ways() -> None:
    """
    The types that orjson would write by itself, or by other rules, come out by ours.
    """
    value = {
        "decimal": Decimal("1.50"),
        "uuid": UUID(int=1),
        "datetime": datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=1))),
        "bytes": b"\xff",
        "float": 2.0,
    }

    assert canonical_pure(value) == canonical(value)
