"""Structured fields (RFC 9651): byte sequences, dates and display strings."""

from __future__ import annotations

from typing import Any

import pytest

from onceward._core.retry_headers import retry_hints
from onceward._core.structured_fields import Date, DisplayString, Malformed, parse_list


def read(text: str) -> Any:
    """The values of a list, or that it is none."""
    try:
        return [item.value for item in parse_list(text)]
    except Malformed:
        return Malformed


@pytest.mark.parametrize(
    ("text", "value"),
    [("::", b""), (":aGVsbG8=:", b"hello"), (":aGVsbG8:", b"hello"), (":YQ==:", b"a"), (":YQ:", b"a"),
     (":iZ==:", b"\x89"),     (":/+Ah:", b"\xff\xe0!")],
)  # fmt: skip
def test_a_byte_sequence_is_decoded(text: str, value: bytes) -> None:
    """
    Without its padding, too, and with bits behind its end: the RFC asks readers not to mind.
    """
    assert [value] == read(text)


@pytest.mark.fault("misplaced-padding-is-read")
@pytest.mark.parametrize(
    "text",
    [":=:", ":=aGVsbG8:", ":a=GVsbG8:", ":aGVs=bG8=:", ":YQ=:", ":YQ===:", ":aGVsbG8==:", ":a:", ":aGVsb:",
     ":aGVs-_8=:", ":aGVsbG8= :", ":aGVsbG8="],
)  # fmt: skip
def test_what_is_no_base64_spoils_the_field(text: str) -> None:
    """
    A sign of padding in the middle, too many or too few of them, another alphabet.
    """
    assert Malformed is read(text)


@pytest.mark.fault("a-date-spoils-the-field")
@pytest.mark.parametrize(
    ("text", "seconds"), [("@1659578233", 1_659_578_233), ("@0", 0), ("@-62135596800", -62_135_596_800)]
)
def test_a_date_is_read_and_is_no_number(text: str, seconds: int) -> None:
    """
    An instant must not be taken for a count of seconds to wait.
    """
    assert [Date(seconds)] == read(text)
    assert not isinstance(Date(seconds), int)


@pytest.mark.fault("a-display-string-spoils-the-field")
@pytest.mark.parametrize(
    ("text", "shown"),
    [('%""', ""), ('%"f%c3%bcr"', "für"), ('%"50%25 off, & more"', "50% off, & more"), ('%"%e6%97%a5"', "日"),
     ('%"a%22b"', 'a"b')],
)  # fmt: skip
def test_a_display_string_is_read_and_is_no_string(text: str, shown: str) -> None:
    """
    Text for people must not be taken for a key.
    """
    assert [DisplayString(shown)] == read(text)
    assert not isinstance(DisplayString(shown), str)


@pytest.mark.parametrize(
    "text",
    ["@", "@1.5", "@x", "@ 1", "@1234567890123456", "%", '%"', '%"a', '%"ä"', '%"%C3%BC"', '%"%c3"', '%"%zz"', '%"%c"',
     "%a", '%"a\\"b"'],
)  # fmt: skip
def test_half_a_date_or_display_string_spoils_the_field(text: str) -> None:
    """
    Upper-case escapes, text that is not UTF-8, a fraction of a second: refused, as everything that is half right.
    """
    assert Malformed is read(text)


@pytest.mark.fault("a-date-spoils-the-field")
def test_a_limit_with_a_date_beside_it_is_still_obeyed() -> None:
    """
    Whoever adds a parameter of a newer kind to a header does not switch the header off.
    """
    assert retry_hints({"RateLimit": '"default";r=0;t=30;since=@1659578233'}, limited=True).wait == 30
