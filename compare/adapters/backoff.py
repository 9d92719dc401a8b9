"""backoff: its decorators; `runtime` reads a wait from the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import backoff

from compare.limited import Limited, limited

__all__ = ["limited", "retrying"]


def retrying(work: Callable[[], Any], *, attempts: int, total: float | None = None) -> Callable[[], Any]:
    """As its documentation shows."""

    def named() -> Any:  # It names what it retries, and not everything that is called has a name.
        return work()

    if total is not None:
        obedient = backoff.on_exception(
            backoff.runtime, Limited, value=lambda error: error.seconds, max_tries=attempts, max_time=total, jitter=None
        )
        return obedient(named)
    # what a user adds
    charge = backoff.on_exception(backoff.constant, ConnectionError, max_tries=attempts, interval=0, jitter=None)(named)
    # until here
    return charge
