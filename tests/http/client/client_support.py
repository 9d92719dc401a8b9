"""
Five ways to send a request, one text: httpx and httpx2 in both colours, and requests.

    web = Web("httpx2-async")
    with web.client(retry=policy) as client:
        answer = client("POST", server.url, headers={...}, content=b"...")

An answer is the library's own response, read to its end.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, NamedTuple

import requests

from colours import Awaited

EXTENDED = ("httpx", "httpx-async", "httpx2", "httpx2-async")
"""Ways whose requests have extensions, and whose transports have others below them."""
WAYS = (*EXTENDED, "requests")


class Wire(NamedTuple):
    """A request as it came over the line."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


def wire(request: bytes) -> Wire:
    head, _, body = request.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = (field.partition(": ") for field in fields)
    return Wire(line, {name.lower(): value for name, _, value in pairs}, body)


def sent(server: Any) -> list[Wire]:
    """Every request that the server read."""
    return [wire(request) for request in server.requests]


class Web:
    """One way to send."""

    def __init__(self, way: str) -> None:
        self.way = way
        name, _, colour = way.partition("-")
        self.awaits = colour == "async"
        self.library: Any = importlib.import_module(name)
        self.ours: Any = importlib.import_module(f"onceward.http.{name}")

    @property
    def is_requests(self) -> bool:
        return self.way == "requests"

    def errors(self, name: str) -> type[BaseException]:
        """The library's own exception of that kind."""
        if self.is_requests:
            found: type[BaseException] = getattr(requests.exceptions, REQUESTS_NAMES[name])
            return found
        return getattr(self.library, name)  # type: ignore[no-any-return]

    def transport(self, **options: Any) -> Any:
        """Our transport or adapter. No certificates are loaded below it: that takes longer than the whole test."""
        if self.is_requests:
            return self.ours.Adapter(**options)
        if "wrap" not in options:
            options["wrap"] = self.plain(verify=False)
        return (self.ours.AsyncTransport if self.awaits else self.ours.Transport)(**options)

    def plain(self, **options: Any) -> Any:
        """The library's own transport."""
        return (self.library.AsyncHTTPTransport if self.awaits else self.library.HTTPTransport)(**options)

    @contextmanager
    def client(self, *, follow: bool = False, timeout: Any = 5.0, **options: Any) -> Iterator[Any]:
        """A function that sends: client(method, url, headers=, content=, extensions=)."""
        transport = self.transport(**options)
        if self.is_requests:
            with requests.Session() as session:
                session.trust_env = False
                session.mount("http://", transport)
                yield lambda method, url, *, content=None, extensions=None, **kwargs: session.request(
                    method, url, data=content, allow_redirects=follow, timeout=timeout, **kwargs
                )
            return
        settings = {"transport": transport, "timeout": timeout, "follow_redirects": follow, "trust_env": False}
        if not self.awaits:
            with self.library.Client(**settings) as client:
                yield client.request
            return
        with asyncio.Runner() as runner:
            client = self.library.AsyncClient(**settings)
            # In the caller's context: deadlines, operations and policies around the call are seen by what it awaits.
            yield lambda *args, **kwargs: runner.run(client.request(*args, **kwargs), context=copy_context())
            runner.run(client.aclose())

    @contextmanager
    def using(self, client: Any) -> Iterator[Any]:
        """A client of httpx or of an SDK, whose methods block whatever its colour is."""
        if not self.awaits:
            with client:
                yield client
            return
        turned = Awaited(client)
        try:
            yield turned
        finally:
            turned.close()

    def plain_client(self, **options: Any) -> Any:
        """The library's own client."""
        return (self.library.AsyncClient if self.awaits else self.library.Client)(**options)

    def ready(self, environment: str, **options: Any) -> Any:
        """A client that is made ready to use, by us."""
        return (self.ours.async_client if self.awaits else self.ours.client)(environment, **options)

    def sdk_options(self, *given: Any, **options: Any) -> Any:
        """For an SDK of this colour."""
        return (self.ours.async_sdk_options if self.awaits else self.ours.sdk_options)(*given, **options)

    def generator(self, *chunks: bytes) -> Any:
        """A body that can be sent once."""

        async def awaiting() -> Any:
            for chunk in chunks:
                yield chunk

        def blocking() -> Any:
            yield from chunks

        return awaiting() if self.awaits else blocking()


REQUESTS_NAMES = {
    "ConnectError": "ConnectionError",
    "ReadTimeout": "ReadTimeout",
    "ReadError": "ConnectionError",
    "RemoteProtocolError": "ConnectionError",
    "HTTPStatusError": "HTTPError",
}


def key_in(text: str) -> str:
    """What stands between the quotation marks."""
    match = re.fullmatch(r'"(.*)"', text)
    assert match is not None
    return match[1]
