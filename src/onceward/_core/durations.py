"""
Durations: people give seconds or `timedelta`, the rules count whole microseconds.
"""

from __future__ import annotations

import math
from datetime import timedelta

from onceward._core.display_text import python_kind
from onceward._core.errors import ConfigurationError

SECOND = 1_000_000
"""Microseconds."""

DURATION_MAX = 10 * 365 * 86_400 * SECOND
"""Ten years: beyond it a duration is a mistake, and the instants still fit every store's integer."""


def microseconds(value: float | timedelta, name: str, *, zero: bool = False) -> int:
    """A duration as whole microseconds. Zero (unless allowed), negative, NaN, infinite and boolean ones are refused."""
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{name} takes seconds or a timedelta, not {python_kind(value)}")
    elif isinstance(value, int) and abs(value) > DURATION_MAX:
        raise ConfigurationError(f"{name} must be at most ten years")
    elif not math.isfinite(value):
        raise ConfigurationError(f"{name} must be finite, not {value}")
    else:
        micros = round(value * SECOND)
    if micros < 0 or (micros == 0 and not zero):
        raise ConfigurationError(f"{name} must be greater than zero, not {value}")
    if micros > DURATION_MAX:
        raise ConfigurationError(f"{name} must be at most ten years, not {value}")
    return micros


def format_micros(micros: int) -> str:
    """A duration for people: 86400000000 -> '24 h'."""
    for unit, size in (("days", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND), ("s", SECOND)):
        if micros >= 2 * size and micros % size == 0:
            return f"{micros // size} {unit}"
    if micros % SECOND == 0:
        return f"{micros // SECOND} s"
    return f"{micros / SECOND:g} s"
