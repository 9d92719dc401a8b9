"""Schema 3: settles that write no index, what is looked for by index, and how a table gets there beside its writers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from postgres_support import problems, query

from onceward import Gate
from onceward._core.errors import StoreUnavailable
from onceward._core.store_protocols import Selection
from onceward.overview.findings import schema_finding
from onceward.overview.schema_overview import look_at_schema
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_flow as flows
from onceward.stores import _postgres_function_installer as installer
from onceward.stores import _postgres_rows as rows
from onceward.stores import _postgres_upkeep as upkeep
from onceward.stores._postgres_functions import FUNCTIONS_VERSION
from onceward.stores._postgres_indexes import index_plan
from onceward.stores._postgres_url import _STARTUP
from onceward.stores.postgres import PostgresStore
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import PostgresServer, needed

needed()

DAY = 86_400_000_000
CHANGED_BY_A_SETTLE = {
    *(
        "state",
        "version",
        "settled_at",
        "lease_until",
        "replay_until",
        "forget_at",
        "codec",
        "result",
        "error",
        "holder",
    ),
    *("token", "doubt"),
}
NEW, GONE = set(index_plan().made), set(index_plan().dropped)
OF_SCHEMA_2 = {"onceward_forget", "onceward_shrink", "onceward_unsettled"}
INDEXES = "SELECT indexname FROM pg_indexes WHERE tablename = 'onceward_records'"


@pytest.fixture
def fresh(server: PostgresServer) -> str:
    """An empty database of its own."""
    database = f"schema_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {database}")
    return server.url(database)


def _open(url: str) -> None:
    """Come, and go again: the tables are brought to the latest schema."""
    store = PostgresStore(url)
    try:
        store.load(bytes(32))
    finally:
        store.close()


BARE = (
    "id, kind, scope, key, operation, state, guarantee, doubt, fingerprint, version, token, fence, attempt, first_at",
    "'key', 's', 'k', '', 'claimed', 'repeatable', 0, '', '', '', 1, 1, 1",
)
"""The columns of a claim that have to be there, and values for all but the id."""


def _at_schema_2(url: str, partitions: int = 0) -> None:
    for number, script in flows.migrations(partitions):
        if number <= 2:
            query(url, script.decode())


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as a large one, which gets its indexes from `store migrate`."""
    real = flows.migrations

    def scripts(partitions: int = 0) -> Iterator[tuple[int, bytes]]:
        return ((number, script.replace(b"< 67108864", b"< 0")) for number, script in real(partitions))

    monkeypatch.setattr(flows, "migrations", scripts)


def _indexes(url: str) -> set[str]:
    return {name for (name,) in query(url, INDEXES)}


def _age(url: str, days: float, where: str = "true") -> None:
    """Make records older than they are."""
    ago = int(days * DAY)
    query(
        url,
        f"UPDATE onceward_records SET first_at = first_at - {ago}, settled_at = settled_at - {ago}, "
        f"lease_until = lease_until - {ago}, replay_until = replay_until - {ago}, forget_at = forget_at - {ago}, "
        f"due_at = CASE WHEN due_at < {rows.NEVER} THEN due_at - {ago} ELSE due_at END WHERE {where}",
    )


class TestHotUpdates:
    """What an ordinary operation writes."""

    @pytest.mark.slow
    @pytest.mark.fault("an-index-names-the-state-again")
    def test_every_settle_of_two_thousand_operations_is_a_hot_update(self, fresh: str) -> None:
        """
        PostgreSQL's own count: as many updates that touched no index as updates.
        """
        with Gate(fresh, scope="live:acme") as gate:
            for number in range(2_000):
                gate.run(f"job:{number}", lambda: {"status": "charged", "amount": 12_00})
        counted = (
            "SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'onceward_records'"
        )
        while (found := query(fresh, counted)[0])[1] < 2_000:  # Told when the session ends, a moment later.
            REAL.sleep(0.05)

        assert found == (2_000, 2_000, 2_000)

    def test_no_index_names_a_column_that_a_settle_changes(self, url: str) -> None:
        """
        Neither as a column nor in a predicate.
        """
        _open(url)
        defined = {
            name: set(sql.replace("(", " ").replace(")", " ").split())
            for name, sql in query(
                url, "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'onceward_records'"
            )
        }

        assert set(defined) >= NEW
        assert {
            name: words & CHANGED_BY_A_SETTLE for name, words in defined.items() if words & CHANGED_BY_A_SETTLE
        } == {}

    def test_the_table_leaves_room_and_is_vacuumed_early(self, fresh: str) -> None:
        """
        Also each partition of a divided one.
        """
        for url in (fresh, f"{fresh}?onceward_partitions=2"):
            query(fresh, "DROP TABLE IF EXISTS onceward_records, onceward_meta")
            upkeep.init(url)
            options = query(
                fresh, "SELECT reloptions FROM pg_class WHERE relkind = 'r' AND relname LIKE 'onceward_rec%'"
            )

            assert options
            assert all("fillfactor=80" in one and "autovacuum_vacuum_scale_factor=0.05" in one for (one,) in options)


