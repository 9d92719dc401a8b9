"""JSON text by an encoder that is made once is the text that the encoder writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward._core.json_text import encode_with

PLAIN = json.JSONEncoder(check_circular=False)
COMPACT = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_the_text_is_the_encoders_own(value: Any) -> None:
    """
    Of any value, top or nested, and again of the next one: nothing is remembered in between.
    """
    for made in (PLAIN, COMPACT):
        encode = encode_with(made)

        assert [encode(value), encode(value)] == [made.encode(value)] * 2


def test_what_the_encoder_refuses_is_refused() -> None:
    """
    No infinity, and nothing that is not JSON; and the next text is written all the same.
    """
    encode = encode_with(COMPACT)
    for value in (float("inf"), {"a": object()}, [{1, 2}]):
        with pytest.raises((TypeError, ValueError)):
            encode(value)

    assert encode({"a": [1, "\u00e9"]}) == '{"a":[1,"\u00e9"]}'


def test_an_encoder_that_looks_for_circles_is_used_as_it_is() -> None:
    """
    It has to remember where it has been, for each text anew.
    """
    made = json.JSONEncoder()
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(ValueError, match="Circular"):
        encode_with(made)(circle)
    assert encode_with(made)([1]) == "[1]"
