"""
Transports for httpx and for httpx2, whose class trees have nothing in common: what those of both colours share.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypedDict, Unpack

from onceward._core.errors import ConfigurationError
from onceward.http.client.credentials import API_KEY_VARIABLE, api_key_from, check_credential
from onceward.http.client.request_preparer import (
    CAPTURED_BYTES_MAX,
    ClientOptions,
    OutgoingRequest,
    PolicyFunction,
    RequestPreparer,
    TransportOptions,
    first_origin,
    merged_headers,
    request_options_in,
)
from onceward.retry.policy import TIMEOUT, Retry

MAX_RETRIES = 2
"""Of a client that is made ready to use: three attempts in all."""


class HttpxTransportBase:
    """What the transports of both colours have in common."""

    library: ClassVar[Any]
    """The module: httpx or httpx2."""
    plain: ClassVar[str]
    """What the library's own transport is called."""
    stream: ClassVar[str]
    """What its response bodies are called."""
    rest: ClassVar[type]
    """The body of a long refusal: its beginning has been read."""

    def __init__(
        self, retry: Retry | PolicyFunction | None = None, *, wrap: Any = None, **options: Unpack[TransportOptions]
    ) -> None:
        if isinstance(wrap, HttpxTransportBase):
            raise ConfigurationError("this transport is wrapped in another of its kind already: one carries the key")
        self._preparer = RequestPreparer(retry, **options)
        self._wrapped = getattr(self.library, self.plain)() if wrap is None else wrap

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} over {type(self._wrapped).__name__}>"

    def _exchange(self, request: Any, kind: Any) -> Any:
        url, extensions = request.url, request.extensions
        origin = (url.scheme, url.raw_host.decode("ascii"), url.port)
        seen = OutgoingRequest(
            request=request,
            method=request.method,
            origin=origin,
            url=str(url),
            headers=merged_headers(request.headers.raw),
            said=request_options_in(extensions),
            first_origin=first_origin(extensions, origin),
            body=self._captured(request),
        )
        exchange = kind(self._preparer, self._preparer.load(seen), request)
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


class SdkOptions(TypedDict):
    """What SDKs that are made of httpx2 or httpx take: a client of ours, and no retries of their own."""

    http_client: Any
    max_retries: int


def client_arguments(transport: type[HttpxTransportBase], environment: str, options: ClientOptions) -> dict[str, Any]:
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
