"""
A load of requests over some connections: each sends its next request when it has its answer. No pipelining.

Every answer is looked at: its status, and whether it says that it is a replay. In the measuring process, so that what
it costs is the same for everybody; the server's CPU time does not contain it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple, cast

from bench.work import Work

PATIENCE_SECONDS = 60.0
_HEAD = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    "Idempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n"
)
_LENGTH, _CHUNKED = b"\r\ncontent-length: ", b"\r\ntransfer-encoding: chunked"


class Answer(NamedTuple):
    """What came back."""

    status: int
    replayed: bool
    body: bytes


class LoadFailed(Exception):
    """A connection broke, or no answer came."""


def request_of(work: Work, path: str, key: str) -> bytes:
    """A keyed POST of about 220 bytes of JSON."""
    body = json.dumps(work.request(key), separators=(",", ":"))
    return (_HEAD.format(path=path, key=key, length=len(body)) + body).encode()


class Connections:
    """Connections to one server, kept open."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, number: int) -> None:
        self._loop = loop
        self._all = loop.run_until_complete(self._open(port, number))

    async def _open(self, port: int, number: int) -> list[_Connection]:
        made = []
        for _ in range(number):  # One after the other: a crowd would run into the backlog's limit.
            _, connection = await self._loop.create_connection(_Connection, "127.0.0.1", port)
            made.append(connection)
        return made

    def run(self, next_request: Callable[[], bytes | None], take: Callable[[Answer], None]) -> int:
        """Send what `next_request` gives until it gives None, and hand every answer to `take`; how many there were."""
        return self._loop.run_until_complete(self._run(next_request, take))

    async def _run(self, next_request: Callable[[], bytes | None], take: Callable[[Answer], None]) -> int:
        done = 0

        def taken(answer: Answer) -> bytes | None:
            nonlocal done
            done += 1
            take(answer)
            return next_request()

        waits = [wait for one in self._all if (wait := one.begin(next_request(), taken)) is not None]
        try:
            await asyncio.wait_for(asyncio.gather(*waits), PATIENCE_SECONDS)
        except TimeoutError:
            raise LoadFailed(f"no answer within {PATIENCE_SECONDS:g} seconds") from None
        return done

    def close(self) -> None:
        """Close them all."""
        for connection in self._all:
            connection.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0.05))  # They are closed when the loop has gone around.


class _Connection(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._arrived = b""
        self._taken: Callable[[Answer], bytes | None] | None = None
        self._finished: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass.

    def begin(self, request: bytes | None, taken: Callable[[Answer], bytes | None]) -> asyncio.Future[None] | None:
        """Send the first request; None if there is none."""
        if request is None:
            return None
        self._taken, self._finished = taken, asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._finished

    def data_received(self, data: bytes) -> None:
        self._arrived = data = self._arrived + data if self._arrived else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        head, body = data[:end].lower(), data[end + 4 :]
        _, found, rest = head.partition(_LENGTH)
        if found:
            if len(body) < int(rest.partition(b"\r\n")[0]):
                return
        elif _CHUNKED in head:
            if not body.endswith(b"0\r\n\r\n"):
                return
            body = _joined(body)
        self._arrived = b""
        assert self._taken is not None and self._finished is not None
        following = self._taken(Answer(int(head[9:12]), b"-replayed: true" in head, body))
        if following is None:
            self._finished.set_result(None)
        else:
            self.transport.write(following)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(LoadFailed(f"the server closed a connection: {exc}"))


def _joined(body: bytes) -> bytes:
    """A chunked body as one."""
    pieces = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        pieces.append(rest[: int(size, 16)])
        body = rest[int(size, 16) + 2 :]
    return b"".join(pieces)
