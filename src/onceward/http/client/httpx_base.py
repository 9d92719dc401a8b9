"""
What all transports for httpx and httpx2 share: blocking and async, over either library.
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
"""Retries of `client(...)`: three attempts in all."""


class HttpxTransportBase:
    """What the blocking and the async transport have in common."""

    library: ClassVar[Any]
    """The module: httpx or httpx2."""
    plain: ClassVar[str]
    """The name of the library's own transport class."""
    stream: ClassVar[str]
    """The name of the library's class of response bodies."""
    rest: ClassVar[type]
    """The class of a body whose beginning has been read."""

    def __init__(
        self, retry: Retry | PolicyFunction | None = None, *, wrap: Any = None, **options: Unpack[TransportOptions]
    ) -> None:
        if isinstance(wrap, HttpxTransportBase):
            raise ConfigurationError("wrap is already an Onceward transport: use that one, or wrap the library's own")
        self._preparer = RequestPreparer(retry, **options)
        self._wrapped = getattr(self.library, self.plain)() if wrap is None else wrap

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} over {type(self._wrapped).__name__}>"

    def _sender(self, request: Any, kind: Any) -> Any:
        url, extensions = request.url, request.extensions
        origin = (url.scheme, url.raw_host.decode("ascii"), url.port)
        outgoing = OutgoingRequest(
            request=request,
            method=request.method,
            origin=origin,
            url=str(url),
            headers=merged_headers(request.headers.raw),
            options=request_options_in(extensions),
            first_origin=first_origin(extensions, origin),
            body=self._body_bytes(request),
        )
        sender = kind(self._preparer, self._preparer.prepare(outgoing), request)
        sender.transport, sender.body = self, outgoing.body
        return sender

    def _body_bytes(self, request: Any) -> bytes | None:
        """
        The body's bytes, if they are known before the first attempt: only then are they the same on every attempt.

        An iterator can be sent once, and a file is read on from where the first attempt stopped.
        """
        try:
            return bytes(request.content)
        except self.library.RequestNotRead:
            length = request.headers.get("content-length", "")
            if type(request.stream).__name__ != "MultipartStream" or not length.isdigit():
                return None
            return b"".join(request.stream) if int(length) <= CAPTURED_BYTES_MAX else None


class SdkOptions(TypedDict):
    """Arguments for SDKs built on httpx2 or httpx: a client of ours, and no retries of their own."""

    http_client: Any
    max_retries: int


def client_arguments(transport: type[HttpxTransportBase], environment: str, options: ClientOptions) -> dict[str, Any]:
    """The arguments of a client: credential checked, transport ready, timeout per attempt."""
    transport_options: dict[str, Any] = {"raise_rate_limit": True, **options}
    variable = transport_options.pop("api_key_variable", API_KEY_VARIABLE)
    credential = transport_options.pop("api_key", None) or api_key_from(variable)
    retries, timeout = transport_options.pop("max_retries", MAX_RETRIES), transport_options.pop("timeout", TIMEOUT)
    return {
        "headers": {"Authorization": f"Bearer {check_credential(credential, environment)}"},
        "base_url": transport_options.pop("base_url", ""),
        "timeout": timeout,
        "transport": transport(
            Retry(max_retries=retries, timeout=timeout), environment=environment, **transport_options
        ),
    }
