"""
How the attempts of a call ended, one line each: what a dead letter keeps as evidence.

Texts only, made when the attempt has ended and cut to a limit: a line holds no exception, and with it no frames.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from onceward._core.codec import message_of, shortened, type_name
from onceward._core.verdict import Verdict

TRIES_KEPT = 20
"""Of one call: the first, and the latest nineteen. What lies between says the same again."""

TEXT_BYTES_MAX = 500
"""Of each error's message: enough to recognise it by, and little to leak."""


class AttemptSummary(NamedTuple):
    """One attempt, after it has ended."""

    number: int
    """1 for the first."""
    at: datetime
    """When it began (UTC, on this host's clock)."""
    seconds: float
    """How long it took."""
    certainty: str
    """What is known about its effect: not sent, rejected, unknown, done."""
    kind: str
    """What sort of trouble it was."""
    error: str
    """The error's type, or the type of the answer that counted as one."""
    message: str
    """What the error said, cut to a limit; of an answer, its code."""


def summarize_attempt(number: int, wall_us: int, seconds: float, verdict: Verdict, problem: Any) -> AttemptSummary:
    """The line about an attempt that has just ended."""
    is_error = isinstance(problem, BaseException)
    # An answer is not turned into text: its body is nobody's business here.
    said = message_of(problem) if is_error else verdict.code or ""
    return AttemptSummary(
        number,
        datetime.fromtimestamp(wall_us / 1e6, UTC) - timedelta(seconds=max(seconds, 0.0)),
        round(max(seconds, 0.0), 6),
        verdict.certainty.value,
        verdict.kind.value,
        shortened(type_name(type(problem)), TEXT_BYTES_MAX),
        shortened(said, TEXT_BYTES_MAX),
    )
