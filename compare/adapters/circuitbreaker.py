"""circuitbreaker: its decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from circuitbreaker import circuit


def breaking(work: Callable[[], Any], *, failures: int, recovery: float) -> Callable[[], Any]:
    """As its documentation shows."""
    # what a user adds
    charge = circuit(failure_threshold=failures, recovery_timeout=recovery)(work)
    # until here
    return charge
