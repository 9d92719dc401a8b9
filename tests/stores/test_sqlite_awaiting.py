"""The awaiting colour: nothing blocks the loop, and no caller's end is another's."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlite_support import claimed, in_thread, key, lead_held, put_settled, settled, statements_of, until

from onceward._core.errors import StoreUnavailable
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.runtime import failpoints
from onceward.stores import _group_commit
from onceward.stores import _sqlite_rows as rows
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AsyncSqliteStore]:
    store = AsyncSqliteStore(tmp_path / "store.db")
    yield store
    failpoints.disarm()
    store._database.close()


def test_tasks_that_wait_together_share_one_transaction(store: AsyncSqliteStore) -> None:
    """
    Fifty tasks, a handful of transactions; the loop is woken once for each.
    """

    async def main() -> tuple[list[Any], int]:
        loop = asyncio.get_running_loop()
        wakes = 0
        real = loop.call_soon_threadsafe

        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return real(*arguments, **options)

        loop.call_soon_threadsafe = counting  # type: ignore[method-assign]
        with lead_held(store) as queued:
            futures = [store.put(claimed(key(number)), None) for number in range(50)]
            queued(50)
        return await asyncio.gather(*futures), wakes

    with statements_of(store) as seen:
        answers, wakes = asyncio.run(main())

    assert [answer.landed for answer in answers] == [True] * 50
    assert (seen.count("COMMIT"), wakes) == (1, 1)


def test_a_cancelled_caller_does_not_undo_its_write_nor_anybody_elses(store: AsyncSqliteStore) -> None:
    """
    A put is under way when it returns: cancelling the task that awaits it cancels the waiting only.
    """

    async def main() -> tuple[bool, Any]:
        async def caller(number: int) -> Any:
            return await store.put(claimed(key(number)), None)

        with lead_held(store) as queued:
            tasks = [asyncio.create_task(caller(number)) for number in range(3)]
            await asyncio.sleep(0)
            queued(3)
            tasks[1].cancel()
            await asyncio.sleep(0)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        until(lambda: store._database.commits.is_free())
        return [answers[0].landed, answers[2].landed], await store.load(key(1))

    landed, cancelled = asyncio.run(main())

    assert landed == [True, True]
    assert cancelled is not None


def test_a_put_that_nobody_awaits_lands(store: AsyncSqliteStore) -> None:
    """
    The loop may be closing: what was put is put, awaited or not, and a closed loop troubles nobody.
    """

    async def leave() -> None:
        store.put(claimed(key(1)), None)
        store.put(claimed(key(2)), None)

    with lead_held(store) as queued:
        asyncio.run(leave())
        queued(2)

    async def look() -> Any:
        return await store.put(claimed(key(3)), None), await store.load(key(1)), await store.load(key(2))

    standing, *found = asyncio.run(look())

    assert standing.landed
    assert None not in found


def test_a_cancelled_caller_hears_of_it_when_its_write_has_landed(store: AsyncSqliteStore) -> None:
    """
    A write that is under way is finished first: its caller does not go on while nobody knows whether it landed.
    """

    async def main() -> tuple[bool, bool, Any]:
        async def caller() -> Any:
            return await store.put(claimed(key(1)), None)

        with lead_held(store) as queued:
            task = asyncio.create_task(caller())
            await asyncio.sleep(0)
            queued(1)
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            waited = not task.done()
        await asyncio.gather(task, return_exceptions=True)
        return waited, task.cancelled(), await store.load(key(1))

    waited, cancelled, found = asyncio.run(main())

    assert (waited, cancelled) == (True, True)
    assert found is not None


class TestALoopThatStops:
    """In a crowd the worker is woken when the loop has gone around; a loop may stop before that."""

    def stopped_after_a_put(self, store: AsyncSqliteStore) -> asyncio.AbstractEventLoop:
        """A loop that stops in the very turn in which a write was put."""
        store._database.commits._crowded = True
        loop = asyncio.new_event_loop()

        def last_turn() -> None:
            loop.stop()
            store.put(claimed(key(1)), None)

        loop.call_soon(last_turn)
        loop.run_forever()
        return loop

    @pytest.mark.parametrize("colour", ["blocking", "awaiting"])
    def test_whoever_comes_next_has_its_write_made_too(
        self, store: AsyncSqliteStore, monkeypatch: pytest.MonkeyPatch, colour: str
    ) -> None:
        """
        Nobody waits for a loop that has stopped, and what it put lands.
        """
        monkeypatch.setattr(_group_commit, "WORKER_IDLE_SECONDS", 3_600.0)
        loop = self.stopped_after_a_put(store)

        async def awaiting() -> Any:
            return await store.put(claimed(key(2)), None)

        if colour == "blocking":
            standing = in_thread(lambda: SqliteStore(store.path, database=store._database).put(claimed(key(2)), None))()
        else:
            standing = in_thread(lambda: asyncio.run(awaiting()))()
        loop.close()

        assert standing.landed
        assert SqliteStore(store.path, database=store._database).load(key(1)) is not None

    def test_a_write_lands_also_if_nobody_comes(self, store: AsyncSqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The worker looks around by itself, if late.
        """
        monkeypatch.setattr(_group_commit, "WORKER_IDLE_SECONDS", 0.05)
        self.stopped_after_a_put(store).close()
        blocking = SqliteStore(store.path, database=store._database)
        until(lambda: blocking.load(key(1)) is not None)

        assert blocking.load(key(1)) is not None


