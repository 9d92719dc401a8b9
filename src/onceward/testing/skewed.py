"""
One process whose clock is wrong: it writes to a store, reads from it, and says what it was shown.

    python -m onceward.testing.skewed URL SCOPE SECONDS blocking|awaiting [MODULE:NAME]

Every clock that Python tells the time of day by is off by so many seconds before the store is imported. It claims the
key `skewed` for an hour, settles the key `ended` to replay for an hour, gives the family of `step` another hour,
purges, puts back what a mark forbids and what one no longer forbids, and prints one line of JSON: the instants and the
hours that it was shown, in microseconds, and which of the two it could put back.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from onceward.stores import Selection, Write
from onceward.testing.racer import Steps, open_for, take_all, take_all_async
from onceward.testing.store_suite.rows import HOUR_US, row, settled


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


def family_of(scope: str) -> bytes:
    """The family of the record `step`."""
    return sha256(scope.encode()).digest()


def mark_of(write: Write) -> bytes:
    """The id of the mark that stands in the way of a write; it begins as the write's own does."""
    return write.id[:1] + sha256(write.id).digest()[1:]


def _steps(scope: str) -> Steps:
    write, ended = row(scope, "skewed", lease=HOUR_US), row(scope, "ended")
    refused, allowed = row(scope, "refused"), row(scope, "allowed")
    fair = row(scope, "fair")
    yield lambda store: store.put(write, None)
    own = yield lambda store: store.load(write.id)
    loaded = yield lambda store: store.load(fair.id)
    lost = yield lambda store: store.put(fair, None)
    page = yield lambda store: store.scan(b"", 100, Selection(scope=scope))
    held = yield lambda store: store.put(ended, None)
    end = settled(held.record, replay=HOUR_US, forget=HOUR_US)
    settling = yield lambda store: store.put(end, held.record.version)
    yield lambda store: store.extend(family_of(scope), HOUR_US, HOUR_US)
    yield lambda store: store.purge(100)
    backs = []
    for back in (refused, allowed):
        standing = yield partial(_put_back, back)
        backs.append(standing.landed)
    yield lambda store: store.close()
    hours = {
        "own": own.lease_left,
        "loaded": loaded.lease_left,
        "lost": lost.record.lease_left,
        **{f"page: {found.key}": found.lease_left for found in page if found.lease_left is not None},
        "replay": settling.record.replay_left,
        "forget": settling.record.forget_left,
    }
    instants = {"first_at": own.first_at, "settled_at": settling.record.settled_at, "fence": own.fence}
    print(json.dumps({"hours": hours, "instants": instants, "backs": backs}))


def _put_back(write: Write, store: Any) -> Any:
    return store.put_back(write, (mark_of(write),))


async def _awaiting(url: str, opener: str, steps: Steps) -> None:
    await take_all_async(open_for(url, opener, awaits=True), steps)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
