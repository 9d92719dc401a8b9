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
from typing import Any, TextIO

import msgspec

from onceward._core.json_text import encode_with
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
_OTHERS = "others"
TELL_SECONDS = 10.0
"""How long it takes at most, while anything is logged, until the log says what was left out."""


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
            line: dict[str, Any] = {
                "at": REAL.wall_us() / 1_000_000,
                "level": "info",
                "logger": log.name,
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status or status_sent(scope),
                "ms": round((REAL.monotonic() - began) * 1000, 1),
            }
            for name, digest in head_of(scope).digests().items():
                line[name.decode()] = digest
            only = _only_handler()
            if only is None or not only.hold(line):
                log.handle(log.makeRecord(log.name, logging.INFO, "", 0, "%s", (line,), None))


def _only_handler() -> BoundedLogHandler | None:
    """The handler of calls, if they go to nothing else: then nobody needs a record to be passed around."""
    match log.handlers:
        case [BoundedLogHandler() as only] if not (log.propagate or log.filters or only.filters or only.level):
            return only
    return None


_encode = msgspec.json.Encoder().encode
_json_text = encode_with(json.JSONEncoder(check_circular=False, separators=(",", ":")))


def _text_of(line: dict[str, Any]) -> str:
    """A line as JSON, in ASCII: what a stranger sent must not turn lines around on a terminal."""
    try:
        return _encode(line).decode("ascii")
    except (TypeError, ValueError, OverflowError):  # Other characters, or values that only Python's own encoder takes.
        return _json_text(line)


class JsonLinesFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        of_call = isinstance(record.args, dict) and record.name == log.name
        found: Any = record.args if of_call else {"message": record.getMessage()}
        line = {"at": record.created, "level": record.levelname.lower(), "logger": record.name, **found}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return _text_of(line)


@dataclass(slots=True)
class _Kind:
    """What may still be written of one kind of line."""

    name: str
    rate: float
    bytes_left: float
    at: float
    left_out: int = 0

    def told(self) -> logging.LogRecord:
        """The line that says how many were left out, which is told with it."""
        left_out, self.left_out = self.left_out, 0
        words = "%d lines like this were left out: %s"
        return logging.LogRecord(log.name, logging.WARNING, "", 0, words, (left_out, self.name), None)


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
        self._held: list[dict[str, Any]] = []
        """Lines of calls that are written with the next ones."""

    def write_together(self, later: Callable[[Callable[[], None]], object] | None) -> None:
        """
        Write the lines of calls that end in one turn of the event loop together: `later` is its `call_soon`.

        Any other line is written at once, behind those that are held. None: no more, the event loop ends.
        """
        self._later = later
        self.flush()

    def hold(self, line: dict[str, Any]) -> bool:
        """Keep the line of a call until this turn of the event loop is over; False: write it now."""
        if self._later is None:
            return False
        self.acquire()  # Other threads write what is held before lines of theirs.
        try:
            if not self._held:
                self._later(self.flush)
            self._held.append(line)
        finally:
            self.release()
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        if self._held:
            self._put_held()
        now = self._environment.monotonic()
        status = record.args.get("status") if isinstance(record.args, dict) and record.name == log.name else None
        kind = self._kind_of_call(status, now) if status is not None else self._kind_of_message(record, now)
        if self._has_room(kind, now):
            self._tell(kind)
            kind.bytes_left -= self._write(record)
        self._tell_now_and_then(now)

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            self.acquire()
            try:
                self._put_held()
            finally:
                self.release()

    def _put_held(self) -> None:
        """Write the lines that are held, in one piece. Whoever does has the handler's lock already."""
        held, self._held = self._held, []
        now, pieces = self._environment.monotonic(), list[str]()
        try:
            for line in held:
                kind = self._kind_of_call(line["status"], now)
                if self._has_room(kind, now):
                    if kind.left_out:
                        pieces.append(self.format(kind.told()) + self.terminator)
                    pieces.append(_text_of(line) + self.terminator)
                    kind.bytes_left -= len(pieces[-1])
            self.stream.write("".join(pieces))
            self.stream.flush()
        except Exception:
            self.handleError(logging.LogRecord(log.name, logging.INFO, "", 0, "lines of calls", None, None))
        self._tell_now_and_then(now)

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

    def _tell_now_and_then(self, now: float) -> None:
        if now - self._told_at >= TELL_SECONDS:
            self.tell()

    def _has_room(self, kind: _Kind, now: float) -> bool:
        """Whether a line of a kind may be written now; if not, it is counted."""
        if now > kind.at:
            left, most = kind.bytes_left + (now - kind.at) * kind.rate, kind.rate * BURST_SECONDS
            kind.bytes_left, kind.at = left if left < most else most, now
        if kind.bytes_left <= 0:
            kind.left_out += 1
            return False
        return True

    def _kind_of_call(self, status: int, now: float) -> _Kind:
        known = self._calls.get(status)
        if known is None:
            rate = self._rate * (FAVOUR if status < 400 else 1)
            known = self._found_kind(f"{log.name}, calls with status {status}", rate, now)
            if known.name != _OTHERS:
                self._calls[status] = known
        return known

    def _kind_of_message(self, record: logging.LogRecord, now: float) -> _Kind:
        what = f"{record.levelname}: {record.msg}"
        return self._found_kind(f"{record.name}, {what[:200]}", self._rate, now)

    def _found_kind(self, name: str, rate: float, now: float) -> _Kind:
        found = self._kinds.get(name)
        if found is None:
            if len(self._kinds) >= KINDS_MAX:
                name = _OTHERS
            found = self._kinds.setdefault(name, _Kind(name, rate, rate * BURST_SECONDS, now))
        return found

    def _tell(self, kind: _Kind) -> None:
        if kind.left_out:
            self._write(kind.told())

    def _write(self, record: logging.LogRecord) -> int:
        """Bytes of the line. A log that cannot be written to harms nobody."""
        try:
            line = self.format(record) + self.terminator
            self.stream.write(line)
            self.stream.flush()
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)
            return 0
        return len(line)


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
