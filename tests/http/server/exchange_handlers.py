"""
Rows, requests, handlers and scope functions for the table of the exchange (`exchange_rows.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exchange_messages import Asked, Said
from wires import Wire

from onceward import Reply, StoreUnavailable, current_operation
from onceward.retry import Breaker
from onceward.runtime import failpoints
from onceward.testing.clock import StillEnvironment

Step = Asked | Callable[[Wire], None]
"""A request, or something else that happens."""


EVERYWHERE = ("asgi", "wsgi", "django", "django_async", "django_thread")

ONLY = {
    ("asgi", "wsgi", "django", "django_async"): "A stream passes piece by piece.",
    ("django_thread",): "In a thread under ASGI, Django reads a stream to its end before it serves it.",
    ("asgi", "django", "django_async", "django_thread"): "Something can be awaited.",
    ("wsgi",): "Nothing can be awaited.",
    ("asgi", "django_async", "django_thread"): "Headers that occur twice are two.",
    ("wsgi", "django"): "An environ has one header where two were sent, with a comma.",
    ("asgi", "wsgi", "django"): "Elsewhere Django has read the body before anybody can look at a clock.",
}
"""Where wires differ in what they are: the rows that are for these only, and why."""


class Row(NamedTuple):
    """Requests, and what else happens; then what comes of it; and how the middleware is set up."""

    steps: Sequence[Step]
    expected: str
    handler: Any = None
    options: dict[str, Any] = {}
    wires: tuple[str, ...] = EVERYWHERE
    """Where it is told; elsewhere than everywhere for a reason in `ONLY`."""


# --- requests ---

ASK = Asked()
OTHER = Asked(body=b'{"a":1}')
UNKEYED = Asked(None)
LEAVES = ASK._replace(leaves=True)
STEP = Asked(None, headers=(("plan-key", "p"), ("plan-step", "s")))
TWICE = (ASK, ASK)


def meanwhile(*steps: Step) -> Step:
    """What is asked, or happens, while the handler runs for the first time."""

    def plan(wire: Wire) -> None:
        wire.meanwhile += steps

    return plan


def later(seconds: float) -> Step:
    """Let time pass."""
    return lambda wire: wire.environment.advance(seconds)


def decide(answer: Any) -> Step:
    """A person decides what is in doubt."""
    return lambda wire: wire.reconcile(answer)


def away(at: str, error: type[StoreUnavailable] = StoreUnavailable) -> Step:
    """From now on the store is away, at this place."""

    def fail() -> None:
        raise error("the store is away")

    return lambda wire: failpoints.arm(at, fail)


def back(wire: Wire) -> None:
    """The store is there again."""
    failpoints.disarm()


# --- how the middleware is set up ---

ENVELOPE = {"marker": "envelope"}
MEMBER = {"marker": "member"}
ALL = {"remember": "all"}
STRIPE = {"profile": "stripe"}
ATOMIC = {"guarantee": "atomic"}
TRANSACTIONAL = {"transactional": True}
SMALL = {"result_bytes_max": 200}


# --- handlers ---


def says(*answers: Said) -> Callable[[], Callable[[bytes], Said]]:
    """A handler that gives these answers, one after the other, and the last of them from then on."""

    def made() -> Callable[[bytes], Said]:
        left = list(answers)
        return lambda body: left.pop(0) if len(left) > 1 else left[0]

    return made


def raises(error: BaseException, *then: Said) -> Callable[[], Callable[[bytes], Said]]:
    """A handler that raises; and then, if there is more to say, answers."""

    def made() -> Callable[[bytes], Said]:
        left: list[Any] = [error, *then]

        def handler(body: bytes) -> Said:
            one = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(one, BaseException):
                raise type(one)(*one.args)  # A new one: notes are added to it.
            said: Said = one
            return said

        return handler

    return made


TEXT = (("content-type", "text/plain"),)
JSON = (("content-type", "application/json"),)
EVENTS = (("content-type", "text/event-stream"),)
STUCK = RuntimeError("the till is stuck")
LONG = Said(200, b'"' + b"a" * 300 + b'"')
STREAM = Said(200, headers=TEXT, pieces=(b"one", b"two"))
FLOOD = Said(200, headers=TEXT, pieces=(b"a" * 150, b"b" * 150, b"c", b"d"))
BROKEN = STREAM._replace(breaks=True)
LONG_STREAM = Said(200, headers=TEXT, pieces=(b"a" * 150, b"b" * 150))
TRUTH = Said(200, b'{"truth":true}')


# --- settling inside a transaction ---

SETTLED = Reply.json({"id": 7}, status=201, headers={"Location": "/orders/7"})


def transacts(*stories: str) -> Callable[[Path], Callable[[bytes], Said]]:
    """Handlers whose runs are told: "insert settle commit 200"; or "raise" at their end."""

    def made(path: Path) -> Callable[[bytes], Said]:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.close()
        left = list(stories)

        def handler(body: bytes) -> Said:
            story, connection = (left.pop(0) if len(left) > 1 else left[0]), sqlite3.connect(path)
            try:
                for step in story.split():
                    match step:
                        case "insert":
                            connection.execute("INSERT INTO orders DEFAULT VALUES")
                        case "settle":
                            current_operation().settle_inside(connection, SETTLED)
                        case "commit":
                            connection.commit()
                        case "rollback":
                            connection.rollback()
                        case "raise":
                            raise RuntimeError(*STUCK.args)
                        case "stream":
                            return STREAM
                        case _:
                            return Said(int(step))
            finally:
                connection.close()
            raise AssertionError(story)

        return handler

    return made


# --- who is calling ---


def nobody(request: Any) -> str | None:
    """A scope function that does not know."""
    return None


def broken(request: Any) -> str:
    """A scope function that raises."""
    raise KeyError("tenant")


def by_path(request: Any) -> str:
    """A scope function that knows."""
    return "test:shop" if request.path == "/a" else "test:other"


async def awaited(request: Any) -> str:
    """An async scope function."""
    return "test:shop"


def lazy(request: Any) -> Any:
    """A scope function that is async, and does not look like it."""
    return awaited(request)


def tripped() -> Breaker:
    """A circuit that is open."""
    breaker = Breaker("payments", environment=StillEnvironment())
    breaker.trip()
    return breaker
