"""Looks on an event loop: of ids that were seen settled, many at once, and never in the way of a first call."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from onceward.stores.postgres import AsyncPostgresStore
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import needed

needed()

SCOPE = "test:looks"


async def _settled(store: AsyncPostgresStore, *keys: str) -> list[bytes]:
    held = [(await store.put(row(SCOPE, key), None)).record for key in keys]
    for number, one in enumerate(held):
        assert one is not None
        await store.put(settled(one, result=b"%d" % number), one.version)
    return [one.id for one in held if one is not None]


@pytest.mark.fault("a-first-call-on-postgresql-waits-for-a-look")
def test_only_what_was_seen_settled_is_looked_at(url: str) -> None:
    """
    Of any other id it is said at once that there is no look; of one that is gone, from the first look on.
    """

    async def main() -> list[Any]:
        store = AsyncPostgresStore.from_url(url)
        before = store.look(bytes(32))
        held = (await store.put(row(SCOPE, "held"), None)).record
        assert held is not None
        claimed = store.look(held.id)
        [id] = await _settled(store, "k")
        looking = store.look(id)
        assert looking is not None
        seen = await looking
        assert seen is not None
        await store.erase([id])
        gone = store.look(id)
        assert gone is not None
        found = [before, claimed, store.look(b"\1" * 32), seen.result, await gone, store.look(id)]
        await store.close()
        return found

    assert asyncio.run(main()) == [None, None, None, b"0", None, None]


def test_a_crowd_shares_a_read_and_a_commit_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Twenty looks are one statement, while a put waits for a row that somebody else holds.
    """
    sent: list[int] = []

    async def main() -> list[bytes | None]:
        store = AsyncPostgresStore.from_url(url)
        ids = await _settled(store, *[f"k{number}" for number in range(20)])
        pool = store._here().pool
        look = pool.look

        async def noted(asked: list[bytes]) -> Any:
            sent.append(len(asked))
            return await look(asked)

        monkeypatch.setattr(store._here().looks, "_read", noted)
        held = (await store.put(row(SCOPE, "locked"), None)).record
        assert held is not None
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("SELECT 1 FROM onceward_records WHERE id = %s FOR UPDATE", [held.id])
            waiting = store.put(settled(held), held.version)
            looks = [store.look(id) for id in ids]
            found = [await one for one in looks if one is not None]
            assert not waiting.done()
            await other.rollback()
        await waiting
        await store.close()
        return [None if one is None else one.result for one in found]

    assert asyncio.run(main()) == [b"%d" % number for number in range(20)]
    assert sent == [20]


def test_a_look_on_a_line_that_broke_is_no_answer(url: str) -> None:
    """
    The next one is on another line.
    """

    async def main() -> list[Any]:
        store = AsyncPostgresStore.from_url(url)
        [id] = await _settled(store, "k")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
            for one in store._here().pool._pooled:
                await other.execute("SELECT pg_terminate_backend(%s)", [one.connection.info.backend_pid])
        came = []
        for _ in range(2):
            looking = store.look(id)
            assert looking is not None
            came.append(await looking)
        await store.close()
        return [came[0], came[1] and came[1].result]

    assert asyncio.run(main()) == [None, b"0"]


def test_two_connections_leave_none_for_looks(url: str) -> None:
    """
    One is for writes, one for callers that wait: replays are claims then, as they were.
    """
    joint = "&" if "?" in url else "?"

    stores = [AsyncPostgresStore.from_url(f"{url}{joint}onceward_pool={pool}") for pool in (2, 3, 4, 8)]

    assert [store.capabilities.look is not None for store in stores] == [False, True, True, True]
    assert [store.target.looks for store in stores] == [0, 1, 2, 2]
