"""
One process of a race: claims keys of a store, or changes what stands there, and says where it was the one.

    python -m onceward.testing.racer URL SCOPE HOW_MANY NAME [claim|change [blocking|awaiting [MODULE:NAME]]]

It opens the store (by its URL, or by a function), and prints `ready`. For each of the keys k0, k1, ... it waits for a
line on its standard input, so that all of them start together, claims the key, and prints `done`. In the end it prints
one line of JSON: the keys it won, and which version it saw standing at each key. To change, it first reads what stands
at each key; then it settles all of them, each from the version it read.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from onceward.runtime.environment import REAL
from onceward.runtime.flow_driver import drive_steps, drive_steps_async
from onceward.stores import open_async_store, open_store
from onceward.testing.store_suite.rows import row, settled


def main(argv: Sequence[str]) -> int:
    """Race; `argv` as above."""
    url, scope, keys, name, *more = argv
    what, colour, opener = (*more, *("claim", "blocking", "")[len(more) :])
    steps = race(scope, int(keys), name, changes=what == "change")
    if colour == "awaiting":
        asyncio.run(_awaiting(url, opener, steps))
    else:
        take_all(open_for(url, opener, awaits=False), steps)
    return 0


Steps = Generator[Callable[[Any], Any], Any, None]
"""Yields what to ask of the store, and is sent the answers."""


def race(scope: str, keys: int, name: str, *, changes: bool) -> Steps:
    """The race of one process."""
    claims = [row(scope, f"k{n}", operation=name) for n in range(keys)]
    yield lambda store: store.load(row(scope).id)  # Opened in earnest, so that the race is about what it is about.
    writes: list[tuple[Any, bytes | None]] = [(claim, None) for claim in claims]
    if changes:
        writes = []
        for claim in claims:
            held = yield partial(_load, claim.id)
            writes.append((settled(held, result=name.encode()), held.version))
    print("ready", flush=True)
    won: list[str] = []
    seen: dict[str, str] = {}
    for write, expect in writes:
        sys.stdin.readline()
        standing = yield partial(_put, write, expect)
        won += [write.key] if standing.landed else []
        seen |= {write.key: standing.record.version.hex()} if standing.record is not None else {}
        print("done", flush=True)
    yield lambda store: store.close()
    print(json.dumps({"won": won, "seen": seen}))


def _load(id: bytes, store: Any) -> Any:
    return store.load(id)


def _put(write: Any, expect: bytes | None, store: Any) -> Any:
    return store.put(write, expect)


def open_for(url: str, opener: str, *, awaits: bool) -> Any:
    """The store, by its URL or by the function that is meant."""
    if opener:
        from onceward.testing.store_suite.store_under_test import (
            import_object,  # Here: pytest need not be there for a URL.
        )

        return import_object(opener)(url, environment=REAL)
    return open_async_store(url) if awaits else open_store(url)


def take_all(store: Any, steps: Steps) -> None:
    """Take all steps on a blocking store."""
    drive_steps(steps, lambda call: call(store))


async def take_all_async(store: Any, steps: Steps) -> None:
    """Take all steps on an awaiting store."""
    await drive_steps_async(steps, lambda call: call(store))


async def _awaiting(url: str, opener: str, steps: Steps) -> None:
    await take_all_async(open_for(url, opener, awaits=True), steps)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
