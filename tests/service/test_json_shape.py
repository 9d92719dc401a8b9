"""Bodies with more in them than a request can have: refused before they are parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_support import INSERT, Served

from onceward._core.errors import RequestInvalid
from onceward.service.web import json_shape
from onceward.service.web.json_shape import MEMBERS_MAX, VALUES_MAX, check_shape

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\:,[]{}', max_size=6),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(alphabet='b"\\:,', max_size=4), some, max_size=4),
    max_leaves=12,
)


def refuses(body: bytes) -> bool:
    """Whether a body has too much in it."""
    try:
        check_shape(body)
    except RequestInvalid:
        return True
    return False


def counted(value: Any) -> tuple[int, int]:
    """Members, and commas between elements and members, of a value."""
    if isinstance(value, dict):
        inner = [counted(one) for one in value.values()]
        return len(value) + sum(one for one, _ in inner), max(0, len(value) - 1) + sum(one for _, one in inner)
    if isinstance(value, list):
        inner = [counted(one) for one in value]
        return sum(one for one, _ in inner), max(0, len(value) - 1) + sum(one for _, one in inner)
    return 0, 0


def test_as_much_as_a_request_can_have_is_taken_and_no_more() -> None:
    """
    Members of objects, elements of lists, lists in lists; also where nothing but the strings are too many.
    """
    full = {"params": {str(number): number for number in range(MEMBERS_MAX - 1)}}

    assert not refuses(json.dumps(full).encode())
    assert not refuses(json.dumps([[1] * VALUES_MAX, "x"]).encode())
    assert refuses(json.dumps({**full, "one": 1}).encode())
    assert refuses(json.dumps([1] * (VALUES_MAX + 2)).encode())
    assert refuses(b"[" * (VALUES_MAX + 1))
    assert refuses(b'""' * (MEMBERS_MAX + VALUES_MAX + 1))


@pytest.mark.fault("quotes-in-strings-hide-members")
def test_what_is_in_strings_is_text() -> None:
    """
    Colons, commas and brackets in a text are no members, whatever quotes and backslashes are around them; and quotes
    in a text hide no members.
    """
    document = {"sql": "x", "params": ["12:30," * 500_000, 'a":"b' * 100_000, "\\" * 100_001]}
    hidden = {'"': 1, **{f'"{number}': number for number in range(MEMBERS_MAX)}}

    assert not refuses(json.dumps(document).encode())
    assert refuses(json.dumps(hidden).encode())


@pytest.mark.fault("a-piece-ends-inside-of-an-escape")
@given(value=VALUES, members=st.integers(1, 6), values=st.integers(1, 6), piece=st.integers(1, 9))
def test_it_counts_what_a_parser_would_find(value: Any, members: int, values: int, piece: int) -> None:
    """
    For any value, with small limits, wherever a piece ends.
    """
    found = counted(value)
    brackets = [json.dumps(_plain(value)).count(one) for one in "[{"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_shape, "MEMBERS_MAX", members)
        patch.setattr(json_shape, "VALUES_MAX", values)
        patch.setattr(json_shape, "PIECE_BYTES", piece)
        refused = refuses(json.dumps(value).encode())

    too_many = found[0] > members or found[1] > values or max(brackets) > values
    strings = json.dumps(value, ensure_ascii=False).replace("\\\\", "").replace('\\"', "").count('"') // 2
    assert refused is (too_many or strings > members + values)


def _plain(value: Any) -> Any:
    """The value without its texts."""
    if isinstance(value, dict):
        return {str(number): _plain(one) for number, one in enumerate(value.values())}
    return [_plain(one) for one in value] if isinstance(value, list) else 0


@pytest.mark.fault("a-body-of-tiny-members-is-parsed")
def test_a_body_of_tiny_members_is_refused_and_nothing_runs(served: Served) -> None:
    """
    Over a socket: a member twice, two hundred thousand times; a 400 that says what a request can have.
    """
    database = served.database()
    body = b'{"sql":"' + INSERT.encode() + b'",' + b",".join([b'"params":["a","b"]'] * 200_000) + b"}"

    refused = served.call("POST", f"{database}/query", raw=body)

    assert refused.status == 400
    assert "20000 members" in refused.document["detail"]
    assert served.count(database) == 0
