"""
Transports for httpx and for httpx2, whose class trees have nothing in common: written once, over either module.

`onceward.http.httpx` and `onceward.http.httpx2` put their library's base class under these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, ClassVar, TypedDict, Unpack

from onceward._core.attempts import Attempt
from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.stops import marked
from onceward.http.answers import HEARD_BYTES_MAX, is_worth_hearing
from onceward.http.carrying import (
    CAPTURED_BYTES_MAX,
    Carriage,
    Carrier,
    ClientOptions,
    PolicyOf,
    Seen,
    clipped,
    first_origin,
    joined,
    said_in,
)
from onceward.http.credentials import API_KEY_VARIABLE, api_key_from, check_credential
from onceward.http.exchange import Exchange
from onceward.retry.policy import TIMEOUT, Retry, stop_of

MAX_RETRIES = 2
"""Of a client that is made ready to use: three attempts in all."""


class Family:
    """What the transports of both colours have in common."""

    library: ClassVar[Any]
    """The module: httpx or httpx2."""
    plain: ClassVar[str]
    """What the library's own transport is called."""
    stream: ClassVar[str]
    """What its response bodies are called."""
    rest: ClassVar[type]
    """The body of a long refusal: its beginning has been read."""

    def __init__(self, retry: Retry | PolicyOf | None = None, *, wrap: Any = None, **options: Unpack[Carriage]) -> None:
        if isinstance(wrap, Family):
            raise ConfigurationError("this transport is wrapped in another of its kind already: one carries the key")
        self._carrier = Carrier(retry, **options)
        self._wrapped = getattr(self.library, self.plain)() if wrap is None else wrap

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} over {type(self._wrapped).__name__}>"

    def _exchange(self, request: Any, kind: Any) -> Any:
        url, extensions = request.url, request.extensions
        origin = (url.scheme, url.raw_host.decode("ascii"), url.port)
        seen = Seen(
            request=request,
            method=request.method,
            origin=origin,
            url=str(url),
            headers=joined(request.headers.raw),
            said=said_in(extensions),
            first_origin=first_origin(extensions, origin),
            body=self._captured(request),
        )
        exchange = kind(self._carrier, self._carrier.load(seen), request)
        exchange.transport, exchange.body = self, seen.body
        return exchange

    def _captured(self, request: Any) -> bytes | None:
        """
        The body's bytes, if they can be had before the first attempt: only these are surely the same on every attempt.

        An iterator is used up by being sent, and a file goes on where it was left.
        """
        try:
            return bytes(request.content)
        except self.library.RequestNotRead:
            length = request.headers.get("content-length", "")
            if type(request.stream).__name__ != "MultipartStream" or not length.isdigit():
                return None
            return b"".join(request.stream) if int(length) <= CAPTURED_BYTES_MAX else None


class HttpxExchange(Exchange):
    """One request through a transport of this family."""

    transport: Family
    body: bytes | None

    def outgoing(self, attempt: Attempt) -> Any:
        """The request as it goes out on this attempt. The caller's own object is left as it is."""
        library, request = self.transport.library, self.request
        ours, replaced = self.begin(attempt.timeout), self.carrier.replaced
        headers = [pair for pair in request.headers.raw if pair[0].lower().decode("latin-1") not in replaced]
        headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in ours.items()]
        timeouts = clipped(request.extensions.get("timeout"), attempt.timeout)
        return library.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream if self.body is None else library.ByteStream(self.body),
            extensions={**request.extensions, "timeout": timeouts},
        )

    def rebuilt(self, response: Any, stream: Any, beginning: bytes) -> Any:
        """The same answer, with a body of which the beginning has been read."""
        library = self.transport.library
        options = {"headers": response.headers.raw, "extensions": response.extensions}
        again = library.Response(response.status_code, stream=stream, **options)
        if is_worth_hearing(again.status_code) and len(beginning) <= HEARD_BYTES_MAX:
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

    def too_late(self) -> Exception:
        """The library's own word for an attempt that took too long."""
        error: Exception = self.transport.library.ReadTimeout(
            "the attempt took longer than it may", request=self.request
        )
        return error

    def timed_out(self, error: TimeoutError) -> Exception:
        """The same, for an attempt that was interrupted from outside; with the stop that the policy left."""
        late, stop = self.too_late(), stop_of(error)
        late.__cause__ = error
        return late if stop is None else marked(late, stop)

    def wants(self, response: Any) -> int | None:
        """How much of the body is read within the attempt: all (-1), so many bytes at most, or None: none of it."""
        if self.cargo.whole:
            return -1
        return HEARD_BYTES_MAX if is_worth_hearing(response.status_code) else None


class BlockingRest:
    """The body of an answer whose beginning has been read."""

    def __init__(self, read: list[bytes], left: Iterator[bytes], response: Any) -> None:
        self._read, self._left, self._response = read, left, response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._read
        yield from self._left

    def close(self) -> None:
        """Close the connection's side of it."""
        self._response.close()


