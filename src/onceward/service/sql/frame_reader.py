# Made from frame_reader_async.py by `make halves`: change that file, not this one.
"""
Reading a frame: awaited by the engine, which has many workers; by blocking in a worker, which has one engine.
"""

from __future__ import annotations

from json import loads
from typing import Any, Protocol

from onceward.service.sql.worker_channel import FRAME_MAX, HEADER


class FrameStream(Protocol):
    """What frames are read from."""

    def readexactly(self, size: int, /) -> bytes:
        """So many bytes; `EOFError` if the other side is gone before."""


def read_frame(stream: FrameStream) -> Any:
    """The next document; `EOFError` if the other side is gone, or sends what nobody would."""
    return loads(read_bytes(stream))


def read_bytes(stream: FrameStream) -> bytes:
    """What is in the next frame, as it came."""
    (size,) = HEADER.unpack(stream.readexactly(HEADER.size))
    if size > FRAME_MAX:
        raise EOFError
    return stream.readexactly(size)
