"""
One line of JSON for each call: who, what, how it ended, how long it took. Keys appear as digests, secrets never.

How much is written is bounded for each kind of line (`BoundedLogHandler`), so that a flood of requests does not fill
the disk. Whatever is left out is counted, and told as soon as there is room.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TextIO

from onceward._core.json_text import encode_with
from onceward.protocol.headers import IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP
from onceward.runtime.environment import REAL, Environment
from onceward.service.web.request_head import head_of
from onceward.service.web.whole_response import status_sent

log = logging.getLogger("onceward.service.access")

BURST_SECONDS = 16
"""A kind of line may use up the bytes of so many seconds at once."""
FAVOUR = 20
"""How much more may be written of calls that succeed: they are what is asked for, and their callers are known."""
KINDS_MAX = 1_000
"""Kinds that are told apart; others share a bucket."""
TELL_SECONDS = 10.0
"""How long it takes at most, while anything is logged, until the log says what was left out."""

_IDENTITIES = {name.lower().encode(): name.lower() for name in (IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP)}


_CALLS = {"level": "info", "logger": log.name}
"""What every call's line says."""


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

        def noted(message: MutableMapping[str, Any]) -> Any:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)  # To be awaited by whoever awaits this.

        try:
            await self._app(scope, receive, noted)
        finally:
            created = REAL.wall_us() / 1_000_000
            line: dict[str, Any] = {
                "at": created,
                **_CALLS,
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status or status_sent(scope),
                "ms": round((REAL.monotonic() - began) * 1000, 1),
            }
            sent = head_of(scope).last
            if not _IDENTITIES.keys().isdisjoint(sent):
                for name, shown in _IDENTITIES.items():
                    if name in sent:
                        line[shown] = sha256(sent[name]).hexdigest()[:12]
            log.handle(_CallRecord(line, created))


class _CallRecord(logging.LogRecord):
    """A call's record. What nobody prints is the same for all of them: no stack is walked, no thread is looked up."""

    name, msg = log.name, "%s"
    levelno, levelname = logging.INFO, logging.getLevelName(logging.INFO)
    pathname = filename = module = ""
    lineno = 0
    exc_info = exc_text = stack_info = thread = process = None
    # Names of logging's own.
    threadName = processName = taskName = None  # noqa: N815
    funcName = ""  # noqa: N815

    msecs = relativeCreated = 0.0  # noqa: N815

    def __init__(self, line: dict[str, Any], created: float) -> None:
        self.args = line
        self.created = created


_json_text = encode_with(json.JSONEncoder(check_circular=False))


class JsonLinesFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        if type(record) is _CallRecord:
            line: Any = record.args
        else:
            of_call = isinstance(record.args, dict) and record.name == log.name
            found: Any = record.args if of_call else {"message": record.getMessage()}
            line = {"at": record.created, "level": record.levelname.lower(), "logger": record.name, **found}
            if record.exc_info:
                line["trace"] = self.formatException(record.exc_info)
        return _json_text(line)


@dataclass(slots=True)
class _Kind:
    """What may still be written of one kind of line."""

    name: str
    rate: float
    bytes_left: float
    at: float
    left_out: int = 0


class BoundedLogHandler(logging.StreamHandler[TextIO]):
    """
    Writes log records, of each kind so many bytes a second and no more; says how many lines were left out.

    A kind is a message of a logger before its values are put in, and for calls their status. The first lines of a kind
    are always written, errors among them.
    """

    def __init__(self, stream: TextIO, rate: float, environment: Environment = REAL) -> None:
        super().__init__(stream)
        self._rate = rate
        self._environment = environment
        self._kinds: dict[str, _Kind] = {}
        self._calls: dict[int, _Kind] = {}
        """The same, of calls by their status."""
        self._told_at = environment.monotonic()
        self._later: Callable[[Callable[[], None]], object] | None = None
        self._held: list[str] = []
        """Lines of calls that are written with the next ones."""

    def write_together(self, later: Callable[[Callable[[], None]], object] | None) -> None:
        """
        Write the lines of calls that end in one turn of the event loop together: `later` is its `call_soon`.

        Any other line is written at once, behind those that are held. None: no more, the event loop ends.
        """
        self._later = later
        self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        now = self._environment.monotonic()
        kind = self._kind_of(record, now)
        left, most = kind.bytes_left + (now - kind.at) * kind.rate, kind.rate * BURST_SECONDS
        kind.bytes_left, kind.at = left if left < most else most, now
        if kind.bytes_left <= 0:
            kind.left_out += 1
        else:
            if kind.left_out:
                self._tell(kind)
            kind.bytes_left -= self._write(record)
        if now - self._told_at >= TELL_SECONDS:
            self.tell()

    def flush(self) -> None:
        """Write what is held."""
        self.acquire()
        try:
            if self._held:
                self._put("")
        except Exception:
            self.handleError(logging.LogRecord(log.name, logging.INFO, "", 0, "lines of calls", None, None))
        finally:
            self.release()

    def tell(self) -> None:
        """Say what was left out and is not told yet. Call it now and then, and at the end."""
        self.flush()
        self.acquire()
        try:
            self._told_at = self._environment.monotonic()
            for kind in self._kinds.values():
                self._tell(kind)
        finally:
            self.release()

    def close(self) -> None:
        """No line is left out silently, the last ones neither."""
        self.tell()
        super().close()

    def _kind_of(self, record: logging.LogRecord, now: float) -> _Kind:
        status = record.args.get("status") if isinstance(record.args, dict) and record.name == log.name else None
        known = None if status is None else self._calls.get(status)
        if known is not None:
            return known
        what = f"calls with status {status}" if status is not None else f"{record.levelname}: {record.msg}"
        name = f"{record.name}, {what[:200]}"
        found = self._kinds.get(name)
        if found is None:
            if len(self._kinds) >= KINDS_MAX:
                name = "others"
            rate = self._rate * (FAVOUR if status is not None and status < 400 else 1)
            found = self._kinds.setdefault(name, _Kind(name, rate, rate * BURST_SECONDS, now))
        if status is not None and name != "others":
            self._calls[status] = found
        return found

    def _tell(self, kind: _Kind) -> None:
        if kind.left_out:
            left_out, kind.left_out = kind.left_out, 0
            words = (left_out, kind.name)
            self._write(
                logging.LogRecord(log.name, logging.WARNING, "", 0, "%d lines like this were left out: %s", words, None)
            )

    def _write(self, record: logging.LogRecord) -> int:
        """Bytes of the line. A log that cannot be written to harms nobody."""
        try:
            line = self.format(record) + self.terminator
            if self._later is not None and type(record) is _CallRecord:
                if not self._held:
                    self._later(self.flush)
                self._held.append(line)
            else:
                self._put(line)
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)
            return 0
        return len(line)

    def _put(self, line: str) -> None:
        """Write a line behind what is held. Whoever does has the handler's lock already."""
        held, self._held = self._held, []
        self.stream.write("".join(held) + line)
        self.stream.flush()


def log_to_stderr(level: str, rate: float) -> BoundedLogHandler:
    """For `onceward serve`: everything of ours and of the server as lines of JSON, so many bytes a second of a kind."""
    handler = BoundedLogHandler(sys.stderr, rate)
    handler.setFormatter(JsonLinesFormatter())
    for name in ("onceward", log.name, "uvicorn", "asyncio"):  # That of calls by itself: so nobody looks for it.
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    return handler
