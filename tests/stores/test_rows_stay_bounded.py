"""Old keys go by themselves, on every store: the table is as large as what is still needed, and not as what was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncGate, Gate
from onceward.gate.call_factory import PurgeSchedule
from servers import postgres, redis

RUNS = 400
MILLISECOND = 0.001
STORES = ["memory", "sqlite", *(["postgres"] if postgres.wanted() else []), *(["redis"] if redis.wanted() else [])]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    return {
        "postgres": lambda: postgres.running().url("onceward"),
        "redis": lambda: redis.running().url(),
        "sqlite": lambda: f"sqlite:///{tmp_path}/bounded.db",
        "memory": lambda: "memory://",
    }[request.param]()


@pytest.mark.requirement("E31")
@pytest.mark.fault("nothing-is-ever-purged")
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_under_steady_use_the_table_is_no_larger_than_what_was_not_yet_purged(
    url: str, colour: str, tmp_path: Path
) -> None:
    """
    Four hundred keys that nobody needs after a millisecond: at no look are there more rows than between two purges.
    A slow machine only makes it fewer.
    """
    options: dict[str, Any] = {"scope": f"test:{tmp_path.name}", "retain": MILLISECOND, "tombstone": MILLISECOND}
    counts: list[int] = []

    def blocking() -> None:
        with Gate(url, **options) as gate:
            for number in range(RUNS):
                gate.run(f"job:{number}", lambda: None)
                if number % 25 == 24:
                    gate._purger.wait()
                    counts.append(len(list(gate.records.list())))

    async def awaiting() -> None:
        async def nothing() -> None:
            return None

        async with AsyncGate(url, **options) as gate:
            for number in range(RUNS):
                await gate.run(f"job:{number}", nothing)
                if number % 25 == 24:
                    await gate._purger.wait()
                    counts.append(len(list(await gate.records.list())))

    blocking() if colour == "blocking" else asyncio.run(awaiting())

    assert len(counts) == RUNS // 25
    assert max(counts) <= 3 * PurgeSchedule.PURGE_EVERY
    assert max(counts[-4:]) <= 3 * PurgeSchedule.PURGE_EVERY
