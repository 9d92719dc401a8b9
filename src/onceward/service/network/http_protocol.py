"""
uvicorn's HTTP protocol, with limits on a request's head, on how long it may take to arrive, and on what is read early.

uvicorn has none of them: a client that sends one byte a minute, or a head without an end, would hold a connection, and
with many of them all of the service. Of a body, only what came together with its head is read before the application
asks for it. What is not HTTP is refused with a problem document, like everything else.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from onceward._core.errors import OncewardError, UploadTimeout
from onceward.service.access.accounts import Hold
from onceward.service.web.problems import HeadTooLarge, RequestMalformed, error_response
from onceward.service.web.whole_response import PLACE

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol

    from onceward.service.network.connections import ConnectionTable
else:
    Protocol = AutoHTTPProtocol

HEAD_BYTES_MAX = 65_536
"""Of a head that is not complete yet: keys, tokens and proxies' headers are a tenth of that."""
READ_BYTES = 65_536
"""Read from a connection at once. The event loops would read four times as much."""
DRAIN_BYTES_MAX = 8 << 20
"""Of a body that was refused before it was read, which is thrown away so that the client can read why."""
DRAIN_SECONDS = 2.0
"""At shutdown: how long a connection without a request may still bring one."""

_STATUS_LINES = {int(one): f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_buffer = memoryview(bytearray(READ_BYTES))
"""One for all connections: what is in it has been passed on before the event loop reads again."""


class BoundedHttpProtocol(Protocol):
    """One connection."""

    seconds = 60.0
    """How long a request may take to arrive, from its first byte to its last; and a connection to its first."""
    drain_seconds = DRAIN_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.table: ConnectionTable | None = None
        self.hold: Hold | None = None
        self.responses = 0
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0
        self._drained = 0
        self._seen: object = None
        self._is_draining = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: its first request must arrive in time."""
        super().connection_made(transport)
        if hasattr(transport, "set_read_buffer_limits"):  # TLS, which would read half a megabyte ahead.
            transport.set_read_buffer_limits(high=READ_BYTES)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._expect_nothing()
        if self.table is not None:
            self.table.lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request, or of several."""
        if self.table is not None:
            self.table.busy(self)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.cycle is not self._seen:
            self._begin_request()
        if self._is_under_way():
            self._head = 0
            if not self.cycle.more_body:
                self._expect_nothing()
            return
        if self._is_answered_early():
            self._drained += len(data)  # The rest of a body that nobody reads any more. The timer goes on.
            if self._drained > DRAIN_BYTES_MAX:
                self.transport.close()
            return
        self._head += len(data)
        if self._head > HEAD_BYTES_MAX:
            self._refuse(HeadTooLarge())
        self._expect()

    def on_headers_complete(self) -> None:
        """A head is complete. One without a Host, or with two, is none of HTTP/1.1; h11 finds that by itself."""
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):  # type: ignore[attr-defined]
            raise ValueError("there must be one Host")
        super().on_headers_complete()  # type: ignore[misc]
        # The application begins when the event loop comes to it.
        self.scope[PLACE] = partial(send_whole, self.cycle)  # type: ignore[literal-required]

    def on_response_complete(self) -> None:
        """A response was written: the connection waits for the next request, or for what is left of this one."""
        super().on_response_complete()
        self.responses += 1
        self._drained = 0
        if self.table is not None and self.timeout_keep_alive_task is not None and not self._is_answered_early():
            self.table.idle(self)

    def shutdown(self) -> None:
        """The service ends: this connection ends with its response, or soon if no request comes."""
        self._is_draining = True
        if self._is_under_way():
            super().shutdown()
        else:
            self.loop.call_later(self.drain_seconds, self.close_idle)

    def unsent_bytes(self) -> int:
        """Bytes of responses that the client has not taken, or a part of them."""
        transport = self._wire
        if transport is None:
            return 0
        unsent = transport.get_write_buffer_size()
        if unsent or self.scheme != "https":
            return unsent
        # Below TLS there is another buffer that we cannot see, but it is empty unless the kernel's is full.
        return queued_bytes(transport.get_extra_info("socket"))

    @property
    def _wire(self) -> asyncio.Transport | None:
        """The transport; None before there is one."""
        return self.transport

    @property
    def is_closing(self) -> bool:
        """Whether it is to be closed, once the client has everything."""
        return self._wire is not None and self._wire.is_closing()

    def close_idle(self) -> None:
        """Close it, unless a request has come meanwhile."""
        if self._wire is not None and not self._is_under_way():
            self._wire.close()

    def cut_off(self) -> None:
        """Close it at once, whatever is unsent."""
        if self._wire is not None:
            self._wire.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; not while another request is being answered, whose response it would look like."""
        if self._is_under_way() and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return
        self._refuse(RequestMalformed("the request is not valid HTTP/1.1; nothing was run"))

    def _begin_request(self) -> None:
        """The head of a request is complete, and nobody has asked for its body yet: no more of it is read till then."""
        self._seen = self.cycle
        self.cycle.keep_alive = self.cycle.keep_alive and not self._is_draining
        if self._is_under_way() and self.cycle.more_body:
            self.flow.pause_reading()

    def _is_under_way(self) -> bool:
        """Whether the head of a request is complete, and its response is not."""
        return self.cycle is not None and not self.cycle.response_complete

    def _is_answered_early(self) -> bool:
        """Whether a request was answered before its body was read to the end: refused early."""
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._too_slow)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing() or (self._is_under_way() and not self.cycle.more_body):
            return
        if self._is_under_way() or (self._head and not self._is_answered_early()):
            self._refuse(UploadTimeout(f"the request did not arrive within {self.seconds:g} s; nothing was run"))
        else:
            self.transport.close()

    def _refuse(self, error: OncewardError) -> None:
        """Send a refusal without the parser, which may be in no state to, and close the connection."""
        if self._is_under_way():
            self.cycle.disconnected = True  # Whoever reads the body sees that the client has gone.
        self.transport.write(bare_response(error))
        self.transport.close()


class ChunkedReading(asyncio.BufferedProtocol):
    """What the event loop sees of a connection: it reads into our buffer, and so no more at once than that holds."""

    def __init__(self, protocol: BoundedHttpProtocol) -> None:
        self._protocol = protocol
        self.connection_made = protocol.connection_made  # type: ignore[method-assign, assignment]
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So much was read."""
        self._protocol.data_received(bytes(_buffer[:nbytes]))