def test_two_loops_share_one_store(store: AsyncSqliteStore) -> None:
    """
    Each loop hears its own answers, also when they come from the same batch.
    """

    def in_a_loop(first: int) -> Any:
        async def main() -> list[Any]:
            return list(await asyncio.gather(*(store.put(claimed(key(first + n)), None) for n in range(20))))

        return in_thread(lambda: asyncio.run(main()))

    with lead_held(store) as queued:
        loops = [in_a_loop(100), in_a_loop(200)]
        queued(40)
    answers = [answer for loop in loops for answer in loop()]

    assert [answer.landed for answer in answers] == [True] * 40
    assert len({answer.record.id for answer in answers}) == 40


def test_both_colours_share_batches_on_one_database(store: AsyncSqliteStore) -> None:
    """
    Blocking and awaiting callers of one database queue in the same line, and whoever leads answers both.
    """
    blocking = SqliteStore(store.path, database=store._database)

    async def main() -> Any:
        return await asyncio.gather(*(store.put(claimed(key(n)), None) for n in range(5)))

    with lead_held(store) as queued:
        loop = in_thread(lambda: asyncio.run(main()))
        queued(5)
        threads = [in_thread(lambda n=n: blocking.put(claimed(key(10 + n)), None)) for n in range(5)]
        queued(10)
    answers = [*loop(), *(thread() for thread in threads)]
    with lead_held(store) as queued:
        thread = in_thread(lambda: blocking.put(claimed(key(20)), None))
        queued(1)
        loop = in_thread(lambda: asyncio.run(main()))
        until(lambda: len(store._database.commits.queue) >= 1)

    assert [answer.landed for answer in answers] == [True] * 10
    assert thread().landed
    assert [answer.landed for answer in loop()] == [False] * 5


def test_one_bad_row_fails_alone(store: AsyncSqliteStore) -> None:
    """
    The caller of a write that the table refuses gets the error; its companions get their answers.
    """

    async def main() -> list[Any]:
        with lead_held(store) as queued:
            futures = [store.put(claimed(key(n), attempt=2**70 if n == 1 else 1), None) for n in range(3)]
            queued(3)
        return await asyncio.gather(*futures, return_exceptions=True)

    first, bad, last = asyncio.run(main())

    assert isinstance(bad, StoreUnavailable)
    assert [first.landed, last.landed] == [True, True]


def test_a_worker_that_fails_answers_everybody_and_goes_on(store: AsyncSqliteStore) -> None:
    """
    Whatever is raised in the worker, nobody awaits for ever.
    """

    class Strange(BaseException):
        pass

    def fail() -> None:
        raise Strange

    async def main() -> tuple[list[Any], Any]:
        failpoints.arm("sqlite.commit.before", fail)
        with lead_held(store) as queued:
            futures = [store.put(claimed(key(n)), None) for n in range(3)]
            queued(3)
        answers = await asyncio.gather(*futures, return_exceptions=True)
        failpoints.disarm()
        return answers, await store.put(claimed(key(9)), None)

    answers, after = asyncio.run(main())

    assert [StoreUnavailable] * 3 == [type(answer) for answer in answers]
    assert after.landed


