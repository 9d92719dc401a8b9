"""
A stop: why a call was given up, what is known about it, and how an error (or an answer) carries that along.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from onceward._core.attempt_history import AttemptSummary
from onceward._core.display_text import format_seconds
from onceward._core.sent_request import SentRequest
from onceward._core.verdict import Verdict
from onceward._core.verdict_tables.onceward_errors import STOP_ATTRIBUTE

_WAITS_MAX = 10 * 365 * 86_400.0


class StopReason(StrEnum):
    """Why no further attempt was made."""

    ATTEMPTS = "attempts"
    """As many as were allowed have been made."""
    ELAPSED = "elapsed"
    """The policy's own time is over, or the next wait would not fit into it."""
    DEADLINE = "deadline"
    """The caller's deadline is over, or a wait (the server's, above all) would go past what is left."""
    BUDGET = "budget"
    """There were too many retries for this much traffic."""
    BREAKER = "breaker"
    """The circuit is open."""
    NOT_REPLAYABLE = "not_replayable"
    """What was sent cannot be sent again (a stream)."""
    NO_KEY = "no_key"
    """It may have happened, and nothing makes it safe to repeat."""
    NEVER = "never"
    """The verdict: trying again would not help."""
    SERVER_SAID_NO = "server_said_no"
    """Trouble that is usually worth another try, but the other side asked not to."""


GIVEN_UP = frozenset(StopReason) - {StopReason.NEVER, StopReason.SERVER_SAID_NO}
"""The reasons that leave work undone: these go to the dead letters, and so does whatever may have happened."""


class Stop(NamedTuple):
    """Why a call was given up, and what is known about it. `stop_of(error)` finds it on the error that was raised."""

    reason: StopReason
    attempts: int
    """How many were made."""
    elapsed: float
    """Seconds since the call began."""
    verdict: Verdict
    """About the whole call: UNKNOWN if any attempt may have had its effect, else the last attempt's."""
    last: Verdict
    """About the last attempt."""
    name: str
    key: str | None = None
    retry_at: datetime | None = None
    """When to come back (UTC), if the other side or the breaker said so."""
    retry_after_seconds: float | None = None
    """The same, as seconds from the stop."""
    amplification: int = 1
    """How many times the innermost call would have been made, had every layer retried for itself."""
    problem: Any = None
    """The last attempt's error, or the answer that counted as one. None on the stop that an error itself carries."""
    tries: tuple[AttemptSummary, ...] = ()
    """How each attempt ended: the first and the latest. Kept for policies that have dead letters only."""


class GivenUp(NamedTuple):
    """The call that was given up, for whoever keeps it."""

    name: str
    key: str | None
    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    request: SentRequest | None = None
    """The HTTP request that it was, if one of our clients sent it."""


class DeadLetters(Protocol):
    """Where calls go that were given up. An error here is reported as a warning and never changes the outcome."""

    def put(self, stop: Stop, call: GivenUp) -> object:
        """Keep it. May return something to await if the policy is used with `async def`."""


def time_after(wall_us: int, after: float | None) -> datetime | None:
    """The time so many seconds after an instant; None if there is none, or none that a calendar has."""
    if after is None or not 0 <= after <= _WAITS_MAX:
        return None
    return datetime.fromtimestamp(wall_us / 1e6, UTC) + timedelta(seconds=after)


def attach_stop(error: Any, stop: Stop) -> Any:
    """The error (or the answer that counted as one) with its stop on it, where it can carry one."""
    try:
        raised_before = getattr(error, STOP_ATTRIBUTE, None) is not None  # One object, again and again.
        setattr(error, STOP_ATTRIBUTE, stop)
        if isinstance(error, BaseException):
            if raised_before:
                error.__notes__ = [line for line in error.__notes__ if not line.startswith(_NOTE)]
            error.add_note(stop_note(stop))
    except Exception:
        return error  # An error that takes no attributes is raised as it is: unchanged is what was promised.
    return error


_NOTE = "onceward: "


def stop_note(stop: Stop) -> str:
    """One line about a stop: no key, nothing of the error itself."""
    why = f"{_WHY[stop.reason]} ({stop.reason.value})"
    if not stop.attempts:
        return f"{_NOTE}{stop.name} was not called: {why}"
    tries = "1 attempt" if stop.attempts == 1 else f"{stop.attempts} attempts"
    doubt = "; it may have happened" if stop.verdict.happened is None else ""
    return f"{_NOTE}{stop.name} stopped after {tries} in {format_seconds(stop.elapsed)}: {why}{doubt}"


_WHY = {
    StopReason.ATTEMPTS: "the policy allows no more",
    StopReason.ELAPSED: "the policy's time is over",
    StopReason.DEADLINE: "the caller's deadline leaves no time",
    StopReason.BUDGET: "the retry budget is used up",
    StopReason.BREAKER: "the circuit is open",
    StopReason.NOT_REPLAYABLE: "the request cannot be sent again",
    StopReason.NO_KEY: "it has no key, so a retry could do it twice",
    StopReason.NEVER: "a retry would not help",
    StopReason.SERVER_SAID_NO: "the server asked for no more",
}
