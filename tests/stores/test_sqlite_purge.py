"""How a purge of SQLite finds what is due without an index of all rows: blocks, and the youngest rows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlite_support import HOUR, SECOND, Clock, claimed, key, put_settled, settled, statements_of

from onceward._core.record import Record, release
from onceward._core.store_protocols import PurgeResult
from onceward.stores import _sqlite_purge as purging
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore

BLOCK = purging.BLOCK
# When a row is found at the latest. Second attempts are, in these tests, what a purge may have seen in flight.
FOUND = f"""CASE attempt WHEN 1 THEN {purging._DUE}
ELSE max({purging._DUE}, settled_at + max(settled_at - first_at, {purging.LOOK_AGAIN})) END"""
LATE = f"""
SELECT count(*) FROM onceward_records JOIN onceward_blocks ON block = onceward_records.rowid / 128
WHERE {purging._ENDED} AND {FOUND} < onceward_blocks.due"""
LOST = """
SELECT count(*) FROM onceward_records WHERE rowid / 128 <= (SELECT max(block) FROM onceward_blocks)
AND rowid / 128 NOT IN (SELECT block FROM onceward_blocks)"""
DUE = f"SELECT count(*) FROM onceward_records WHERE {purging._ENDED} AND {FOUND} <= "


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    """A store that does not wait for the disk."""
    opened = SqliteStore(tmp_path / "a.db", synchronous="normal", environment=clock)
    yield opened
    opened.close()


def writer_of(store: SqliteStore) -> sqlite3.Connection:
    """The connection by which it writes."""
    writer = store._database.connections.writer
    assert writer is not None
    return writer.connection


def asked(store: SqliteStore, sql: str) -> Any:
    """One value of the file's."""
    return writer_of(store).execute(sql).fetchone()[0]


def fill(store: SqliteStore, count: int, *, first: int = 0, **changes: Any) -> list[Record]:
    """So many settled records."""
    return [put_settled(store, key(first + number), **changes) for number in range(count)]


