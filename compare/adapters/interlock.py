"""interlock-cb: its breaker as a decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import interlock


def breaking(work: Callable[[], Any], *, failures: int, recovery: float) -> Callable[[], Any]:
    """As its documentation shows."""
    # what a user adds
    config = interlock.Config(minimum_number_of_calls=failures, wait_duration_in_open=recovery)
    payments = interlock.CircuitBreaker(name="payments", config=config)
    charge = payments(work)
    # until here
    return charge
