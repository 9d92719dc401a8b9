"""stamina: its decorator; a hook that returns a number says how long to wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stamina

from compare.limited import Limited, limited

__all__ = ["limited", "retrying"]


def obedient(error: Exception) -> bool | float:
    """What is retried; a number is the server's wait."""
    return error.seconds if isinstance(error, Limited) else isinstance(error, ConnectionError)


def retrying(work: Callable[[], Any], *, attempts: int, total: float | None = None) -> Callable[[], Any]:
    """As its documentation shows."""
    if total is not None:
        return stamina.retry(on=obedient, attempts=attempts, timeout=total)(work)
    # what a user adds
    charge = stamina.retry(on=ConnectionError, attempts=attempts, wait_initial=0, wait_jitter=0)(work)
    # until here
    return charge
