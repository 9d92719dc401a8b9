"""
The client that checks use: it makes requests from the target's description, sends them and classifies responses.

A check ends in one of three ways: it returns (what it is about holds), it raises `DoesNotHold` (it does not), or it
raises `NotShown` (it cannot be told, with the reason).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from onceward.runtime.environment import REAL, Environment
from onceward.testing.http_suite.expectations import Expectations
from onceward.testing.http_suite.raw_http import Origin, TargetConnection, TargetResponse
from onceward.testing.http_suite.target import HttpTarget, RequestTemplate, body_members

SETTLE_SECONDS = 2.0
"""How long a key may still be called in flight after its first response went out."""

BUSY = (423, 425)
"""Locked, and too early: other servers' statuses for a key in flight."""

PAUSE_SECONDS = 0.05
"""Between two retries while the first request is in flight."""

HeaderLines = tuple[tuple[str, bytes], ...]
"""Header lines that name an operation: the key, or a plan's step, or something malformed."""

T = TypeVar("T")


class DoesNotHold(Exception):
    """What the check is about does not hold."""


class NotShown(Exception):
    """It may hold or not: this target, or this description of it, cannot show it."""


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """One request, ready to be sent any number of times."""

    method: str
    path: str
    body: bytes | None
    lines: HeaderLines
    number: int

    def under(self, lines: HeaderLines) -> TargetRequest:
        """The same request under another identity."""
        return replace(self, lines=lines)


