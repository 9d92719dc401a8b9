"""pybreaker: its decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pybreaker


def breaking(work: Callable[[], Any], *, failures: int, recovery: float) -> Callable[[], Any]:
    """As its documentation shows."""
    # what a user adds
    payments = pybreaker.CircuitBreaker(fail_max=failures, reset_timeout=recovery)
    charge = payments(work)
    # until here
    return charge
