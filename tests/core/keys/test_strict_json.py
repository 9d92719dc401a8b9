"""Reading JSON that can only mean one thing."""

from __future__ import annotations

import pytest

from onceward._core.canonical import DEPTH_MAX, canonical, parse_json
from onceward._core.errors import RequestInvalid


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":[1,2.5,null,true]}', {"a": [1, 2.5, None, True]}),
        (' "\\ud83d\\ude00" ', "\U0001f600"),
        ('"\\\\ud800"', "\\ud800"),
        ('{"a":{"b":1},"b":{"b":2}}', {"a": {"b": 1}, "b": {"b": 2}}),
        ("1E2", 100.0),
        ("18446744073709551617", 2**64 + 1),
    ],
)
def test_plain_json_is_read(text: str, value: object) -> None:
    """
    What means one thing is read as that, from text and from bytes.
    """
    assert value == parse_json(text)
    assert value == parse_json(text.encode())


@pytest.mark.parametrize(
    ("raw", "advice"),
    [
        ('{"a":1,"a":1}', "the member 'a' twice"),
        ('{"x":{"a":1,"b":2,"\\u0061":3}}', "the member 'a' twice"),
        ("NaN", "has NaN"),
        ("[Infinity]", "has Infinity"),
        ("[-Infinity]", "has -Infinity"),
        ("[1e999]", "beyond what a double can hold"),
        ('"\\ud800"', "lone surrogate"),
        ('{"\\uDFFF":1}', "lone surrogate"),
        ('"\ud800"', "not UTF-8"),
        (b'"\xff"', "not UTF-8"),
        (b"\xff\xfe1\x00", "not UTF-8"),
        ("\ufeff1", "not JSON"),
        ("", "not JSON"),
        ("{'a':1}", "line 1, column 2"),
        ("[1] [2]", "not JSON"),
        ("9" * 5000, "integer too long"),
        ("[" * 100_000, "256 levels"),
        ('{"a":' * 300 + "1" + "}" * 300, "256 levels"),
    ],
)
def test_what_two_readers_could_read_differently_is_refused(raw: bytes | str, advice: str) -> None:
    """
    Each refusal says what was found and what to do; nothing is guessed.
    """
    with pytest.raises(RequestInvalid, match=advice):
        parse_json(raw)


def test_nesting_is_counted_outside_strings_only() -> None:
    """
    Brackets in text are text; and exactly as many levels are read as can be written.
    """
    text = "[" * DEPTH_MAX + '"\\"[[[[[["' + "]" * DEPTH_MAX

    assert text.encode() == canonical(parse_json(text))
    with pytest.raises(RequestInvalid, match="256 levels"):
        parse_json(f"[{text}]")


def test_many_shallow_brackets_are_no_depth() -> None:
    """
    A long list of small objects is fine.
    """
    assert len(parse_json("[" + ",".join(["{}"] * 10_000) + "]")) == 10_000  # type: ignore[arg-type]