class AwaitingRest:
    """Same as `BlockingRest`, but awaits."""

    def __init__(self, read: list[bytes], left: AsyncIterator[bytes], response: Any) -> None:
        self._read, self._left, self._response = read, left, response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._read:
            yield chunk
        async for chunk in self._left:
            yield chunk

    async def aclose(self) -> None:
        """Close the connection's side of it."""
        await self._response.aclose()


class BlockingExchange(HttpxExchange):
    """One request, by blocking."""

    def drop(self) -> None:
        """Give the connection of an answer back that nobody will read."""
        if self.last is not None and not isinstance(self.last, Exception):
            self.last.close()

    def attempt(self, attempt: Attempt) -> Any:
        """Send it once."""
        self.drop()
        try:
            response = self.transport._wrapped.handle_request(self.outgoing(attempt))
            self.last = self._heard(response)
        except Exception as error:
            self.last = error
            raise
        return self.last

    def _heard(self, response: Any) -> Any:
        limit = self.wants(response)
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
                    raise self.too_late()
        except BaseException:
            response.close()
            raise
        response.close()
        content = b"".join(chunks)
        return self.rebuilt(response, self.transport.library.ByteStream(content), content)


class AwaitingExchange(HttpxExchange):
    """Same, but awaits."""

    async def drop(self) -> None:
        """Give the connection of an answer back that nobody will read."""
        if self.last is not None and not isinstance(self.last, Exception):
            await self.last.aclose()

    async def attempt(self, attempt: Attempt) -> Any:
        """Send it once."""
        await self.drop()
        try:
            response = await self.transport._wrapped.handle_async_request(self.outgoing(attempt))
            self.last = await self._heard(response)
        except Exception as error:
            self.last = error
            raise
        except asyncio.CancelledError:
            self.last = self.too_late()  # By the attempt's own timer; if not, nobody will ask.
            raise
        return self.last

    async def _heard(self, response: Any) -> Any:
        limit = self.wants(response)
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
                    raise self.too_late()
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
        content = b"".join(chunks)
        return self.rebuilt(response, self.transport.library.ByteStream(content), content)


class BlockingTransport(Family):
    """`Transport`, for either library."""

    plain = "HTTPTransport"
    stream = "SyncByteStream"

    def __init_subclass__(cls) -> None:
        cls.rest = type("Rest", (BlockingRest, getattr(cls.library, cls.stream)), {})

    def handle_request(self, request: Any) -> Any:
        """Send a request, again if need be. Called by the client."""
        exchange = self._exchange(request, BlockingExchange)
        try:
            response = exchange.cargo.policy.call(exchange.attempt)
        except OncewardError as error:
            given_up = error
        except (KeyboardInterrupt, SystemExit):
            exchange.drop()
            raise
        else:
            return self._delivered(exchange, response)
        return self._delivered(exchange, exchange.surface(given_up))

    @staticmethod
    def _delivered(exchange: BlockingExchange, response: Any) -> Any:
        error = exchange.refusal(response)
        if error is None:
            return response
        response.request = exchange.request
        response.read()
        raise error

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


class AwaitingTransport(Family):
    """`AsyncTransport`, for either library."""

    plain = "AsyncHTTPTransport"
    stream = "AsyncByteStream"

    def __init_subclass__(cls) -> None:
        cls.rest = type("Rest", (AwaitingRest, getattr(cls.library, cls.stream)), {})

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, again if need be. Called by the client."""
        exchange = self._exchange(request, AwaitingExchange)
        try:
            response = await exchange.cargo.policy.acall(exchange.attempt)
        except OncewardError as error:
            given_up: Exception = error
        except TimeoutError as error:
            given_up = exchange.timed_out(error)
        except asyncio.CancelledError:
            await exchange.drop()
            raise
        else:
            return await self._delivered(exchange, response)
        if isinstance(given_up, OncewardError):
            return await self._delivered(exchange, exchange.surface(given_up))
        raise given_up

    @staticmethod
    async def _delivered(exchange: AwaitingExchange, response: Any) -> Any:
        error = exchange.refusal(response)
        if error is None:
            return response
        response.request = exchange.request
        await response.aread()
        raise error

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


class SdkOptions(TypedDict):
    """What SDKs that are made of httpx2 or httpx take: a client of ours, and no retries of their own."""

    http_client: Any
    max_retries: int


def client_options(transport: type[Family], environment: str, options: ClientOptions) -> dict[str, Any]:
    """The arguments of a client: credential checked, transport ready, timeout per attempt."""
    manners: dict[str, Any] = {"raise_rate_limit": True, **options}
    variable = manners.pop("api_key_variable", API_KEY_VARIABLE)
    credential = manners.pop("api_key", None) or api_key_from(variable)
    retries, timeout = manners.pop("max_retries", MAX_RETRIES), manners.pop("timeout", TIMEOUT)
    return {
        "headers": {"Authorization": f"Bearer {check_credential(credential, environment)}"},
        "base_url": manners.pop("base_url", ""),
        "timeout": timeout,
        "transport": transport(Retry(max_retries=retries, timeout=timeout), environment=environment, **manners),
    }
