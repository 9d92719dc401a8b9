# blocking half: frame_reader.py
"""
Reading a frame: awaited by the engine, which has many workers; by blocking in a worker, which has one engine.
"""

from __future__ import annotations

from json import loads
from typing import Any, Protocol

from onceward.service.sql.worker_channel import FRAME_MAX, HEADER


class AsyncFrameStream(Protocol):
    """What frames are read from."""

    async def readexactly(self, size: int, /) -> bytes:
        """So many bytes; `EOFError` if the other side is gone before."""


async def read_frame_async(stream: AsyncFrameStream) -> Any:
    """The next document; `EOFError` if the other side is gone, or sends what nobody would."""
    return loads(await read_bytes_async(stream))


async def read_bytes_async(stream: AsyncFrameStream) -> bytes:
    """What is in the next frame, as it came."""
    (size,) = HEADER.unpack(await stream.readexactly(HEADER.size))
    if size > FRAME_MAX:
        raise EOFError
    return await stream.readexactly(size)
