"""What a line means, and which lines may hide a call."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from contextlib import suppress
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.agents.mcp_proxy.answers import Kept, replay
from onceward.agents.mcp_proxy.event_stream import EventStream
from onceward.agents.mcp_proxy.lines import LineSplitter, LineTooLong
from onceward.agents.mcp_proxy.messages import Unclear, call_params, may_hold_a_call, read_line, some_id
from onceward.agents.tool_call import ToolCall

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

UNCLEAR = {
    "a member twice": b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
    "different capitals": b'{"jsonrpc":"2.0","id":1,"Method":"tools/call"}',
    "a letter that folds": '{"jsonrpc":"2.0","id":1,"method":"tools/call","param\u017f":{}}'.encode(),
    "a trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"tools/call",}',
    "two values": b'{"id":1,"method":"ping"} {"id":1,"method":"tools/call"}',
    "a carriage return": b'{"a":\r{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge"}}\r}',
    "a batch in a batch": b'[[{"id":1,"method":"tools/call"}]]',
    "a text": b'"tools/call"',
    "not UTF-8": b'{"id":1,"method":"tools/call","x":"\xff"}',
    "UTF-16": '{"id":1,"method":"tools/call"}'.encode("utf-16-le"),
    "a mark of byte order": '\ufeff{"id":1,"method":"tools/call"}'.encode(),
    "escaped, and no JSON": b'{"id":1,"method":"\\u0074ools\\/c\\x61ll",}',
    "half of a pretty one": b'  "method": "tools/call",',
    "too deep": b'{"id":1,"method":"tools/call","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "an integer too long to read": b'{"id":1,"method":"tools/call","x":' + b"9" * 10_000 + b"}",
}


@pytest.mark.fault("a-member-that-is-there-twice-passes")
@pytest.mark.parametrize("why", UNCLEAR)
def test_a_line_that_two_readers_read_differently_may_hold_a_call(why: str) -> None:
    """
    Whatever a lenient server could take for a `tools/call` is unclear here, and known to be able to hold one.
    """
    found: Any = "unclear"
    with suppress(Unclear):
        found = read_line(UNCLEAR[why])

    assert found == "unclear"
    assert may_hold_a_call(UNCLEAR[why])


@pytest.mark.parametrize("line", [b"", b"not JSON", b'{"method":"ping",}', b"{'id': 1}", b'"C:\\\\tools"', b"\xff"])
def test_a_line_that_cannot_hold_a_call_is_known_as_such(line: bytes) -> None:
    """
    Invalid JSON passes to the server, which answers as it likes, unless there may be a call in it.
    """
    with pytest.raises(Unclear):
        read_line(line)

    assert not may_hold_a_call(line)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from([None, 2]))
def test_every_member_is_found_where_it_stands(members: dict[str, Any], indent: int | None) -> None:
    """
    A member's text, read by itself, is its value; and a message is passed on in its own bytes.
    """
    members = {name: value for name, value in members.items() if name.casefold() not in {"id", "params", "method"}}
    text = json.dumps(members | {"id": 1}, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        (message,) = read_line(text + b"\n").messages
    except Unclear:
        return  # Half a character.

    assert message.bytes == text.strip()
    assert {name: json.loads(message.raw(name)) for name in message.members} == members | {"id": 1}


def test_a_batch_is_read_message_by_message() -> None:
    """
    Each message of a batch keeps its own bytes.
    """
    read = read_line(b' [ {"id":1.0,"method":"a"} , {"method":"b" }]\r\n')

    assert [one.bytes for one in read.messages] == [b'{"id":1.0,"method":"a"}', b'{"method":"b" }']
    assert read.messages[0].raw("id") == "1.0"
    assert read.is_batch


@pytest.mark.parametrize(
    "params",
    [
        '{"name":"read","Name":"delete"}',
        '{"name":"read","name":"delete"}',
        '{"name":5}',
        "[]",
        "null",
        '{"ARGUMENTS":1}',
    ],
)
def test_parameters_that_two_readers_read_differently_are_none(params: str) -> None:
    """
    A read-only name must not carry another name past the gate.
    """
    (message,) = read_line(f'{{"id":1,"method":"tools/call","params":{params}}}'.encode()).messages

    assert call_params(message) is None


def test_the_id_of_a_refused_line_is_told_if_it_can_be_seen() -> None:
    """
    The client learns which of its requests was refused.
    """
    assert some_id(b'{"id":"x","method":"a","method":"b"}') == '"x"'
    assert some_id(b'{"id":7,') == "null"
    assert some_id(b'{"id":true}') == "null"
    assert some_id(b"[" * 100_000) == "null"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("{}", '{"_meta":{"dev.onceward/replayed":true}}'),
        ('{"n":1.50}', '{"_meta":{"dev.onceward/replayed":true},"n":1.50}'),
        ('{ "_meta" : { } }', '{ "_meta" : {"dev.onceward/replayed":true } }'),
        ('{"_meta":{"a":1}}', '{"_meta":{"dev.onceward/replayed":true,"a":1}}'),
        ('{"_meta":{"dev.onceward/replayed":true}}', '{"_meta":{"dev.onceward/replayed":true}}'),
    ],
)
def test_a_replay_has_every_byte_of_the_result_and_a_mark(result: str, shown: str) -> None:
    """
    The first answer, as the server wrote it, is told from a new one by its mark alone.
    """
    assert replay("7", Kept(result, ToolCall("r", "t", {}))) == f'{{"jsonrpc":"2.0","id":7,"result":{shown}}}'.encode()


class TestLines:
    """Chunks into lines."""

    @given(st.binary(max_size=60), st.integers(1, 9))
    def test_lines_are_the_bytes_that_came(self, data: bytes, size: int) -> None:
        """
        However the bytes are cut, the lines are the same, and nothing is lost or added.
        """
        splitter = LineSplitter()
        lines = [one for at in range(0, len(data), size) for one in splitter.feed(data[at : at + size])]

        assert b"".join([*lines, splitter.rest()]) == data  # type: ignore[list-item]
        assert all(isinstance(one, bytes) and one.endswith(b"\n") and one.count(b"\n") == 1 for one in lines)

    def test_a_line_that_is_too_long_is_told_once_and_skipped(self) -> None:
        """
        The lines after it are whole again.
        """
        splitter = LineSplitter(limit=5)
        found = [one for part in (b"abc", b"defgh", b"ijk\n", b"ok\n") for one in splitter.feed(part)]

        assert [one if isinstance(one, bytes) else type(one) for one in found] == [LineTooLong, b"ok\n"]


class TestEvents:
    """Chunks into events."""

    STREAM = (
        b': hello\nid: 1\ndata: {"a":\ndata: 1}\n\nretry: 250\r\ndata:x\r\n\r\nevent: message\rdata: y\r\rid\n\ndata: z'
    )

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
    def test_events_are_the_same_however_they_arrive(self, size: int) -> None:
        """
        Every kind of line end, comments, ids and pauses; what has no end is no event yet.
        """
        stream = EventStream()
        parts = [self.STREAM[at : at + size] for at in range(0, len(self.STREAM), size)]
        found = [event for part in parts for event in stream.feed(part)]

        assert [(one.data, one.id) for one in found] == [(b'{"a":\n1}', "1"), (b"x", "1"), (b"y", "1")]
        assert stream.retry_seconds == 0.25


def _fed(stream: Any, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        list(stream.feed(data[at : at + size]))


WORST: dict[str, Callable[[int], Any]] = {
    "members": lambda n: read_line(b"{" + b",".join(b'"m%d":1' % one for one in range(n // 9)) + b"}"),
    "one member often": lambda n: read_line(b"{" + b",".join([b'"x":1'] * (n // 6)) + b"}"),
    "nested": lambda n: read_line(b'{"x":' + b"[" * n + b"]" * n + b"}"),
    "a batch": lambda n: read_line(b"[" + b",".join([b'{"id":1}'] * (n // 9)) + b"]"),
    "blanks": lambda n: read_line(b'{"id"' + b" " * n + b":1}"),
    "a text that does not end": lambda n: read_line(b'{"id":"' + b'\\"' * n),
    "escapes": lambda n: may_hold_a_call(b"\\u0074" * (n // 6)),
    "nearly the word": lambda n: may_hold_a_call(b"tools/cal" * (n // 9)),
    "short chunks of a long line": lambda n: _fed(LineSplitter(), b"x" * n, 10),
    "short chunks of a long event": lambda n: _fed(EventStream(), b"data: x\n" * (n // 8), 8),
    "events without an end": lambda n: _fed(EventStream(), b"x" * n, 10),
    "events that end with half a line end": lambda n: _fed(EventStream(), b"\r" * n, 3),
}


@pytest.mark.parametrize("name", WORST)
def test_no_reader_grows_faster_than_what_it_reads(name: str) -> None:
    """
    Eight times the bytes take at most 24 times as long, in one of a few tries; a quadratic reader takes 64 times.
    """
    found = []
    for _ in range(12):
        found.append(_seconds(name, 8 * 16_000) / max(_seconds(name, 16_000), 1e-9))
        if found[-1] <= 24:
            break

    assert min(found) <= 24


def _seconds(name: str, n: int) -> float:
    gc.collect()
    began = thread_time()
    with suppress(Unclear):
        WORST[name](n)
    return thread_time() - began
