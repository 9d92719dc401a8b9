"""
For httpx: transports that send the same key on every attempt, and ready-made clients.

    client = httpx.Client(transport=Transport(retry=Retry(attempts=3)))
    client.post(url, json=order, headers={"Idempotency-Key": "charge:o-17"})
"""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import httpx

from onceward.http.client.httpx_base import SdkOptions, client_arguments
from onceward.http.client.httpx_transport import HttpxTransport
from onceward.http.client.httpx_transport_async import AsyncHttpxTransport
from onceward.http.client.request_preparer import ClientOptions, PolicyFunction, TransportOptions
from onceward.retry.policy import Retry

__all__ = ["AsyncTransport", "Transport", "async_client", "async_sdk_options", "client", "sdk_options"]


class Transport(HttpxTransport, httpx.BaseTransport):
    """
    For `httpx.Client(transport=...)`: the same key and the same bytes on every attempt, and no attempt too many.

    `retry` is a policy, or a function from a host to one; by default every host has its own, with a breaker and a
    budget. `wrap` is the transport below (`httpx.HTTPTransport(...)` by default). Other options: `TransportOptions`.
    """

    library: ClassVar[Any] = httpx


class AsyncTransport(AsyncHttpxTransport, httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient(transport=...)`; otherwise like `Transport`."""

    library: ClassVar[Any] = httpx


def client(environment: str, **options: Unpack[ClientOptions]) -> httpx.Client:
    """
    A client with a credential for one environment, `live` or `test`. A 429 that is not retried any more is raised.

    The credential comes from the environment variable `ONCEWARD_API_KEY` unless one is given, and is refused if it is
    for the other environment. Options: `ClientOptions`.
    """
    return httpx.Client(**client_arguments(Transport, environment, options))


def async_client(environment: str, **options: Unpack[ClientOptions]) -> httpx.AsyncClient:
    """An async client with a credential for one environment; see `client`."""
    return httpx.AsyncClient(**client_arguments(AsyncTransport, environment, options))


def sdk_options(retry: Retry | PolicyFunction | None = None, **options: Unpack[TransportOptions]) -> SdkOptions:
    """For SDKs that take an `http_client`: `SomeSdk(**sdk_options(policy))`. Their own retries are set to 0."""
    return {"http_client": httpx.Client(transport=Transport(retry, **options), follow_redirects=True), "max_retries": 0}


def async_sdk_options(retry: Retry | PolicyFunction | None = None, **options: Unpack[TransportOptions]) -> SdkOptions:
    """For async SDKs that take an `http_client`: `SomeAsyncSdk(**async_sdk_options(policy))`."""
    return {
        "http_client": httpx.AsyncClient(transport=AsyncTransport(retry, **options), follow_redirects=True),
        "max_retries": 0,
    }