def test_an_idle_worker_ends_and_another_is_started(store: AsyncSqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A store that nobody uses keeps no thread.
    """
    monkeypatch.setattr(_group_commit, "WORKER_IDLE_SECONDS", 0.01)

    async def main() -> list[bool]:
        landed = [(await store.put(claimed(key(1)), None)).landed]
        [worker] = store._database.commits._workers
        worker.join(10)
        assert not store._database.commits._workers
        landed.append((await store.put(claimed(key(2)), None)).landed)
        return landed

    assert asyncio.run(main()) == [True, True]


def test_reads_are_answered_at_once_while_a_write_is_under_way(store: AsyncSqliteStore) -> None:
    """
    A glance and a load do not wait for anybody's commit.
    """
    put_settled(SqliteStore(store.path, database=store._database), key(1))

    async def main() -> Any:
        await store.load(key(1))
        with lead_held(store):
            return store.peek(key(1)), await store.load(key(1))

    seen, record = asyncio.run(main())

    assert [seen.result, record.result] == [b'"paid"'] * 2


def test_when_a_read_is_in_the_way_the_worker_asks(store: AsyncSqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A busy file does not block the loop: the read is handed to the worker, and the answer is the same.
    """
    put_settled(SqliteStore(store.path, database=store._database), key(1))
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    here = threading.get_ident()
    real = rows.find

    def locked_on_the_loop(*arguments: Any) -> Any:
        if threading.get_ident() == here:
            raise busy
        return real(*arguments)

    monkeypatch.setattr(rows, "find", locked_on_the_loop)

    async def main() -> Any:
        return await store.load(key(1)), await store.put(claimed(key(1)), None)

    record, standing = asyncio.run(main())

    assert record is not None
    assert (False, record.version) == (standing.landed, standing.record.version)


def test_every_method_awaits(store: AsyncSqliteStore) -> None:
    """
    Claim, settle, load, scan, extend, purge and close: the same answers as from the blocking store.
    """

    async def main() -> list[Any]:
        held = (await store.put(claimed(key(1), family=b"plan"), None)).record
        assert held is not None
        standing = await store.put(settled(held), held.version)
        page = await store.scan(b"", 10, Selection())
        extended = await store.extend(b"plan", 10**12, 10**12)
        purged = await store.purge(10)
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.put(claimed(key(2)), None)
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.put(claimed(key(2)), b"v")
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.load(key(1))
        return [standing.landed, [record.id for record in page], extended, purged]

    assert [True, [key(1)], 1, PurgeResult(0, 0)] == asyncio.run(main())


def test_an_error_is_the_futures_and_not_the_calls(store: AsyncSqliteStore) -> None:
    """
    `put` returns a future whatever happens, so that an engine has one place to look.
    """
    store._database.close()

    async def main() -> list[Any]:
        futures = [store.put(claimed(key(1)), None), store.load(key(1)), store.purge(1)]
        return await asyncio.gather(*futures, return_exceptions=True)

    assert [StoreUnavailable] * 3 == [type(answer) for answer in asyncio.run(main())]


def test_tasks_of_one_round_look_together(store: AsyncSqliteStore) -> None:
    """
    By one statement, whatever their number; what is not there is not found. After a write the look is left to `peek`,
    and a store that is closed has no answer.
    """

    async def main() -> list[Any]:
        ids = [key(number) for number in range(40)]
        for id in ids:
            held = (await store.put(claimed(id), None)).record
            assert held is not None
            await store.put(settled(held), held.version)
        after_a_write = store.look(ids[0])
        await store.load(ids[0])
        looks = [store.look(id) for id in (*ids, key(99))]
        found = [one and one.state for one in await asyncio.gather(*[one for one in looks if one is not None])]
        late = store.look(ids[0])
        assert late is not None
        store._database.close()
        return [after_a_write, found, await late]

    assert asyncio.run(main()) == [None, [*["settled"] * 40, None], None]
