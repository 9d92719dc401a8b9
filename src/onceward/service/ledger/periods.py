"""
Periods: months in UTC, written 2026-11. As texts they sort as they follow one another.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from onceward._core.errors import RequestInvalid
from onceward._core.operation import to_datetime

_SPELLED = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])", re.ASCII)


@lru_cache(maxsize=64)  # The entries of a batch are of one instant.
def period_at(micros: int) -> str:
    """The period that an instant is in."""
    at = to_datetime(micros)
    return f"{at.year:04}-{at.month:02}"  # A tenth of the time that strftime takes.


def period_after(period: str) -> str:
    """The next one."""
    year, month = int(period[:4]), int(period[5:])
    return f"{year + 1:04}-01" if month == 12 else f"{year:04}-{month + 1:02}"


def period_start(period: str) -> int:
    """The instant at which a period begins, in microseconds since 1970."""
    return int(datetime(int(period[:4]), int(period[5:]), 1, tzinfo=UTC).timestamp()) * 1_000_000


def check_period(period: str) -> str:
    """Give the period back if it is one."""
    if _SPELLED.fullmatch(period):
        return period
    raise RequestInvalid("the period is not valid: send a month in UTC, such as 2026-11")