def send_whole(cycle: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
    """
    Send a complete response as uvicorn's httptools protocol does, in one write; False: nothing was sent.

    That is for uvicorn where the client is slow, or is to be told of the connection's end, or a header has a line
    break in it (which uvicorn refuses); and where this uvicorn is another than the one that we know.
    """
    try:
        if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        fields, method = [*cycle.default_headers, *headers], cycle.scope["method"]
        write, event, ended = cycle.transport.writelines, cycle.message_event, cycle.on_response
        head = _head(status, fields)
    except (AttributeError, KeyError):
        return False
    if method == "HEAD" or head.count(b"\n") != len(fields) + 2 or head.count(b"\r") != len(fields) + 2:
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    write((head, body))
    event.set()
    ended()
    return True


def queued_bytes(sending: socket.socket | None) -> int:
    """Bytes that the kernel has to send on a socket, or that nobody has acknowledged."""
    if sending is None or sending.fileno() < 0:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(sending.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"), sys.byteorder)
    except OSError:
        return 0


def bare_response(error: OncewardError) -> bytes:
    """A refusal as bytes, without a parser or an application; the connection ends with it."""
    response = error_response(error)
    fields = [(b"connection", b"close"), *response.raw_headers]
    return _head(response.status_code, fields) + bytes(response.body)


def _head(status: int, fields: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join([_STATUS_LINES[status], *[b"%s: %s\r\n" % field for field in fields], b"\r\n"])
