"""
One process whose clock is wrong: it writes to a store, reads from it, and says what it was shown.

    python -m onceward.testing.skewed URL SCOPE SECONDS blocking|awaiting [MODULE:NAME]

Every clock that Python tells the time of day by is off by so many seconds before the store is imported. It claims the
key `skewed` for an hour, loads it and the key `fair`, and prints one line of JSON: when its own claim began and how
much of it is left, and how much is left of the other one, all in microseconds as the store shows them.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from onceward.testing.conformance.rows import HOUR_US, row
from onceward.testing.racer import Steps, open_for, take_all, take_all_async


def main(argv: Sequence[str]) -> int:
    """Write and read; `argv` as above."""
    url, scope, seconds, colour, *opener = argv
    set_wrong(int(seconds))
    steps = _steps(scope)
    if colour == "awaiting":
        asyncio.run(_awaiting(url, "".join(opener), steps))
    else:
        take_all(open_for(url, "".join(opener), awaits=False), steps)
    return 0


def set_wrong(seconds: int) -> None:
    """Let every clock for the time of day be off by so many seconds, for whoever asks Python."""
    now, now_ns, of, of_ns = time.time, time.time_ns, time.clock_gettime, time.clock_gettime_ns
    split, local = time.gmtime, time.localtime
    real: Any = datetime.datetime
    off = datetime.timedelta(seconds=seconds)

    class Kind(type):
        """So that instants from elsewhere are still instants."""

        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, real)

    class Wrong(real, metaclass=Kind):  # type: ignore[misc]
        """An instant, of a clock that is off."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + off

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(datetime.UTC).replace(tzinfo=None) + off

        @classmethod
        def today(cls) -> Any:
            return real.now() + off

    wrong: dict[str, Any] = {
        "time": lambda: now() + seconds,
        "time_ns": lambda: now_ns() + seconds * 1_000_000_000,
        "clock_gettime": lambda clock: of(clock) + (seconds if clock == time.CLOCK_REALTIME else 0),
        "clock_gettime_ns": lambda clock: of_ns(clock) + (seconds * 10**9 if clock == time.CLOCK_REALTIME else 0),
        "gmtime": lambda at=None: split(now() + seconds if at is None else at),
        "localtime": lambda at=None: local(now() + seconds if at is None else at),
    }
    for name, clock in wrong.items():
        setattr(time, name, clock)
    datetime.datetime = Wrong  # type: ignore[misc]


def _steps(scope: str) -> Steps:
    write = row(scope, "skewed", lease=HOUR_US)
    yield lambda store: store.put(write, None)
    own = yield lambda store: store.load(write.id)
    fair = yield lambda store: store.load(row(scope, "fair").id)
    yield lambda store: store.close()
    print(json.dumps({"first_at": own.first_at, "own_left": own.lease_left, "fair_left": fair.lease_left}))


async def _awaiting(url: str, opener: str, steps: Steps) -> None:
    await take_all_async(open_for(url, opener, awaits=True), steps)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