class TestBlocks:
    """Which rows are looked at."""

    @pytest.mark.fault("a-block-is-forgotten")
    def test_a_block_comes_again_when_its_next_row_is_due(self, store: SqliteStore, clock: Clock) -> None:
        """
        Rows of one block that are kept for one, two and three seconds.
        """
        for number in range(30):
            put_settled(store, key(number), replay=HOUR, forget=(1 + number % 3) * SECOND)
        fill(store, 9 * BLOCK, first=100)
        store.purge(1)
        purged = []
        for _ in range(4):
            clock.now += SECOND
            purged.append(store.purge(100).forgotten)

        assert purged == [10, 10, 10, 0]

    @pytest.mark.fault("the-youngest-rows-are-not-looked-through")
    def test_a_purge_reads_what_is_due_and_no_more(self, store: SqliteStore, clock: Clock) -> None:
        """
        With twice as many rows a look in vain takes the same steps of SQLite, and so does a purge of ten rows.
        """
        taken = []
        for size in (20, 40):
            fill(store, size * BLOCK - asked(store, "SELECT count(*) FROM onceward_records"), first=size * BLOCK)
            store.purge(10)
            fill(store, 10, first=size * 1_000_000, forget=SECOND)
            clock.now += SECOND
            with steps_of(store) as steps:
                purged = store.purge(100)
                done = steps[0]
                in_vain = store.purge(100)
            taken.append((done, steps[0] - done))
            assert (purged, in_vain) == (PurgeResult(10, 0), PurgeResult(0, 0))

        assert taken[1][0] <= 1.2 * taken[0][0], taken
        assert taken[1][1] <= 1.2 * taken[0][1] + 1, taken

    @pytest.mark.fault("a-purge-in-vain-takes-the-write-lock")
    def test_a_purge_in_vain_keeps_no_writer_waiting(self, store: SqliteStore) -> None:
        """
        It is a look: nothing begins a transaction, and nothing is written.
        """
        fill(store, 3)
        with statements_of(store) as statements:
            assert store.purge(100) == PurgeResult(0, 0)

        assert [one for one in statements if not one.lstrip().startswith("SELECT")] == []

    @pytest.mark.fault("a-block-with-a-row-in-flight-is-not-looked-at-again")
    def test_a_row_that_was_in_flight_when_its_block_was_noted_is_found(self, store: SqliteStore, clock: Clock) -> None:
        """
        It ends soon afterwards, and all others are kept for long: it is found after a minute.
        """
        held = store.put(claimed(key(1)), None).record
        assert held is not None
        fill(store, 9 * BLOCK, first=100, replay=1000 * HOUR, forget=1000 * HOUR)
        store.purge(10)
        noted = asked(store, "SELECT count(*) FROM onceward_blocks")
        store.put(settled(held, replay=SECOND, forget=SECOND), held.version)
        clock.now += 60 * SECOND

        assert noted == 9
        assert store.purge(10) == PurgeResult(1, 0)
        assert store.purge(10) == PurgeResult(0, 0)

    @pytest.mark.fault("a-row-in-flight-is-looked-at-every-minute")
    def test_what_is_long_in_flight_is_looked_at_less_and_less_often(self, store: SqliteStore, clock: Clock) -> None:
        """
        Purged every minute for a thousand minutes: its block is looked through ten times, and for twice as long eleven.
        """
        assert store.put(claimed(key(1)), None).landed
        fill(store, 9 * BLOCK, first=100, replay=1000 * HOUR, forget=1000 * HOUR)
        store.purge(10)
        looks = []
        with statements_of(store) as statements:
            for _ in range(2):
                for _ in range(1000):
                    clock.now += 60 * SECOND
                    store.purge(10)
                looks.append(sum(one.startswith("UPDATE onceward_blocks") for one in statements))

        assert looks == [10, 11]

    @pytest.mark.fault("a-row-that-is-due-earlier-is-found-later")
    @pytest.mark.parametrize("unclaimed", [False, True])
    def test_a_row_that_is_claimed_once_more_is_found(self, store: SqliteStore, clock: Clock, unclaimed: bool) -> None:
        """
        It was released, its block was noted, and then it ends under a second claim, or without one, and is kept for a
        second. It is found when the lease of that claim would have been over.
        """
        held = store.put(claimed(key(1)), None).record
        assert held is not None
        released = store.put(release(held, version=b"r" * 16, forget=1000 * HOUR), held.version).record
        assert released is not None
        fill(store, 9 * BLOCK, first=100, replay=1000 * HOUR, forget=1000 * HOUR)
        store.purge(10)
        again = claimed(key(1), fence=released.fence + 1)
        if unclaimed:
            ended: dict[str, Any] = {"state": "settled", "lease": None, "replay": SECOND, "forget": SECOND}
            assert store.put(again._replace(**ended), released.version).landed
            clock.now += SECOND
        else:
            second = store.put(again, released.version).record
            assert second is not None
            assert store.put(settled(second, replay=SECOND, forget=SECOND), second.version).landed
            clock.now += 30 * SECOND

        assert store.purge(10) == PurgeResult(1, 0)

    @pytest.mark.fault("what-ends-a-claim-runs-a-trigger")
    def test_the_usual_ending_runs_no_trigger(self, store: SqliteStore) -> None:
        """
        SQLite's own program of the statement: the record is written, and no index and no other table.
        """
        held = store.put(claimed(key(1)), None).record
        assert held is not None
        with statements_of(store) as statements:
            store.put(settled(held), held.version)
        ending = next(one for one in statements if one.startswith("UPDATE onceward_records"))
        plan = writer_of(store).execute(f"EXPLAIN {ending}").fetchall()

        assert [row[1] for row in plan if row[1] in ("Program", "Insert", "IdxInsert")] == ["Insert"]

    @pytest.mark.fault("a-number-given-again-is-in-an-old-block")
    def test_rows_that_get_old_numbers_are_found(self, store: SqliteStore, clock: Clock) -> None:
        """
        The greatest numbers are deleted, and SQLite gives them again.
        """
        fill(store, 9 * BLOCK, replay=1000 * HOUR, forget=1000 * HOUR)
        store.purge(10)
        store.erase([key(number) for number in range(3 * BLOCK + 10, 9 * BLOCK)])
        ended: dict[str, Any] = {"state": "settled", "lease": None, "replay": SECOND, "forget": SECOND}
        for number in range(7 * BLOCK):
            store.put(claimed(key(1_000_000 + number), **ended), None)
        clock.now += SECOND

        assert store.purge(1000) == PurgeResult(7 * BLOCK, 0)

    @pytest.mark.fault("a-purge-ends-before-everything-is-seen")
    @pytest.mark.parametrize("awaits", [False, True])
    def test_one_purge_sees_all_that_was_never_seen(self, tmp_path: Path, clock: Clock, awaits: bool) -> None:
        """
        Nobody has purged for forty blocks, and what is due is in the last of them.
        """
        store = SqliteStore(tmp_path / "a.db", synchronous="normal", environment=clock)
        fill(store, 40 * BLOCK)
        fill(store, 5, first=1_000_000, forget=SECOND)
        clock.now += SECOND
        if awaits:

            async def purge() -> PurgeResult:
                other = AsyncSqliteStore(tmp_path / "a.db", environment=clock)
                try:
                    return await other.purge(100)
                finally:
                    await other.close()

            purged = asyncio.run(purge())
        else:
            purged = store.purge(100)

        assert purged == PurgeResult(5, 0)
        assert asked(store, "SELECT count(*) FROM onceward_blocks") >= 40 - purging.BLOCKS_WAITING_MAX
        store.close()

    def test_a_file_may_be_vacuumed(self, store: SqliteStore, clock: Clock) -> None:
        """
        Rows keep their numbers, because the table has an index.
        """
        fill(store, 12 * BLOCK, replay=2 * SECOND, forget=2 * SECOND)
        store.erase([key(number) for number in range(3 * BLOCK)])
        store.purge(10)
        noted = asked(store, "SELECT count(*) FROM onceward_blocks")
        before = asked(store, "SELECT group_concat(rowid) FROM onceward_records")
        writer_of(store).execute("VACUUM")
        clock.now += 2 * SECOND

        assert noted == 9
        assert asked(store, "SELECT group_concat(rowid) FROM onceward_records") == before
        assert store.purge(10_000) == PurgeResult(9 * BLOCK, 0)

    @pytest.mark.fault("rows-numbered-anew-are-lost")
    def test_rows_that_somebody_numbered_anew_are_found(self, store: SqliteStore, clock: Clock) -> None:
        """
        SQLite's documentation allows VACUUM to do so: what is noted is noted anew.
        """
        fill(store, 12 * BLOCK, replay=HOUR, forget=HOUR)
        store.erase([key(number) for number in range(3 * BLOCK)])
        store.purge(10)
        fill(store, 5, first=1_000_000, replay=SECOND, forget=SECOND)
        fill(store, 2 * BLOCK, first=2_000_000)
        writer_of(store).execute("DROP TRIGGER onceward_due_earlier")
        writer_of(store).execute(f"UPDATE onceward_records SET rowid = rowid - {3 * BLOCK}")
        clock.now += SECOND

        assert store.purge(100) == PurgeResult(5, 0)
        assert (asked(store, LATE), asked(store, LOST)) == (0, 0)


