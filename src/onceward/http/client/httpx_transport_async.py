# blocking half: httpx_transport.py; aiter=iter, aread=read, handle_async_request=handle_request
"""
`AsyncTransport` for httpx and httpx2, written once over either module.

`onceward.http.httpx` and `onceward.http.httpx2` add their library's base class.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from onceward._core.colour import AWAITS
from onceward._core.retry_flow import Attempt
from onceward.http.client.httpx_base import HttpxTransportBase
from onceward.http.client.request_preparer import capped_timeouts
from onceward.http.client.request_sender_async import AsyncRequestSender
from onceward.http.client.responses import CODE_BODY_BYTES_MAX, may_hold_code


class AsyncPrefetchedBody:
    """A response body whose beginning has been read."""

    def __init__(self, read: list[bytes], left: AsyncIterator[bytes], response: Any) -> None:
        self._read, self._left, self._response = read, left, response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._read:
            yield chunk
        async for chunk in self._left:
            yield chunk

    async def aclose(self) -> None:
        """Close the response below."""
        await self._response.aclose()


class AsyncHttpxSender(AsyncRequestSender):
    """One request through a transport for httpx or httpx2."""

    transport: HttpxTransportBase
    body: bytes | None

    def outgoing(self, attempt: Attempt) -> Any:
        """The request as it is sent on this attempt. The caller's own object is not changed."""
        library, request = self.transport.library, self.request
        ours, replaced = self.begin(attempt.timeout), self.preparer.replaced
        headers = [pair for pair in request.headers.raw if pair[0].lower().decode("latin-1") not in replaced]
        headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in ours.items()]
        timeouts = capped_timeouts(request.extensions.get("timeout"), attempt.timeout)
        return library.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream if self.body is None else library.ByteStream(self.body),
            extensions={**request.extensions, "timeout": timeouts},
        )

    def rebuilt(self, response: Any, stream: Any, beginning: bytes) -> Any:
        """The same response, with a body whose beginning has been read."""
        library = self.transport.library
        options = {"headers": response.headers.raw, "extensions": response.extensions}
        again = library.Response(response.status_code, stream=stream, **options)
        if may_hold_code(again.status_code) and len(beginning) <= CODE_BODY_BYTES_MAX:
            self.note_code(again, self._decoded(again, beginning))
        return again

    def _decoded(self, response: Any, content: bytes) -> bytes:
        if "content-encoding" not in response.headers:
            return content
        library = self.transport.library
        try:
            peek = library.Response(response.status_code, headers=response.headers.raw, content=content)
            return bytes(peek.content)
        except library.DecodingError:
            return b""

    def timeout_error(self) -> Exception:
        """The library's own error for an attempt that took too long."""
        error: Exception = self.transport.library.ReadTimeout(
            "the attempt took longer than its timeout", request=self.request
        )
        return error

    def bytes_to_read(self, response: Any) -> int | None:
        """How much of the body is read within the attempt: all of it (-1), at most so many bytes, or nothing (None)."""
        if self.send_terms.whole:
            return -1
        return CODE_BODY_BYTES_MAX if may_hold_code(response.status_code) else None

    async def sent(self, attempt: Attempt) -> Any:
        """Send it once, and read as much of the response as decides what to do next."""
        return await self._read_in_attempt(await self.transport._wrapped.handle_async_request(self.outgoing(attempt)))

    async def read(self, response: Any) -> None:
        """Read the whole body of a response."""
        response.request = self.request
        await response.aread()

    async def _read_in_attempt(self, response: Any) -> Any:
        limit = self.bytes_to_read(response)
        if limit is None:
            return response
        chunks: list[bytes] = []
        size = 0
        left = aiter(response.stream)
        try:
            async for chunk in left:
                chunks.append(chunk)
                size += len(chunk)
                if 0 <= limit < size:
                    return self.rebuilt(response, self.transport.rest(chunks, left, response), b"".join(chunks))
                if self.is_late():
                    raise self.timeout_error()
        except GeneratorExit:
            raise  # Thrown away, perhaps by the garbage collector: nothing can be awaited any more.
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
        content = b"".join(chunks)
        return self.rebuilt(response, self.transport.library.ByteStream(content), content)


class AsyncHttpxTransport(HttpxTransportBase):
    """`AsyncTransport`, for either library."""

    plain = "AsyncHTTPTransport" if AWAITS else "HTTPTransport"
    stream = "AsyncByteStream" if AWAITS else "SyncByteStream"

    def __init_subclass__(cls) -> None:
        cls.rest = type("Rest", (AsyncPrefetchedBody, getattr(cls.library, cls.stream)), {})

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, with retries. Called by the client."""
        return await self._sender(request, AsyncHttpxSender).send()

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._wrapped.aclose()

    async def __aenter__(self) -> Any:
        await self._wrapped.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._wrapped.__aexit__(kind, error, trace)
