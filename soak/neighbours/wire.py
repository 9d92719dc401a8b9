"""One connection to the service, from an address of its own. Plain sockets: the sender must cost next to nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, NamedTuple

HEAD_BYTES_MAX = 1 << 20


class Answer(NamedTuple):
    """What came back."""

    status: int
    head: bytes
    """As it came, in lower case."""
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Wire:
    """A connection that is opened when it is needed, and kept until either side ends it."""

    def __init__(self, port: int, source: str) -> None:
        self._port = port
        self._source = source
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, token: str = "", body: bytes = b"", key: str = "", length: int | None = None
    ) -> Answer:
        """Send one request, and read the answer; `OSError` or `EOFError` if there is none."""
        try:
            reader, writer = await self.open()
            writer.write(request_head(method, path, token, len(body) if length is None else length, key) + body)
            return await read_answer(reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            self.close()
            raise
        except asyncio.CancelledError:
            self.close()
            raise

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, new if there is none."""
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection(
                "127.0.0.1", self._port, local_addr=(self._source, 0), limit=HEAD_BYTES_MAX
            )
        return self._streams

    def close(self) -> None:
        """Hang up."""
        streams, self._streams = self._streams, None
        if streams is not None:
            with suppress(OSError):
                streams[1].transport.abort()


def request_head(method: str, path: str, token: str = "", length: int = 0, key: str = "") -> bytes:
    """The head of a request with a body of so many bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines.append(f"Content-Length: {length}")
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if key:
        lines.append(f"Idempotency-Key: {key}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """The next answer on a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    length = 0
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return Answer(status, head, await reader.readexactly(length))
