"""
`MetricsApp` and `MetricsWsgiApp`: the metrics as a small application, to be mounted wherever only monitors can ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from onceward.observe.metrics import CONTENT_TYPE, Metrics

Message = MutableMapping[str, Any]


class MetricsApp:
    """An ASGI application (for asyncio): GET or HEAD, whatever the path."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this application answers HTTP requests, and not {scope['type']}")
        status, headers, body = await self._answer(scope["method"])
        raw = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, method: str) -> tuple[int, list[tuple[str, str]], bytes]:
        if self._metrics.has_collectors:  # They ask a store, and the event loop must not wait for it.
            return await asyncio.to_thread(answer, self._metrics, method)
        return answer(self._metrics, method)


class MetricsWsgiApp:
    """A WSGI application: GET or HEAD, whatever the path."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], Any]
    ) -> Iterable[bytes]:
        """Answer one request."""
        status, headers, body = answer(self._metrics, environ["REQUEST_METHOD"])
        start_response("200 OK" if status == 200 else "405 Method Not Allowed", headers)
        return [body]


def answer(metrics: Metrics, method: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body of the response."""
    if method not in ("GET", "HEAD"):
        return 405, [("Allow", "GET, HEAD"), ("Content-Length", "0")], b""
    body = metrics.text().encode()
    headers = [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
    return 200, headers, b"" if method == "HEAD" else body
