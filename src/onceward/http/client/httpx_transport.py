# Made from httpx_transport_async.py by `make halves`: change that file, not this one.
"""
`Transport` for httpx and httpx2, written once over either module.

`onceward.http.httpx` and `onceward.http.httpx2` add their library's base class.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from onceward._core.retry_flow import Attempt
from onceward.http.client.httpx_base import HttpxTransportBase
from onceward.http.client.request_preparer import capped_timeouts
from onceward.http.client.request_sender import RequestSender
from onceward.http.client.responses import CODE_BODY_BYTES_MAX, may_hold_code


class PrefetchedBody:
    """A response body whose beginning has been read."""

    def __init__(self, read: list[bytes], left: Iterator[bytes], response: Any) -> None:
        self._read, self._left, self._response = read, left, response

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._read:
            yield chunk
        for chunk in self._left:
            yield chunk

    def close(self) -> None:
        """Close the response below."""
        self._response.close()


class HttpxSender(RequestSender):
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

    def sent(self, attempt: Attempt) -> Any:
        """Send it once, and read as much of the response as decides what to do next."""
        return self._read_in_attempt(self.transport._wrapped.handle_request(self.outgoing(attempt)))

    def read(self, response: Any) -> None:
        """Read the whole body of a response."""
        response.request = self.request
        response.read()

    def _read_in_attempt(self, response: Any) -> Any:
        limit = self.bytes_to_read(response)
        if limit is None:
            return response
        chunks: list[bytes] = []
        size = 0
        left = iter(response.stream)
        try:
            for chunk in left:
                chunks.append(chunk)
                size += len(chunk)
                if 0 <= limit < size:
                    return self.rebuilt(response, self.transport.rest(chunks, left, response), b"".join(chunks))
                if self.is_late():
                    raise self.timeout_error()
        except GeneratorExit:
            raise  # Thrown away, perhaps by the garbage collector: nothing can be awaited any more.
        except BaseException:
            response.close()
            raise
        response.close()
        content = b"".join(chunks)
        return self.rebuilt(response, self.transport.library.ByteStream(content), content)


class HttpxTransport(HttpxTransportBase):
    """`Transport`, for either library."""

    plain = "HTTPTransport"
    stream = "SyncByteStream"

    def __init_subclass__(cls) -> None:
        cls.rest = type("Rest", (PrefetchedBody, getattr(cls.library, cls.stream)), {})

    def handle_request(self, request: Any) -> Any:
        """Send a request, with retries. Called by the client."""
        return self._sender(request, HttpxSender).send()

    def close(self) -> None:
        """Close the transport below."""
        self._wrapped.close()

    def __enter__(self) -> Any:
        self._wrapped.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._wrapped.__exit__(kind, error, trace)
