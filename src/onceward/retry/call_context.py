"""
What travels down a call tree: the deadline, and who owns the retries.

Both sit in one context variable, so they reach everything that is called, every task that is started there, and every
thread that is given the context (`asyncio.to_thread` does that; for others `contextvars.copy_context().run`).
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType

from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError
from onceward._core.terms import Seconds
from onceward.runtime.environment import REAL, Environment

DEADLINE_HEADER = "Onceward-Timeout-Ms"
"""The header by which a deadline leaves the process: milliseconds left, because clocks of two hosts differ."""

HEADER_MS_MAX = 24 * 3_600 * 1_000
"""A day: a longer deadline in a header is no deadline."""

_HEADER_DIGITS_MAX = 12


class CallContext:
    """One call under a policy, or one `deadline` block."""

    live = True
    """Whether it is still going on. A task that was started in it and outlives it is on its own."""
    owner: CallContext | None = None
    """The frame whose policy may retry, if it is not this one."""
    outer: CallContext | None = None
    """The frame around this one."""
    amplification: int

    def __init__(self, limit: float, attempts: int, name: str) -> None:
        self.limit = limit
        self.attempts = self.amplification = attempts
        self.name = name

    def under(self, outer: CallContext) -> None:
        """Take over the deadline, and who owns the retries, from the frame around this one."""
        above = nearest_live(outer)
        if above is None:
            return
        above.outer, self.outer = nearest_live(above.outer), above  # What has ended is not kept by what goes on.
        if above.limit < self.limit:
            self.limit = above.limit
        owner = above.owner or above
        if not owner.live or not owner.attempts:
            return
        self.owner = owner
        self.attempts = above.attempts * self.attempts
        if self.attempts > owner.amplification:
            owner.amplification = self.attempts


def nearest_live(frame: CallContext | None) -> CallContext | None:
    """The innermost frame that is still going on: this one, or one around it."""
    while frame is not None and not frame.live:
        frame = frame.outer
    return frame


CURRENT: ContextVar[CallContext | None] = ContextVar("onceward-retry", default=None)


class deadline:  # noqa: N801 - it reads as a verb: `with deadline(5):`
    """
    What is done in this block has to be over in so many seconds. Policies inside never wait past it.

        with deadline(5):
            policy.call(fetch)

    A deadline inside another can only be earlier. It interrupts nothing by itself: retries, timeouts and waits obey it.
    """

    def __init__(self, seconds: Seconds, *, environment: Environment = REAL) -> None:
        self._seconds = microseconds(seconds, "deadline") / 1e6
        self._environment = environment
        self._tokens: list[Token[CallContext | None]] = []

    def __enter__(self) -> deadline:
        outer = nearest_live(CURRENT.get())
        frame = CallContext(self._environment.monotonic() + self._seconds, 0, "deadline")
        if outer is not None:
            outer.outer, frame.outer = nearest_live(outer.outer), outer
            frame.limit = min(frame.limit, outer.limit)
            frame.owner, frame.attempts = outer.owner or (outer if outer.attempts else None), outer.attempts
        self._tokens.append(CURRENT.set(frame))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame = CURRENT.get()
        if frame is not None:
            frame.live = False
        CURRENT.reset(self._tokens.pop())


def time_left(*, environment: Environment = REAL) -> float | None:
    """Seconds until the deadline of whoever called this; None if there is none. Never less than 0."""
    frame = nearest_live(CURRENT.get())
    return None if frame is None else max(0.0, frame.limit - environment.monotonic())


def deadline_header(*, environment: Environment = REAL) -> dict[str, str]:
    """The deadline as a header to send along: `{"Onceward-Timeout-Ms": "1500"}`; empty if there is none."""
    left = time_left(environment=environment)
    return {} if left is None else {DEADLINE_HEADER: str(min(int(left * 1_000), HEADER_MS_MAX))}


def parse_deadline(value: str | None) -> float | None:
    """
    Seconds left, from the header's value; None if there is none.

    Raises `ConfigurationError` for anything but a number of milliseconds: half a deadline would be worse than none.
    """
    if value is None:
        return None
    text = value.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _HEADER_DIGITS_MAX):
        raise ConfigurationError(f"{DEADLINE_HEADER} is a whole number of milliseconds, such as 1500")
    return min(int(text), HEADER_MS_MAX) / 1_000