class TestWhatIsLookedFor:
    """Purges and listings find what they are for, and by index."""

    @pytest.mark.parametrize(
        ("statement", "parameters", "indexes"),
        [
            (
                rows.PURGE,
                {"lock_timeout": "1s", "relaxed": False, "limit": 10, "shrink": 10, "version": bytes(16)},
                NEW,
            ),
            (*rows.scan_statement(b"", 10, Selection(unsettled=True)), NEW),
            (*rows.scan_statement(b"", 10, Selection(unsettled=True, scope="a")), NEW),
            (*rows.scan_statement(b"", 10, Selection()), {"onceward_records_pkey"}),
        ],
        ids=["purge", "unsettled", "unsettled of a scope", "all"],
    )
    def test_by_index_and_never_by_reading_the_table(
        self, url: str, statement: bytes, parameters: dict[str, Any], indexes: set[str]
    ) -> None:
        """
        PostgreSQL's own plan, with the settings of our sessions.
        """
        _open(url)
        with psycopg.connect(url, options=_STARTUP) as connection:
            plan = "\n".join(line for (line,) in connection.execute(b"EXPLAIN " + statement, parameters).fetchall())
            connection.rollback()

        assert "Seq Scan on onceward_records" not in plan
        assert {
            name for name in (*NEW, "onceward_records_pkey") if f"using {name} " in plan or f"on {name} " in plan
        } >= indexes

    @pytest.mark.fault("a-purge-that-was-planned-early-reads-the-table")
    def test_a_purge_that_was_planned_while_the_table_was_empty_reads_no_more_than_is_due(self, fresh: str) -> None:
        """
        Its plan is made once for each connection, and kept: where it goes to the records, it goes by their ids.
        """
        upkeep.init(fresh)
        parameters = {"lock_timeout": "1s", "relaxed": False, "limit": 100, "shrink": 100, "version": bytes(16)}
        with psycopg.connect(fresh, options=_STARTUP) as connection:
            lines = [line for (line,) in connection.execute(b"EXPLAIN " + rows.PURGE, parameters).fetchall()]
        by_id = [number for number, line in enumerate(lines) if " onceward_records_pkey" in line]

        assert by_id
        assert [lines[one].strip() for one in by_id if "Index Cond: (id =" not in lines[one + 1]] == []

    @pytest.mark.fault("a-short-life-is-noticed-a-day-late")
    def test_a_short_life_is_purged_when_it_is_over(self, url: str) -> None:
        """
        What is settled for less than a day is not looked for after a day.
        """
        with Gate(url, scope="live:acme") as gate:
            gate.run("short", lambda: 1, retain=60, tombstone=1)
            gate.run("long", lambda: 1)
        _age(url, 0.01)
        store = PostgresStore(url)
        purged = store.purge(10)
        store.close()

        assert tuple(purged) == (1, 0)
        assert query(url, "SELECT key FROM onceward_records") == [("live:long",)]

    @pytest.mark.fault("a-usual-settle-says-no-time-to-purge", "a-short-life-is-settled-as-a-usual-one")
    @pytest.mark.parametrize("seen", [False, True], ids=["young", "seen by a purge"])
    @pytest.mark.parametrize("tombstone", [None, 1, 5 * DAY])
    @pytest.mark.parametrize("retain", [1, DAY, 3 * DAY])
    def test_a_usual_settle_leaves_what_any_ending_leaves(
        self, url: str, retain: int, tombstone: int | None, seen: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        The statement for usual settles has fewer parts. The row is the same, also where a purge has been before.
        """
        store, left = PostgresStore(url), []
        for usual in (True, False):
            if not usual:
                monkeypatch.setattr(rows, "is_usual_settle", lambda write: False)
            held = store.put(row("test:usual", str(usual)), None).record
            assert held is not None
            if seen:
                query(url, f"UPDATE onceward_records SET due_at = {rows.OPEN} WHERE key = '{usual}'")
            forget = None if tombstone is None else retain + tombstone
            store.put(settled(held, replay=retain, forget=forget, codec="json/1"), held.version)
            [(due, *kept)] = query(
                url,
                "SELECT due_at - settled_at, state, doubt, lease_until, replay_until - settled_at, "
                "forget_at - settled_at, codec, result, error, holder, fence, attempt, token, version "
                f"FROM onceward_records WHERE key = '{usual}'",
            )
            left.append((due, kept[:-4], kept[-4] == held.fence, kept[-2] == held.token, kept[-1] != held.version))
        store.close()

        assert left[0] == left[1]
        assert (left[0][0] is None) == (not seen and retain >= DAY)

    @pytest.mark.fault("what-is-not-due-yet-is-looked-at-again-and-again")
    def test_what_lives_longer_is_looked_at_once_and_purged_in_time(self, url: str) -> None:
        """
        A day after its first time it gets the time of its own end; then it shrinks, and then it is forgotten.
        """
        with Gate(url, scope="live:acme") as gate:
            gate.run("long", lambda: 1, retain=7 * 86_400, tombstone=86_400)
        store, seen = PostgresStore(url), []
        for days in (2, 5.5, 1):
            _age(url, days)
            seen.append((tuple(store.purge(10)), query(url, "SELECT due_at IS NULL FROM onceward_records")))
        store.close()

        assert seen == [((0, 0), [(False,)]), ((0, 1), [(False,)]), ((1, 0), [])]

    @pytest.mark.fault("old-claims-are-listed-no-more", "a-claim-that-is-in-doubt-is-not-listed")
    def test_unsettled_records_are_listed_however_old(self, url: str) -> None:
        """
        In flight since a moment ago, in doubt, and left behind by a process of long ago; before a purge and after.
        """
        store = PostgresStore(url)
        claim = row("test:listed", "left behind")
        store.put(claim, None)
        _age(url, 9)
        store.put(row("test:listed", "in doubt", state="in_doubt"), None)
        store.put(row("test:listed", "new"), None)
        wanted = Selection(unsettled=True, scope="test:listed")
        before = sorted(one.key for one in store.scan(b"", 10, wanted))
        purged = store.purge(10)
        after = sorted(one.key for one in store.scan(b"", 10, wanted))
        opened = query(url, f"SELECT key FROM onceward_records WHERE due_at = {rows.OPEN} ORDER BY key")
        paged = [store.scan(one.id, 1, wanted) for one in store.scan(b"", 10, wanted)]
        store.close()

        assert before == after == ["in doubt", "left behind", "new"]
        assert (tuple(purged), opened) == ((0, 0), [("in doubt",), ("left behind",)])
        assert [len(page) for page in paged] == [1, 1, 0]

    def test_what_a_process_of_schema_2_settles_is_purged_too(self, url: str) -> None:
        """
        It does not know the column: neither of a new record, nor of one that was seen unsettled.
        """
        now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        store = PostgresStore(url)
        for key in ("plain", "doubted"):
            store.put(row("test:older", key, state="in_doubt" if key == "doubted" else "claimed"), None)
        query(
            url,
            "UPDATE onceward_records SET state = 'settled', codec = 'json/1', result = '1', "
            f"replay_until = {now} - 1, forget_at = {now} - 1",
        )
        first = store.purge(10)
        _age(url, 1)
        second = store.purge(10)
        third = store.purge(10)
        store.close()

        assert first.forgotten + second.forgotten + third.forgotten == 2
        assert query(url, "SELECT count(*) FROM onceward_records") == [(0,)]


class _Writers:
    """Threads that write all the time: with today's store, and as a process of schema 2 does."""

    def __init__(self, url: str, *, older: bool) -> None:
        self.errors: list[BaseException] = []
        self.counts = [0, 0]
        self._url, self._over = url, threading.Event()
        run = [self._store, self._older] if older else [self._store]
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in run]
        for one in self._threads:
            one.start()

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:
            self.errors.append(error)

    def _store(self) -> None:
        with Gate(self._url, scope="live:acme") as gate:
            while not self._over.is_set():
                gate.run(f"new:{self.counts[0]}", lambda: 1)
                self.counts[0] += 1

    def _older(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.is_set():
                id = REAL.random(32)
                connection.execute(f"INSERT INTO onceward_records ({BARE[0]}) VALUES (%s, {BARE[1]})".encode(), (id,))
                connection.execute(
                    "UPDATE onceward_records SET state = 'settled', codec = 'json/1' WHERE id = %s", (id,)
                )
                self.counts[1] += 1

    def went_on(self, more: int = 5) -> None:
        """Wait until each has written so much more."""
        wanted = [count + more for count in self.counts]
        while not self.errors and any(self.counts[n] < wanted[n] for n in range(len(self._threads))):
            REAL.sleep(0.01)

    def end(self) -> list[BaseException]:
        self._over.set()
        for one in self._threads:
            one.join(60)
        return self.errors


class TestMigrating:
    """From schema 2, beside writers, and again after whatever happened."""

    @pytest.mark.parametrize("partitions", [0, 3])
    def test_a_small_table_is_brought_forward_by_whoever_comes_first(self, fresh: str, partitions: int) -> None:
        """
        Its records stay, and its indexes are those of schema 3.
        """
        _at_schema_2(fresh, partitions)
        query(fresh, f"INSERT INTO onceward_records ({BARE[0]}) VALUES ('a', {BARE[1]})")
        store = PostgresStore(fresh)
        listed = [one.key for one in store.scan(b"", 10, Selection(unsettled=True))]
        store.close()

        assert listed == ["k"]
        assert _indexes(fresh) >= NEW
        assert not GONE & _indexes(fresh)
        assert problems(fresh) == {}

    @pytest.mark.usefixtures("large")
    @pytest.mark.parametrize("partitions", [0, 3])
    def test_a_large_table_gets_its_indexes_beside_its_writers(self, fresh: str, partitions: int) -> None:
        """
        The column comes at once; the indexes with `store migrate`, while old and new processes write. None fails.
        """
        _at_schema_2(fresh, partitions)
        writers = _Writers(fresh, older=True)
        writers.went_on()
        between = _indexes(fresh)
        told = {one.name: one for one in upkeep.check(fresh)}["indexes"]
        moved = upkeep.migrate(fresh)
        writers.went_on()
        errors = writers.end()

        assert errors == []
        assert (between >= OF_SCHEMA_2, told.ok, "onceward store migrate" in told.detail) == (True, False, True)
        assert moved == (3, 3)
        assert _indexes(fresh) >= NEW
        assert not GONE & _indexes(fresh)
        assert problems(fresh) == {}
        assert upkeep.planned(fresh).scripts == ()

    def test_a_table_with_three_indexes_gets_the_one(self, fresh: str) -> None:
        """
        Development versions had one for each meaning of the column. What they wrote is purged meanwhile, too.
        """
        _open(fresh)
        query(
            fresh,
            "DROP INDEX onceward_due_at; "
            "CREATE INDEX onceward_young ON onceward_records (first_at) WHERE due_at IS NULL; "
            f"CREATE INDEX onceward_due ON onceward_records (due_at) WHERE due_at < {rows.OPEN}; "
            f"CREATE INDEX onceward_open ON onceward_records (id) WHERE due_at = {rows.OPEN}",
        )
        with Gate(fresh, scope="live:acme") as gate:
            gate.run("short", lambda: 1, retain=60, tombstone=1)
            gate.run("long", lambda: 1)
        _age(fresh, 2)
        store = PostgresStore(fresh)
        purged = store.purge(10)
        store.close()
        told = {one.name: one for one in upkeep.check(fresh)}["indexes"]
        upkeep.migrate(fresh)

        assert (tuple(purged), told.ok) == ((1, 1), False)
        assert _indexes(fresh) & (NEW | GONE) == NEW
        assert problems(fresh) == {}

    @pytest.mark.usefixtures("large")
    @pytest.mark.parametrize("partitions", [0, 2])
    @pytest.mark.parametrize("steps", [1, 3, 4])
    def test_what_died_in_the_middle_is_run_again(self, fresh: str, partitions: int, steps: int) -> None:
        """
        Before any statement: the store works on, and the next one goes on from there.
        """
        _at_schema_2(fresh, partitions)

        class Killed(BaseException):
            pass

        left = [steps]

        def die() -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        failpoints.arm("postgres.index.before", die)
        with pytest.raises(Killed):
            upkeep.migrate(fresh)
        failpoints.disarm()
        with Gate(fresh, scope="live:acme") as gate:
            meanwhile = gate.run("job", lambda: 1)
        told = look_at_schema(fresh)
        upkeep.migrate(fresh)

        assert meanwhile == 1
        assert told is not None and (told.begun, told.before, told.after) == (True, 3, 3)
        assert schema_finding(told).commands == ("onceward store migrate",)
        assert look_at_schema(fresh) is None
        assert _indexes(fresh) >= NEW
        assert not GONE & _indexes(fresh)

    @pytest.mark.usefixtures("large")
    @pytest.mark.fault("an-index-that-was-left-unfinished-counts")
    def test_an_index_that_was_left_unfinished_is_made_anew(self, fresh: str) -> None:
        """
        Its session was ended while it waited for somebody's transaction. PostgreSQL leaves an index that is never used.
        """
        _at_schema_2(fresh)
        _open(fresh)
        errors = []

        def migrate() -> None:
            try:
                upkeep.migrate(fresh)
            except StoreUnavailable as error:
                errors.append(error)

        with psycopg.connect(fresh) as busy:
            busy.execute("DELETE FROM onceward_records")
            thread = threading.Thread(target=migrate)
            thread.start()
            end = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' "
                "AND wait_event_type = 'Lock' AND datname = current_database()"
            )
            while not query(fresh, end):
                REAL.sleep(0.01)
            thread.join(60)
        invalid = query(fresh, "SELECT count(*) FROM pg_index WHERE NOT indisvalid")
        told = {one.name: one.ok for one in upkeep.check(fresh)}["indexes"]
        upkeep.migrate(fresh)

        assert (len(errors), invalid, told) == (1, [(1,)], False)
        assert query(fresh, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]
        assert problems(fresh) == {}

    @pytest.mark.fault("functions-stay-behind-when-the-schema-moves")
    def test_functions_that_are_installed_come_along(self, fresh: str) -> None:
        """
        They know one version of the tables, so they move in the same transaction; rights that were granted stay.
        """
        upkeep.init(fresh)
        installer.install(fresh)
        older = "FUNCTION onceward_functions_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1'"
        query(fresh, f"CREATE OR REPLACE {older}; UPDATE onceward_meta SET value = 2 WHERE name = 'schema_version'")
        query(fresh, "ALTER TABLE onceward_records DROP COLUMN due_at CASCADE")
        _open(fresh)

        assert query(fresh, "SELECT onceward_functions_version()") == [(FUNCTIONS_VERSION,)]
        assert problems(fresh) == {}

    def test_a_transaction_on_the_table_is_waited_for_and_holds_nobody_up_for_long(self, fresh: str) -> None:
        """
        The migration gives up its place in the queue, lets the others write, and comes again.
        """
        _at_schema_2(fresh)
        with psycopg.connect(fresh) as busy:
            busy.execute("DELETE FROM onceward_records")
            loaded = threading.Thread(target=lambda: _open(fresh))
            loaded.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%due_at%' AND wait_event_type = 'Lock'"
            while query(fresh, waiting) == [(0,)]:
                REAL.sleep(0.01)
            while query(fresh, waiting) != [(0,)]:
                REAL.sleep(0.01)
            still = loaded.is_alive()
        loaded.join(60)

        assert still
        assert query(fresh, "SELECT value FROM onceward_meta WHERE name = 'schema_version'") == [(3,)]
