"""
Bytes into lines, with a limit; stdin and stdout of this process, read and written in threads.

Threads, because stdin may be a pipe, a terminal or a file, and only a blocking read serves them all; and because stdout
set to non-blocking is so for whoever shares it. They are daemons: one that hangs in the system ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from queue import SimpleQueue

LINE_MAX = 64 * 1024 * 1024
"""Bytes of a line. A longer one is refused, because what is in it must be known before it may pass."""

_CHUNK = 65_536
_AHEAD = 16
"""Chunks that are read before they are looked at."""


class LineTooLong(Exception):
    """A line is longer than `LINE_MAX`."""


class LineSplitter:
    """Lines out of chunks, each with its end."""

    def __init__(self, limit: int = LINE_MAX) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skips = False

    def feed(self, chunk: bytes) -> Iterator[bytes | LineTooLong]:
        """The lines that are whole now. A line that is too long is told once, and skipped to its end."""
        start = 0
        while (end := chunk.find(b"\n", start) + 1) > 0:
            yield from self._add(chunk[start:end])
            if not self._skips:
                yield b"".join(self._parts)
            self._parts, self._size, self._skips = [], 0, False
            start = end
        yield from self._add(chunk[start:])

    def _add(self, part: bytes) -> Iterator[LineTooLong]:
        if self._skips:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._limit:
            self._parts, self._size, self._skips = [], 0, True
            yield LineTooLong(f"a line has more than {self._limit:,} bytes")

    def rest(self) -> bytes:
        """What came after the last line end."""
        return b"".join(self._parts)


class ClientInput:
    """Lines from a file descriptor: those of the client, from stdin."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.BoundedSemaphore(_AHEAD)

    async def lines(self) -> AsyncIterator[bytes | LineTooLong]:
        """Every line until the other side closes; the last one may lack its end."""
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()
        splitter = LineSplitter()
        while chunk := await self._chunks.get():
            for line in splitter.feed(chunk):
                yield line
            self._room.release()
        if rest := splitter.rest():
            yield rest

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        chunk = b"-"
        with suppress(RuntimeError):  # The loop is closed: nobody reads any more.
            while chunk:
                self._room.acquire()
                try:
                    chunk = os.read(self._descriptor, _CHUNK)
                except OSError:
                    chunk = b""
                loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)


class ClientOutput:
    """Writes to a file descriptor, in order; whoever awaits knows when its bytes were taken."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wanted: SimpleQueue[tuple[bytes, asyncio.Future[bool]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def write(self, data: bytes) -> bool:
        """Write all of it. False if the reader has gone: nothing will reach it any more."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, args=(loop,), daemon=True)
            self._thread.start()
        done: asyncio.Future[bool] = loop.create_future()
        self._wanted.put((data, done))
        return await asyncio.shield(done)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        is_open = True
        with suppress(RuntimeError):
            while True:
                data, done = self._wanted.get()
                is_open = is_open and self._is_written(data)
                loop.call_soon_threadsafe(done.set_result, is_open)

    def _is_written(self, data: bytes) -> bool:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            return False
        return True
