"""
Between the engine and a worker: JSON documents with their length in front, and a page of shared memory.

The responses of a group come together: one list of what is to be known of each, and behind it the JSON texts of their
results, which nobody on the way to the caller reads.

Both sides bound what they read. The page (`ProgressPage`) tells the engine how far a worker has come, without a
message: it outlives a worker that is killed, so that the engine knows whether anything can have been committed.
"""

from __future__ import annotations

import mmap
import socket
import struct
from collections.abc import Callable
from json import loads
from typing import Any, NamedTuple

from onceward._core.errors import StoreUnavailable
from onceward.protocol.sql_values import json_text

HEADER = struct.Struct(">I")
FRAME_MAX = 64 << 20
"""Bytes of one frame: a group of requests at its largest."""
AHEAD_BYTES = 1 << 16
"""Asked for at least: most frames come with one call."""
TOGETHER_BYTES = 1 << 20
"""Of results: from here on, the responses that follow are in another frame."""


def pack(document: Any) -> bytes:
    """A frame with this document."""
    return packed(json_text(document))


def packed(text: str) -> bytes:
    """A frame with this JSON text."""
    data = text.encode()
    if len(data) > FRAME_MAX:
        raise StoreUnavailable(
            f"the request is too large for a worker: {len(data)} bytes, and the limit is {FRAME_MAX}"
        )
    return HEADER.pack(len(data)) + data


def pack_responses(heads: list[dict[str, Any]], texts: list[bytes]) -> list[bytes]:
    """Frames with responses, in order: what is known of each (`bytes`: how long its text is), and its text."""
    frames: list[bytes] = []
    begin = size = 0
    for end, text in enumerate(texts, 1):
        size += len(text)
        if size >= TOGETHER_BYTES or end == len(texts):
            head = json_text(heads[begin:end]).encode()
            body = b"".join((HEADER.pack(len(head)), head, *texts[begin:end]))
            frames.append(HEADER.pack(len(body)) + body)
            begin, size = end, 0
    return frames


def unpack_responses(frame: bytes) -> list[dict[str, Any]]:
    """The responses in a frame, each with its result as `text`; `ValueError` if they are not as long as they say."""
    at = HEADER.size + int.from_bytes(frame[: HEADER.size], "big")
    responses: list[dict[str, Any]] = loads(frame[HEADER.size : at])
    for one in responses:
        end = at + one.get("bytes", 0)
        one["text"] = frame[at:end]
        at = end
    if at != len(frame):
        raise ValueError("a worker's responses are not as long as it says")
    return responses


class FrameBuffer:
    """Cuts what comes from the other side into frames."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._size: int | None = None
        """Of the frame that comes next, if that is known."""

    def feed(self, data: bytes) -> None:
        """What came."""
        self._held += data

    def take(self) -> bytes | None:
        """What is in the next frame, once all of it has come; `EOFError` if that is more than anybody would send."""
        held, size = self._held, self._size
        if size is None:
            if len(held) < HEADER.size:
                return None
            (size,) = HEADER.unpack_from(held)
            if size > FRAME_MAX:
                raise EOFError
            self._size = size
        end = HEADER.size + size
        if len(held) < end:
            return None
        frame, self._size = bytes(held[HEADER.size : end]), None
        del held[:end]
        return frame

    @property
    def missing(self) -> int:
        """Bytes of the next frame that have not come, as far as that is known."""
        return HEADER.size + (self._size or 0) - len(self._held)


def receive_frame(link: socket.socket, frames: FrameBuffer) -> Any:
    """Wait for the next document; `EOFError` if the other side is gone, or sends what nobody would."""
    while (frame := frames.take()) is None:
        more = link.recv(max(AHEAD_BYTES, min(frames.missing, 1 << 20)))
        if not more:
            raise EOFError
        frames.feed(more)
    return loads(frame.decode())


class WorkerProgress(NamedTuple):
    """How far a worker has come."""

    group: int
    committing: bool
    """Whether something of that group may have been committed."""
    steps: int
    """Changes whenever a request or a commit begins."""
    number: int
    """The request that began last; `IN_COMMIT` for a commit, `NOT_BEGUN` while a database is opened."""
    group_cpu: float = 0.0
    """Processor seconds that the worker had used when the group began."""
    cpu: float = 0.0
    """And when this did."""


IN_COMMIT = 0xFFFFFFFF
NOT_BEGUN = 0xFFFFFFFE
_WORD = struct.Struct("<Q")


class ProgressPage:
    """
    A page that a worker writes and the engine reads; a `GroupObserver`.

    Four words, each written as one: the group with what may have been committed of it, what began last, and the
    processor time (in microseconds) at which the group and this began.
    """

    SIZE = mmap.PAGESIZE

    def __init__(self, handle: int, clock: Callable[[], float] = float) -> None:
        self._page = mmap.mmap(handle, self.SIZE)
        self._clock = clock
        self._group = 0
        self._steps = 0

    def begin(self, group: int) -> None:
        """A group begins; nothing of it is committed."""
        self._group = group
        self._write(16, round(self._clock() * 1_000_000))
        self.at(NOT_BEGUN)  # First: whoever sees this group must not see a request of the last one.
        self._write(0, group << 1)

    def at(self, number: int) -> None:
        """A request begins: its number in the group."""
        self._steps = (self._steps + 1) & 0xFFFFFFFF
        self._write(24, round(self._clock() * 1_000_000))
        self._write(8, self._steps << 32 | number)

    def committing(self) -> None:
        """The commit of the group begins."""
        self._write(0, self._group << 1 | 1)
        self.at(IN_COMMIT)

    def group_ended(self) -> None:
        """Nothing to write: the next group begins with its own number."""

    def seen(self) -> WorkerProgress:
        """What the worker wrote last."""
        (first,) = _WORD.unpack_from(self._page, 0)
        (second,) = _WORD.unpack_from(self._page, 8)
        group_cpu, cpu = (_WORD.unpack_from(self._page, offset)[0] / 1_000_000 for offset in (16, 24))
        return WorkerProgress(first >> 1, bool(first & 1), second >> 32, second & 0xFFFFFFFF, group_cpu, cpu)

    def close(self) -> None:
        """Let go of the page."""
        self._page.close()

    def _write(self, offset: int, word: int) -> None:
        _WORD.pack_into(self._page, offset, word)
