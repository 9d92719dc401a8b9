"""
For requests: an adapter that sends the same key on every attempt.

    session = requests.Session()
    session.mount("https://", Adapter(retry=Retry(attempts=3)))
    session.post(url, json=order, headers={"Idempotency-Key": "charge:o-17"})
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import ChunkedEncodingError, ContentDecodingError, ReadTimeout
from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError

from onceward._core.retry_flow import Attempt
from onceward.http.client.request_preparer import (
    OutgoingRequest,
    PolicyFunction,
    RequestPreparer,
    TransportOptions,
    capped_timeouts,
)
from onceward.http.client.request_sender import RequestSender
from onceward.http.client.responses import CODE_BODY_BYTES_MAX, may_hold_code
from onceward.retry.policy import Retry

__all__ = ["Adapter"]

_CHUNK = 65_536


class _BoundKey(str):
    """A key in a header, with the host it is for: requests copies header objects when it follows a redirect."""

    __slots__ = ("given", "origin")

    given: bool
    """Whether the caller set it; otherwise it is made anew for every request."""
    origin: tuple[str, str, int | None]


class Adapter(HTTPAdapter):
    """
    For `session.mount("https://", Adapter(...))`: the same key and the same bytes on every attempt.

    Options as for the transports (`TransportOptions`), and those of requests' own adapter without `max_retries`: the
    policy retries, not urllib3.
    """

    def __init__(
        self,
        retry: Retry | PolicyFunction | None = None,
        *,
        pool_connections: int = 10,
        pool_maxsize: int = 10,
        pool_block: bool = False,
        **options: Unpack[TransportOptions],
    ) -> None:
        self._preparer = RequestPreparer(retry, **options)
        super().__init__(
            pool_connections=pool_connections, pool_maxsize=pool_maxsize, max_retries=0, pool_block=pool_block
        )

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        """Send a request, with retries. Called by the session."""
        sender = _RequestsSender(self, request)
        sender.stream, sender.timeout = stream, timeout
        sender.connection = {"verify": verify, "cert": cert, "proxies": proxies}
        response: requests.Response = sender.send()
        return response

    def send_once(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """One attempt, by requests itself."""
        return super().send(request, **options)

    def __repr__(self) -> str:
        return "<onceward.http.requests.Adapter>"

    def __reduce__(self) -> Any:
        raise TypeError("an Adapter cannot be copied: it holds connections. Make one in each process")


class _RequestsSender(RequestSender):
    stream: bool
    timeout: Any
    connection: dict[str, Any]

    def __init__(self, adapter: Adapter, request: requests.PreparedRequest) -> None:
        preparer = adapter._preparer
        self.adapter, self.body = adapter, _body_bytes(request)
        outgoing = _outgoing_request(request, preparer.header, self.body)
        super().__init__(preparer, preparer.prepare(outgoing), request)
        if self.send_terms.field is None:
            return
        bound = _BoundKey(self.send_terms.field)
        bound.given = preparer.lower in outgoing.headers
        bound.origin = outgoing.first_origin
        request.headers[preparer.header] = bound

    def sent(self, attempt: Attempt) -> requests.Response:
        """Send it once, and read as much of the response as decides what to do next."""
        request = self.request.copy()
        for name in self.preparer.replaced:
            request.headers.pop(name, None)
        request.headers.update(self.begin(attempt.timeout))
        request.body = self.request.body if self.body is None else (self.body or None)
        response = self.adapter.send_once(
            request, stream=self.stream, timeout=_timeouts(self.timeout, attempt.timeout), **self.connection
        )
        self._read_in_attempt(response)
        return response

    def read(self, response: requests.Response) -> None:
        """Nothing to do: with stream=True the caller reads the error response, too; otherwise it has been read."""

    def timeout_error(self) -> Exception:
        """The library's own error for an attempt that took too long."""
        return ReadTimeout("the attempt took longer than its timeout", request=self.request)

    def _read_in_attempt(self, response: requests.Response) -> None:
        """Read as much of the body as decides what to do next. requests keeps it, so that it can be read again."""
        if not self.send_terms.whole:
            length = response.headers.get("content-length", "")
            is_short = length.isdigit() and int(length) <= CODE_BODY_BYTES_MAX
            if not may_hold_code(response.status_code) or (self.stream and not is_short):
                return
        chunks: list[bytes] = []
        try:
            for chunk in _pieces(response):
                chunks.append(chunk)
                if self.is_late():
                    raise self.timeout_error()
        except BaseException:
            response.close()
            raise
        response._content = content = b"".join(chunks)
        response._content_consumed = True
        if may_hold_code(response.status_code):
            self.note_code(response, content)


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """The body as it comes in: requests' own iterator waits for whole chunks, however slowly the bytes arrive."""
    try:
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            yield chunk
    except ProtocolError as error:
        raise ChunkedEncodingError(error, request=response.request) from error
    except DecodeError as error:
        raise ContentDecodingError(error, request=response.request) from error
    except ReadTimeoutError as error:
        raise ReadTimeout(error, request=response.request) from error


def _outgoing_request(request: requests.PreparedRequest, header: str, body: bytes | None) -> OutgoingRequest:
    parts = urlsplit(str(request.url))
    default = {"http": 80, "https": 443}.get(parts.scheme)
    origin = (parts.scheme, parts.hostname or "", None if parts.port == default else parts.port)
    headers = {name.lower(): _text(value) for name, value in request.headers.items()}
    held = request.headers.get(header)
    first = held.origin if isinstance(held, _BoundKey) else origin
    if isinstance(held, _BoundKey) and not held.given:
        del headers[header.lower()]
    return OutgoingRequest(
        request=request,
        method=str(request.method),
        origin=origin,
        url=str(request.url),
        headers=headers,
        options={},
        first_origin=first,
        body=body,
    )


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _body_bytes(request: requests.PreparedRequest) -> bytes | None:
    body: Any = request.body
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode("utf-8")
    return bytes(body) if isinstance(body, bytes | bytearray) else None


def _timeouts(given: Any, seconds: float) -> tuple[float, float]:
    if isinstance(given, tuple) and len(given) == 2:
        connect, read = given
    elif hasattr(given, "connect_timeout"):
        connect, read = given.connect_timeout, given.read_timeout
    else:
        connect = read = given
    found = capped_timeouts({"connect": connect, "read": read}, seconds)
    return found["connect"], found["read"]
