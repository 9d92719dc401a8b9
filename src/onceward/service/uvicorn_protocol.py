"""
uvicorn's HTTP protocol, with limits on a request's head and on how long it may take to arrive.

uvicorn has neither: a client that sends one byte a minute, or a head without an end, would hold a connection, and with
many of them all of the service. What is not HTTP is refused with a problem document, like everything else.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from onceward._core.errors import OncewardError, UploadTimeout
from onceward.service.web.problems import HeadTooLarge, RequestMalformed, error_response

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    Protocol = AutoHTTPProtocol

HEAD_BYTES_MAX = 65_536
"""Of a head that is not complete yet: keys, tokens and proxies' headers are a tenth of that."""


class BoundedHttpProtocol(Protocol):
    """One connection."""

    seconds = 60.0
    """How long a request may take to arrive, from its first byte to its last; and a connection to its first."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: its first request must arrive in time."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request, or of several."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._is_under_way():
            self._head = 0
            if not self.cycle.more_body:
                self._expect_nothing()
            return
        if self._is_answered_early():
            return  # The rest of a body that nobody reads any more. The timer goes on.
        self._head += len(data)
        if self._head > HEAD_BYTES_MAX:
            self._refuse(HeadTooLarge())
        self._expect()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; not while another request is being answered, whose response it would look like."""
        if self._is_under_way() and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return
        self._refuse(RequestMalformed("the request is not valid HTTP/1.1; nothing was run"))

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
        response = error_response(error)
        head = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}", "connection: close"]
        head += [f"{name.decode()}: {value.decode()}" for name, value in response.raw_headers]
        self.transport.write("\r\n".join((*head, "", "")).encode("latin-1") + bytes(response.body))
        self.transport.close()
