"""Statements and rows: what is written is what is read, fences only rise, and every index earns its place."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from sqlite_support import HOUR, SECOND, START, Clock, claimed, key, lead_held, put_settled, settled

from onceward._core.errors import StoreContended
from onceward._core.record import NOW, Record, Write, record_from_write
from onceward._core.record_types import FIXED_BY_CLAIM
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.stores import _sqlite_purge as purge
from onceward.stores import _sqlite_rows as rows
from onceward.stores.sqlite import SqliteStore, put_on


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "store.db", environment=clock)
    yield store
    store.close()


_text = some.text(some.characters(exclude_categories=("Cs",)), max_size=20)
_blob = some.binary(max_size=40)
_instant = some.integers(1, 2**52)
_duration = some.integers(-(2**40), 2**40)
writes = some.builds(
    Write,
    id=some.binary(min_size=32, max_size=32),
    kind=_text,
    scope=_text,
    key=_text,
    operation=_text,
    family=some.none() | _blob,
    state=some.sampled_from(["claimed", "settled", "released", "in_doubt"]),
    guarantee=_text,
    doubt=some.integers(0, 1),
    fingerprint=_blob,
    version=some.binary(min_size=16, max_size=16),
    token=_blob,
    fence=some.integers(0, 2**62),
    attempt=some.integers(1, 2**31),
    first_at=some.just(NOW) | _instant,
    settled_at=some.none() | some.just(NOW) | _instant,
    lease=some.none() | _duration,
    replay=some.none() | _duration,
    forget=some.none() | _duration,
    codec=some.none() | _text,
    result=some.none() | _blob,
    error=some.none() | _blob,
    rise=some.booleans(),
)


class TestRows:
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(first=writes, second=writes)
    def test_a_landed_record_is_what_is_read_back(
        self, store: SqliteStore, clock: Clock, first: Write, second: Write
    ) -> None:
        """
        Whatever is put, the answer equals `record_from_write`, and reading at the same instant gives the same record.
        """
        connection = store._database.connections.writer.connection
        connection.execute("DELETE FROM onceward_records")
        inserted = store.put(first, None)
        kept = {name: getattr(inserted.record, name) for name in FIXED_BY_CLAIM} if not second.rise else {}
        again = second._replace(id=first.id, **kept)
        updated = store.put(again, first.version)

        for write, standing in ((first, inserted), (again, updated)):
            fence = max(write.fence, clock.now) if write.rise else write.fence
            assert (True, record_from_write(write, now=clock.now, fence=fence)) == standing
        assert updated.record == store.load(first.id)

    @pytest.mark.fault("a-word-is-not-looked-through-to-its-end")
    @pytest.mark.parametrize("word", ["a' || 'b", "it' || 's"])
    def test_a_word_that_is_not_plain_is_stored_as_it_is(self, store: SqliteStore, word: str) -> None:
        """
        Words that repeat are in the statement's text, and no other text is: nobody's name can become SQL.
        """
        write = claimed(key(1))._replace(kind=word, guarantee=word)
        ended = settled(store.put(write, None).record)._replace(codec=word)
        stored = store.put(ended, write.version).record

        assert (stored.kind, stored.guarantee, stored.codec) == (word, word, word)
        assert store.load(key(1)) == stored

    def test_a_row_has_a_place_for_each_field_of_a_record(self, store: SqliteStore) -> None:
        """
        Columns stand in the order of the fields, with the instants where the durations are.
        """
        connection = store._database.connections.writer.connection
        columns = [row[1] for row in connection.execute("PRAGMA table_info(onceward_records)")]
        instants = {"lease_until": "lease_left", "replay_until": "replay_left", "forget_at": "forget_left"}

        assert [field for field in Record._fields if field != "age"] == [instants.get(name, name) for name in columns]

    def test_durations_are_measured_on_the_clock_of_the_store(self, store: SqliteStore, clock: Clock) -> None:
        """
        What is left of a lease shrinks with the store's time, past zero.
        """
        store.put(claimed(key(1), lease=30 * SECOND), None)
        clock.now += 40 * SECOND
        record = store.load(key(1))

        assert record is not None
        assert (record.age, record.lease_left) == (40 * SECOND, -10 * SECOND)

    def test_a_put_sent_again_does_not_land_and_does_not_fail(self, store: SqliteStore) -> None:
        """
        After a lost answer the same put finds its own version standing.
        """
        claim = claimed(key(1))
        held = store.put(claim, None).record
        assert held is not None
        settle = settled(held)
        store.put(settle, claim.version)
        answers = [store.put(claim, None), store.put(settle, claim.version)]

        assert [answer.landed for answer in answers] == [False, False]
        assert [settle.version] * 2 == [answer.record.version for answer in answers if answer.record]

    @pytest.mark.parametrize(
        ("query", "index"),
        [
            (rows.FIND.replace("? -", "1 -").replace("- ?", "- 1").replace("= ?", "= x''"), "sqlite_autoindex"),
            (purge.DUE_BLOCK.replace("?", "1"), "onceward_blocks_due"),
            (purge.DUE_WITHIN.replace("?", "1"), "INTEGER PRIMARY KEY"),
            (rows.EXTEND.replace("?", "1"), "onceward_family"),
        ],
        ids=["find", "due blocks", "due rows", "extend"],
    )
    def test_every_statement_uses_its_index(self, store: SqliteStore, query: str, index: str) -> None:
        """
        Nothing walks through the whole table.
        """
        connection = store._database.connections.writer.connection
        plan = " | ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}"))

        assert index in plan
        assert "SCAN onceward_records" not in plan.replace("SCAN onceward_records USING", "")

    def test_unsettled_records_are_found_among_the_settled(self, store: SqliteStore) -> None:
        """
        Whoever asks for work in flight gets just that. (It walks the table: no index pays for it in every write.)
        """
        put_settled(store, key(1))
        store.put(claimed(key(2)), None)

        assert [key(2)] == [record.id for record in store.scan(b"", 10, Selection(unsettled=True))]


class TestFences:
    def test_a_fence_never_repeats_even_when_the_clock_goes_back(self, store: SqliteStore, clock: Clock) -> None:
        """
        Purged, and claimed again under a clock that was set back by an hour: the fence still rises.
        """
        record = put_settled(store, key(1), forget=SECOND)
        clock.now += 2 * SECOND
        assert PurgeResult(1, 0) == store.purge(10)
        clock.now -= HOUR
        again = store.put(claimed(key(1)), None)

        assert again.landed
        assert again.record is not None
        assert record.fence + 1 == again.record.fence
        assert again.record == store.load(key(1))

    def test_a_takeover_rises_above_the_floor_too(self, store: SqliteStore, clock: Clock) -> None:
        """
        The floor holds for a claim over a row that stands there, as it does for one over nothing.
        """
        put_settled(store, key(1), forget=SECOND)
        clock.now += 2 * SECOND
        floor = put_settled(store, key(3), forget=SECOND).fence
        clock.now += 2 * SECOND
        store.purge(10)
        clock.now -= HOUR
        old = claimed(key(2), fence=7, rise=False)
        store.put(old, None)
        again = store.put(claimed(key(2), fence=8), old.version)

        assert again.record is not None
        assert (True, floor + 1) == (again.landed, again.record.fence)

    def test_the_floor_of_another_process_counts(self, store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
        """
        Nothing about the floor is remembered between two claims.
        """
        store.put(claimed(key(1)), None)
        other = SqliteStore(tmp_path / "store.db", environment=Clock(START + HOUR))
        fence = put_settled(other, key(2), forget=0).fence
        other.purge(10)
        other.close()
        standing = store.put(claimed(key(2)), None)

        assert standing.record is not None
        assert fence + 1 == standing.record.fence

    def test_a_write_that_does_not_rise_keeps_its_fence(self, store: SqliteStore, clock: Clock) -> None:
        """
        A settle carries the fence of its claim, above the floor or below.
        """
        held = store.put(claimed(key(1)), None).record
        assert held is not None
        clock.now += HOUR
        put_settled(store, key(2), forget=0)
        store.purge(10)
        standing = store.put(settled(held), held.version)

        assert standing.record is not None
        assert (True, held.fence) == (standing.landed, standing.record.fence)

    def test_a_put_that_never_settles_gives_up(self, store: SqliteStore) -> None:
        """
        A store in which nothing lands and nothing stands is reported as contended, not tried for ever.
        """
        connection = store._database.connections.writer.connection
        connection.execute(
            "CREATE TRIGGER nothing_lands BEFORE INSERT ON onceward_records BEGIN SELECT raise(IGNORE); END"
        )
        with pytest.raises(StoreContended):
            store.put(claimed(key(1)), None)


class TestPurge:
    def test_a_purge_is_bounded_and_never_touches_unsettled_records(self, store: SqliteStore, clock: Clock) -> None:
        """
        At most so many rows, deleted or shrunk; claims and doubts stay, however old, even with a time to forget.
        """
        for number in range(5):
            put_settled(store, key(number), forget=SECOND)
            put_settled(store, key(10 + number), replay=SECOND)
        store.put(claimed(key(20), forget=SECOND, replay=SECOND), None)
        store.put(claimed(key(21), state="in_doubt", forget=SECOND, replay=SECOND, codec="json/1"), None)
        clock.now += HOUR // 2
        purged = [store.purge(3) for _ in range(5)]
        left = [record.id for record in store.scan(b"", 100, Selection())]

        assert [sum(one) for one in purged] == [3, 3, 3, 1, 0]
        assert (sum(one.forgotten for one in purged), sum(one.shrunk for one in purged)) == (5, 5)
        assert [key(number) for number in (10, 11, 12, 13, 14, 20, 21)] == left

    def test_a_shrunk_record_has_a_new_version_and_nothing_to_replay(self, store: SqliteStore, clock: Clock) -> None:
        """
        A tombstone keeps the fingerprint, the fence and the time; whoever holds the old version cannot write over it.
        """
        record = put_settled(store, key(1), replay=SECOND)
        clock.now += 2 * SECOND
        store.purge(10)
        tombstone = store.load(key(1))

        assert tombstone is not None
        assert (tombstone.codec, tombstone.result, tombstone.error) == (None, None, None)
        assert (record.fingerprint, record.fence, record.settled_at) == (
            tombstone.fingerprint,
            tombstone.fence,
            tombstone.settled_at,
        )
        assert record.version != tombstone.version
        assert not store.put(claimed(key(1)), record.version).landed


class TestOnACallersConnection:
    def test_a_put_lives_and_dies_with_the_callers_transaction(self, store: SqliteStore, tmp_path: Path) -> None:
        """
        Rolled back it was never there; committed it stands, next to the caller's own rows.
        """
        own = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        own.row_factory = sqlite3.Row
        own.text_factory = bytes
        own.execute("CREATE TABLE expenses (id INTEGER)")
        own.execute("BEGIN IMMEDIATE")
        first = put_on(own, claimed(key(1)), None, START)
        own.execute("INSERT INTO expenses VALUES (1)")
        own.execute("ROLLBACK")
        absent = store.load(key(1))
        own.execute("BEGIN IMMEDIATE")
        second = put_on(own, claimed(key(1)), None, START)
        own.execute("COMMIT")
        third = put_on(own, claimed(key(1)), None, START)
        text_factory = own.text_factory
        own.close()

        assert (first.landed, absent, second.landed, third.landed) == (True, None, True, False)
        assert second.record == store.load(key(1)) == third.record
        assert text_factory is bytes

    def test_its_first_statement_takes_the_write_lock(self, store: SqliteStore, tmp_path: Path) -> None:
        """
        In a deferred transaction that has not read yet, two callers queue and neither has to upgrade.
        """
        own = sqlite3.connect(tmp_path / "store.db", isolation_level=None, timeout=0)
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None, timeout=0)
        own.execute("BEGIN")
        other.execute("BEGIN")
        put_on(own, claimed(key(1)), None, START)
        with pytest.raises(sqlite3.OperationalError) as refused:
            put_on(other, claimed(key(1)), None, START)
        own.execute("COMMIT")
        standing = put_on(other, claimed(key(1)), None, START)
        own.close()
        other.close()

        assert refused.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
        assert not standing.landed


class TestReplays:
    def test_a_replay_takes_no_write_lock(self, store: SqliteStore, tmp_path: Path) -> None:
        """
        While another process holds the write lock, what is settled is answered at once, from either connection.
        """
        put_settled(store, key(1))
        own = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        after_a_write = store.put(claimed(key(1)), None)
        after_a_read = store.put(claimed(key(1)), None)
        own.close()

        assert [standing.record.result for standing in (after_a_write, after_a_read) if standing.record] == [
            b'"paid"'
        ] * 2

    def test_a_replay_changes_nothing(self, store: SqliteStore, tmp_path: Path) -> None:
        """
        No row is changed and not a byte is added to the log, whether or not anybody looked first.
        """
        put_settled(store, key(1))
        connection = store._database.connections.writer.connection
        before = connection.total_changes, (tmp_path / "store.db-wal").read_bytes()
        for _ in range(3):
            store.put(claimed(key(1)), None)
            store.peek(key(1))

        assert before == (connection.total_changes, (tmp_path / "store.db-wal").read_bytes())

    def test_a_glance_shows_what_a_replay_needs(self, store: SqliteStore) -> None:
        """
        Field by field the same as the record; nothing for a key that nobody claimed.
        """
        put_settled(store, key(1))
        record = store.load(key(1))
        store.peek(key(1))
        seen = store.peek(key(1))

        assert seen is not None
        assert [getattr(record, name) for name in seen._fields] == list(seen)
        assert store.peek(key(2)) is None

    def test_a_glance_does_not_wait_for_a_commit(self, store: SqliteStore) -> None:
        """
        While others write, what is settled is seen at once.
        """
        put_settled(store, key(1))
        store.load(key(1))
        store.put(claimed(key(2)), None)
        with lead_held(store):
            seen = store.peek(key(1))

        assert seen is not None
        assert seen.result == b'"paid"'

    def test_without_reading_first_the_answers_are_the_same(self, tmp_path: Path, clock: Clock) -> None:
        """
        The constraint is the arbiter; looking first only saves the lock.
        """
        store = SqliteStore(tmp_path / "store.db", environment=clock, read_first=False)
        put_settled(store, key(1))
        standing = store.put(claimed(key(1)), None)
        store.close()

        assert standing.record is not None
        assert (standing.landed, standing.record.result) == (False, b'"paid"')


SYNCS = """
import sys
from sqlite_support import *
store = SqliteStore(sys.argv[1], settle=sys.argv[3])
store.put(claimed(key(0)), None)
store.load(key(0))
print("begin", file=sys.stderr, flush=True)
if sys.argv[2] == "fresh":
    for number in range(1, 11):
        held = store.put(claimed(key(number)), None).record
        store.put(settled(held, relaxed=True), held.version)
