"""
The engine's end of the socket to a worker (`WorkerLink`): something is sent, and what comes back is taken by frames.

Whoever takes a frame does so when it comes, in the same turn of the event loop. So those who wait for a response go on
in the next turn, and what they ask for then is there when the worker's supervisor looks for more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Self

from onceward.service.sql.worker_channel import FrameBuffer


class WorkerLink(asyncio.Protocol):
    """A connection to one worker, on the event loop that made it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._frames = FrameBuffer()
        self._transport: Any = None
        self._take: Callable[[bytes], bool] | None = None
        self._answered: asyncio.Future[None] | None = None
        """Whoever waits for the last frame."""
        self._gone: BaseException | None = None
        self._closed: asyncio.Future[None] = loop.create_future()

    @classmethod
    async def connect(cls, ours: socket.socket) -> Self:
        """A link over a connected socket."""
        _, link = await asyncio.get_running_loop().create_connection(cls, sock=ours)
        return link

    async def ask(self, frame: bytes, take: Callable[[bytes], bool]) -> None:
        """
        Send a frame, and give those that come back to `take`, until it says that this was the last one.

        What `take` raises is raised here, and `EOFError` if the worker is gone, or sends what nobody would.
        """
        if self._gone is not None:
            raise EOFError from self._gone
        self._take, self._answered = take, self._loop.create_future()
        self._transport.write(frame)
        try:
            await self._answered
        finally:
            self._take = self._answered = None

    def fail(self, error: Exception) -> None:
        """Have this raised where an answer is waited for."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)

    async def close(self) -> None:
        """Hang up, and wait until that is done."""
        self._transport.close()
        await self._closed

    # Called by the event loop.

    def connection_made(self, transport: Any) -> None:
        """It is there."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some bytes: frames, or a part of one."""
        try:
            self._frames.feed(data)
            while (frame := self._frames.take()) is not None:
                waits = self._answered
                if self._take is None or waits is None or waits.done():
                    raise EOFError  # Nobody has asked.
                if self._take(frame):
                    waits.set_result(None)
        except Exception as error:
            self._end(error)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker is gone, or we have hung up."""
        self._end(exc or EOFError())
        if not self._closed.done():
            self._closed.set_result(None)

    def _end(self, error: Exception) -> None:
        self._gone = self._gone or error
        self.fail(error)
