"""
Server-sent events, as streamable HTTP has them: each is one JSON-RPC message, and its id is where to go on from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from onceward.agents.mcp_proxy.lines import LINE_MAX, LineTooLong

_ENDS = re.compile(rb"\r\n|\n|\r")
_DIGITS_MAX = 9


class StreamEvent(NamedTuple):
    """One event."""

    data: bytes
    id: str | None
    """The id of the last event that had one."""


class EventStream:
    """Events out of chunks."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self.last_id: str | None = None
        self.retry_seconds: float | None = None
        """How long the server wants to be left alone before somebody comes again."""

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """The events that are whole now. Raises `LineTooLong` for one that is too long."""
        self._rest_size += len(chunk)
        if self._rest_size + self._data_size > LINE_MAX:
            raise LineTooLong(f"an event has more than {LINE_MAX:,} bytes")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest.append(chunk)
            return
        text = b"".join((*self._rest, chunk))
        held = text[-1:] == b"\r"  # The other half of this line end may be in the next chunk.
        *lines, rest = _ENDS.split(text[:-1] if held else text)
        self._rest = [rest + b"\r" if held else rest]
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                yield StreamEvent(b"\n".join(self._data), self.last_id)
                self._data, self._data_size = [], 0
        self._rest_size = len(self._rest[0])

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value)
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode(errors="replace") or None
        elif name == b"retry" and value.isdigit() and len(value) <= _DIGITS_MAX:
            self.retry_seconds = int(value) / 1000