else:
    for number in range(1, 11):
        store.put(claimed(key(0)), None)
print("end", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize(
    ("what", "settle", "syncs"), [("fresh", "durable", 20), ("fresh", "relaxed", 10), ("replay", "durable", 0)]
)
def test_a_fresh_operation_waits_for_the_disk_twice_and_a_replay_never(
    tmp_path: Path, what: str, settle: str, syncs: int
) -> None:
    """
    Counted by the kernel: two syncs for claim and settle, one if the settle is relaxed, none for a replay.
    """
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed, and nothing else here can count what the kernel is asked for")
    trace = tmp_path / "trace"
    subprocess.run(
        [
            "strace",
            "-f",
            "-e",
            "trace=fsync,fdatasync,write",
            "-s",
            "8",
            "-o",
            trace,
            sys.executable,
            "-c",
            SYNCS,
            str(tmp_path / "a.db"),
            what,
            settle,
        ],
        check=True,
        capture_output=True,
        cwd=Path(__file__).parent,
        timeout=60,
    )
    lines = trace.read_text().splitlines()
    begin = next(n for n, line in enumerate(lines) if '"begin' in line)
    end = next(n for n, line in enumerate(lines) if '"end' in line)

    assert syncs == sum("sync(" in line for line in lines[begin:end])