class PurgeMachine(RuleBasedStateMachine):
    """Whatever is written, kept for however long, and deleted by whomever: what is due is found."""

    folder: Path
    _files = 0

    @initialize()
    def open(self) -> None:
        """A new file."""
        type(self)._files += 1
        self.clock = Clock()
        path = self.folder / f"{self._files}.db"
        self.store = SqliteStore(path, synchronous="normal", environment=self.clock)
        self.last = 0
        self.held: list[Record] = []
        self.released: list[Record] = []

    @rule(count=st.integers(1, 3 * BLOCK), seconds=st.integers(1, 50), kept=st.booleans())
    def settle(self, count: int, seconds: int, kept: bool) -> None:
        """New records."""
        end = None if kept else 2 * seconds * SECOND
        fill(self.store, count, first=self.last, replay=seconds * SECOND, forget=end)
        self.last += count

    @rule(count=st.integers(1, 3))
    def claim(self, count: int) -> None:
        """Records that stay in flight for a while."""
        for _ in range(count):
            record = self.store.put(claimed(key(self.last), attempt=2), None).record
            assert record is not None
            self.held.append(record)
            self.last += 1

    @rule(seconds=st.integers(0, 20))
    def end(self, seconds: int) -> None:
        """Records of before end."""
        for held in self.held:
            self.store.put(settled(held, replay=seconds * SECOND, forget=seconds * SECOND), held.version)
        self.held = []

    @rule(seconds=st.integers(1, 1000))
    def release(self, seconds: int) -> None:
        """Records of before are released, and kept for longer than others."""
        for held in self.held:
            put = self.store.put(release(held, version=b"r" * 16, forget=seconds * SECOND), held.version)
            if put.landed and put.record is not None:
                self.released.append(put.record)
        self.held = []

    @rule()
    def claim_again(self) -> None:
        """What was released is claimed once more."""
        for one in self.released:
            put = self.store.put(claimed(one.id, fence=one.fence + 1, attempt=2), one.version)
            if put.landed and put.record is not None:
                self.held.append(put.record)
        self.released = []

    @rule(share=st.floats(0, 1), some=st.integers(1, 2 * BLOCK))
    def erase(self, share: float, some: int) -> None:
        """Records are gone, also the youngest."""
        first = int(share * self.last)
        self.store.erase([key(number) for number in range(first, min(first + some, self.last + 1))])

    @rule(limit=st.integers(1, 300))
    def purge(self, limit: int) -> None:
        """A purge that may come to its limit."""
        purged = self.store.purge(limit)
        assert sum(purged) <= limit
        if sum(purged) < limit:
            assert asked(self.store, f"{DUE} {self.clock.now}") == 0

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.clock.now += seconds * SECOND

    @invariant()
    def blocks_are_true(self) -> None:
        """No row is due before its block, and none is in a block that is not there."""
        if hasattr(self, "store"):
            assert (asked(self.store, LATE), asked(self.store, LOST)) == (0, 0)

    def teardown(self) -> None:
        """A purge without a limit leaves nothing that is due; and the file is sound."""
        if hasattr(self, "store"):
            self.store.purge(1_000_000)
            assert asked(self.store, f"{DUE} {self.clock.now}") == 0
            assert asked(self.store, "PRAGMA integrity_check") == "ok"
            self.store.close()


@pytest.mark.slow
def test_whatever_is_written_what_is_due_is_found(tmp_path: Path) -> None:
    """
    A machine that writes, erases, waits and purges as chance will have it.
    """
    machine = type("Machine", (PurgeMachine,), {"folder": tmp_path})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=20))


class steps_of:  # noqa: N801 - a context manager
    """Counts hundreds of instructions of SQLite's machine."""

    def __init__(self, store: SqliteStore) -> None:
        self._connection = writer_of(store)
        self._count = [0]

    def __enter__(self) -> list[int]:
        def tick() -> int:
            self._count[0] += 1
            return 0

        self._connection.set_progress_handler(tick, 100)
        return self._count

    def __exit__(self, *_: object) -> None:
        self._connection.set_progress_handler(None, 0)