@dataclass
class TargetClient:
    """One run against one target. Safe to use from several threads."""

    target: HttpTarget
    environment: Environment = REAL
    run: str = ""
    _number: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _found: dict[str, Future[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Two runs against one server, even at the same time, must not meet.
        self.run = self.environment.random(5).hex()
        self._number = int.from_bytes(self.environment.random(3), "big") * 64

    @property
    def expected(self) -> Expectations:
        """What the profile promises."""
        return self.target.expected

    def number(self) -> int:
        """A number that this run has not used."""
        with self._guard:
            self._number += 1
            return self._number

    def key(self) -> str:
        """A key that nobody has used."""
        return f"onceward-{self.run}-{self.number()}"

    def keyed(self, key: str, *, quoted: bool | None = None) -> HeaderLines:
        """The header line for a key, spelled as the profile has it."""
        spelled = f'"{key}"' if (self.expected.quoted_keys if quoted is None else quoted) else key
        return self.raw_key(spelled.encode("ascii"))

    def raw_key(self, value: bytes) -> HeaderLines:
        """The header line for whatever stands in the place of a key."""
        return ((self.expected.key_header, value),)

    def new_request(
        self, shape: RequestTemplate | None = None, lines: HeaderLines | None = None, number: int | None = None
    ) -> TargetRequest:
        """A request that was never sent, under a fresh key unless told otherwise."""
        request = self._rendered(shape or self.target.request, self.number() if number is None else number)
        return request.under(self.keyed(self.key()) if lines is None else lines)

    def changed(self, request: TargetRequest) -> TargetRequest:
        """The same request with another body."""
        target = self.target
        if target.changed_body is not None:
            body: bytes | None = _filled(target.changed_body, request.number)
        elif target.request.body is not None and "{n}" in target.request.body:
            body = self._rendered(target.request, self.number()).body
        else:
            body = _tweaked(request.body)
        if body is None or body == request.body:
            raise NotShown("the suite cannot change this body itself; give --changed-body")
        return replace(request, body=body)

    def send(self, request: TargetRequest, *, other: bool = False) -> TargetResponse:
        """Send it, and read the response."""
        return self.read(self.connect(request, other=other), request)

    def read(self, connection: TargetConnection, request: TargetRequest) -> TargetResponse:
        """Read the response to what was sent."""
        response = connection.read_response(request.method)
        if response.status == 429:
            raise NotShown("the target limits the rate of requests (429); try again later, or with --only")
        return response

    def connect(self, request: TargetRequest, *, other: bool = False) -> TargetConnection:
        """Send it, and leave the response to the caller."""
        connection = self.opened()
        connection.send(self.written(request, other=other))
        return connection

    def opened(self, origin: Origin | None = None) -> TargetConnection:
        """A new connection."""
        return TargetConnection(origin or self.target.origin, self.target.timeout, self.environment)

    def written(self, request: TargetRequest, *, other: bool = False) -> bytes:
        """A request as bytes."""
        lines: list[tuple[str, bytes]] = [("Host", self.target.origin.host_header.encode("ascii"))]
        lines += [(name, value.encode("latin-1")) for name, value in self.target.tenant_headers(other=other)]
        lines += [*request.lines, ("Accept", b"*/*"), ("Connection", b"close")]
        if request.body is not None:
            lines += [("Content-Type", self.target.content_type.encode("latin-1"))]
            lines += [("Content-Length", str(len(request.body)).encode("ascii"))]
        head = b"".join(b"%s: %s\r\n" % (name.encode("ascii"), value) for name, value in lines)
        start = f"{request.method} {request.path} HTTP/1.1\r\n".encode("ascii")
        return start + head + b"\r\n" + (request.body or b"")

    def first(self, request: TargetRequest, *, other: bool = False) -> TargetResponse:
        """Send a request that nobody has sent: it must succeed, or nothing can be shown with it."""
        response = self.send(request, other=other)
        if not self.is_done(response):
            raise NotShown(f"a fresh request was answered {response}")
        return response

    def again(self, request: TargetRequest, *, other: bool = False, seconds: float = SETTLE_SECONDS) -> TargetResponse:
        """Send a request that was answered before. While the server says in flight, retry for so long."""
        ends = self.environment.monotonic() + seconds
        while True:
            response = self.send(request, other=other)
            if not self.is_in_flight(response) or self.environment.monotonic() > ends:
                return response
            self.environment.sleep(PAUSE_SECONDS)

    def is_in_flight(self, response: TargetResponse) -> bool:
        """Whether a response says that the first request still runs."""
        codes, status = self.expected.in_flight_codes, self.expected.in_flight_status
        if (codes and response.code is not None) or status < 300:
            # A 202 without a code is a response like any other.
            return response.code in codes
        # Otherwise the status decides; those that other servers use for it are understood, too.
        return response.status in (status, *BUSY)

    def is_done(self, response: TargetResponse) -> bool:
        """Whether a response is the result of an execution: a success that does not say in flight."""
        return response.succeeded and not self.is_in_flight(response)

    def is_marked(self, response: TargetResponse, marker: str | None = None) -> bool:
        """Whether a response says that it is a replay."""
        return (response.header(marker or self.expected.marker) or "").strip().lower() in ("true", "?1")

    def found_once(self, name: str, find: Callable[[], T]) -> T:
        """Compute a value that several checks share, once."""
        with self._guard:
            is_mine = name not in self._found
            future: Future[T] = self._found.setdefault(name, Future())
        if is_mine:
            resolve_future(future, find)
        return future.result()

    def _rendered(self, shape: RequestTemplate, number: int) -> TargetRequest:
        body = None if shape.body is None else _filled(shape.body, number)
        return TargetRequest(shape.method, shape.path.replace("{n}", str(number)), body, (), number)


def run_in_thread(function: Callable[..., T], *arguments: Any) -> Future[T]:
    """Run a function in a thread of its own."""
    future: Future[T] = Future()
    threading.Thread(target=resolve_future, args=(future, function, *arguments), daemon=True).start()
    return future


def resolve_future(future: Future[T], function: Callable[..., T], *arguments: Any) -> None:
    """Run a function, and give the future its result or its error."""
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)


def require(condition: bool, otherwise: str) -> None:
    """Go on only if this holds."""
    if not condition:
        raise DoesNotHold(otherwise)


def _filled(template: str, number: int) -> bytes:
    return template.replace("{n}", str(number)).encode("utf-8")


def _tweaked(body: bytes | None) -> bytes | None:
    """A JSON object with one value changed."""
    members = body_members(body) or {}
    for name, value in members.items():
        if isinstance(value, bool):
            changed: Any = not value
        elif isinstance(value, int | float):
            changed = value + 1
        elif isinstance(value, str):
            changed = value + "x"
        else:
            continue
        return json.dumps(members | {name: changed}).encode("utf-8")
    return None
