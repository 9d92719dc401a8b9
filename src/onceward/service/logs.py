"""
One line of JSON for each call: who, what, how it ended, how long it took. Keys appear as digests, secrets never.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any

from onceward.protocol.headers import IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP
from onceward.runtime.environment import REAL

log = logging.getLogger("onceward.service.access")

_IDENTITIES = tuple(name.lower().encode() for name in (IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP))


class AccessLogMiddleware:
    """An ASGI application whose calls are logged."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve one call."""
        if scope["type"] != "http" or not log.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        began, status = REAL.monotonic(), 0

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            line: dict[str, Any] = {
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "ms": round((REAL.monotonic() - began) * 1000, 1),
            }
            for name, value in scope["headers"]:
                if name in _IDENTITIES:
                    line[name.decode()] = sha256(value).hexdigest()[:12]
            # Made by hand: `log.info` would walk up the stack for a line number that nobody prints.
            log.handle(log.makeRecord(log.name, logging.INFO, "", 0, "%s", (line,), None))


class JsonLinesFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        found = (
            record.args
            if isinstance(record.args, dict) and record.name == log.name
            else {"message": record.getMessage()}
        )
        line: dict[str, Any] = {"at": record.created, "level": record.levelname.lower(), "logger": record.name, **found}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(level: str) -> None:
    """For `onceward serve`: everything of ours and of the server, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLinesFormatter())
    for name in ("onceward", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
