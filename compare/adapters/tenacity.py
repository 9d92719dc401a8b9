"""tenacity: its decorator with a number of attempts, a limit in all that looks ahead, and a wait of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenacity import RetryCallState, retry, stop_after_attempt, stop_before_delay, wait_none

from compare.limited import Limited, limited

__all__ = ["limited", "retrying"]


def obedient(state: RetryCallState) -> float:
    """A wait of one's own, as its documentation shows: a function of the state."""
    error = state.outcome.exception() if state.outcome else None
    return error.seconds if isinstance(error, Limited) else 0.0


def retrying(work: Callable[[], Any], *, attempts: int, total: float | None = None) -> Callable[[], Any]:
    """As its documentation shows."""
    if total is not None:
        limited_in_all = retry(
            stop=stop_before_delay(total) | stop_after_attempt(attempts), wait=obedient, reraise=True
        )
        return limited_in_all(work)
    # what a user adds
    charge = retry(stop=stop_after_attempt(attempts), wait=wait_none(), reraise=True)(work)
    # until here
    return charge
