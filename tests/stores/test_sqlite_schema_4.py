"""Schema 4: rows as they came, and no index of what is due. How a file gets there, and that it works until then."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlite_support import HERE, HOUR, START, Clock, claimed, key, put_settled, python, settled

from onceward._core.errors import ConfigurationError
from onceward._core.record import Record, Write
from onceward._core.store_protocols import PurgeResult
from onceward.overview.findings import schema_finding
from onceward.overview.schema_overview import look_at_schema
from onceward.stores import _sqlite_rows as rows
from onceward.stores import _sqlite_schema as schema
from onceward.stores import sqlite
from onceward.stores._sqlite_upkeep import schema_sql
from onceward.stores.sqlite import SqliteStore

[(_, STATEMENTS)] = schema.migrations(2)
ITS_NAMES = {
    *("onceward_records", "onceward_family", "sqlite_autoindex_onceward_records_1", "onceward_meta"),
    *("onceward_blocks", "onceward_blocks_due", "onceward_due_earlier", "onceward_numbers_again"),
}
ALL_ROWS = f"SELECT {', '.join(('id', *rows._CHANGED))} FROM onceward_records ORDER BY id"
NAMES = "SELECT name FROM sqlite_schema WHERE tbl_name LIKE 'onceward%' ORDER BY 1"


def file_of(version: int, path: Path) -> str:
    """A file as that version of the schema has left it, without rows; its URL."""
    with connected(path) as connection:
        for number, statements in schema.migrations(0):
            if number <= version:
                for statement in statements:
                    connection.execute(statement)
        connection.execute("UPDATE onceward_meta SET value = ? WHERE name = 'schema_version'", (version,))
    return f"sqlite:///{path}"


def filled(path: Path) -> str:
    """A file of schema 2 with records in every state, the oldest with the greatest id; its URL."""
    url = file_of(2, path)
    clock = Clock()
    with opened(path, clock) as store:
        for number in range(60, 20, -1):
            clock.now += 1
            put_settled(store, key(number), b'"%d"' % number)
        store.put(claimed(key(1)), None)
        store.put(claimed(key(2), family=b"plan"), None)
        put_settled(store, key(3), forget=1)
        clock.now += 2
        assert store.purge(1) == PurgeResult(1, 0)
    return url


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else's."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        yield connection


@contextmanager
def opened(path: Path, clock: Clock | None = None) -> Iterator[SqliteStore]:
    """A store on a file."""
    store = SqliteStore(path) if clock is None else SqliteStore(path, environment=clock)
    try:
        yield store
    finally:
        store.close()


def asked(path: Path, sql: str) -> list[Any]:
    """What a file says."""
    with connected(path) as connection:
        return connection.execute(sql).fetchall()


class TestOpening:
    """What opening a file does, and what it does not."""

    @pytest.mark.fault("opening-copies-a-sqlite-table")
    @pytest.mark.parametrize(("found", "left"), [(1, 2), (2, 2), (3, 3), (4, 4)])
    def test_opening_copies_no_table(self, tmp_path: Path, found: int, left: int) -> None:
        """
        A process that starts does not keep all others waiting: copying is asked for. A new file has nothing to copy.
        """
        url = file_of(found, tmp_path / "old.db")
        SqliteStore(tmp_path / "old.db").close()
        SqliteStore(tmp_path / "new.db").close()

        assert sqlite.schema_version(url) == left
        assert sqlite.schema_version(f"sqlite:///{tmp_path}/new.db") == schema.LATEST == 4

    def test_a_file_of_schema_2_works_as_it_is(self, tmp_path: Path) -> None:
        """
        Claims, replays, purges and lists: the statements are the same.
        """
        file_of(2, tmp_path / "a.db")
        clock = Clock()
        with opened(tmp_path / "a.db", clock) as store:
            record = put_settled(store, key(1))
            again = store.put(claimed(key(1)), None)
            clock.now += 3 * HOUR
            purged = store.purge(10)

        assert (again.landed, again.record) == (False, record)
        assert purged == PurgeResult(1, 0)

    def test_an_operator_is_told(self, tmp_path: Path) -> None:
        """
        Its check is sound and names the command; `status` has it as something to watch.
        """
        url = filled(tmp_path / "a.db")
        [found] = [one for one in sqlite.check(url) if one.name == "schema"]
        overview = look_at_schema(url)

        assert found.ok
        assert "version 2; `onceward store migrate`" in found.detail
        assert overview is not None
        assert "version 2; this version of Onceward uses 4" in schema_finding(overview).text


class TestMigrating:
    """`onceward store migrate`."""

    @pytest.mark.fault("schema-4-leaves-rows-behind", "schema-4-forgets-an-index")
    @pytest.mark.parametrize("how", ["migrate", "script"])
    def test_everything_is_there_afterwards(self, tmp_path: Path, how: str) -> None:
        """
        Every row with every column, the indexes, the fence floor; in the order in which they came. By the command, or
        by an administrator with what `--sql` prints.
        """
        path = tmp_path / "a.db"
        url = filled(path)
        before, floor = asked(path, ALL_ROWS), asked(path, "SELECT * FROM onceward_meta WHERE name = 'fence_floor'")
        if how == "migrate":
            assert sqlite.migrate(url) == (2, 4)
        else:
            with connected(path) as connection:
                connection.executescript(schema_sql(2))

        assert len(before) == 42
        assert asked(path, ALL_ROWS) == before
        assert asked(path, "SELECT * FROM onceward_meta WHERE name = 'fence_floor'") == floor
        assert asked(path, "SELECT first_at FROM onceward_records ORDER BY rowid") == asked(
            path, "SELECT first_at FROM onceward_records ORDER BY first_at"
        )
        assert {name for (name,) in asked(path, NAMES)} == ITS_NAMES
        assert asked(path, "PRAGMA integrity_check") == [("ok",)]
        assert sqlite.migrate(url) == (4, 4)

    @pytest.mark.fault("schema-4-notes-no-blocks")
    def test_what_was_due_and_what_comes_due_is_found_afterwards(self, tmp_path: Path) -> None:
        """
        Blocks are noted for the rows that are there, so that no purge has to look through all of them at once.
        """
        path, clock = tmp_path / "a.db", Clock()
        url = file_of(2, path)
        with opened(path, clock) as store:
            for number in range(600):
                put_settled(store, key(number), replay=HOUR, forget=(2 + number % 3) * HOUR)
            store.put(claimed(key(1_000)), None)
        sqlite.migrate(url)
        noted = asked(path, "SELECT count(*), min(due), max(due) FROM onceward_blocks")
        with opened(path, clock) as store:
            purged = []
            for _ in range(5):
                clock.now += HOUR
                purged.append(store.purge(1_000))

        assert noted == [(600 // 128, START + HOUR, START + HOUR)]
        assert purged == [PurgeResult(0, 600), *[PurgeResult(200, 0)] * 3, PurgeResult(0, 0)]

    @pytest.mark.fault("a-migration-is-left-half-done")
    @pytest.mark.parametrize(
        ("point", "skip"), [("begun", 0), *(("statement", skip) for skip in range(len(STATEMENTS))), ("commit", 0)]
    )
    def test_killed_anywhere_the_file_is_as_it_was(self, tmp_path: Path, point: str, skip: int) -> None:
        """
        kill -9 between any two statements: the old table with its rows; and the next try does it.
        """
        path = tmp_path / "a.db"
        url = filled(path)
        rows, names = asked(path, ALL_ROWS), asked(path, NAMES)
        script = (
            "import sys\n"
            "from onceward.runtime import failpoints\n"
            "from onceward.stores import sqlite\n"
            "failpoints.arm(sys.argv[2], 'kill', skip=int(sys.argv[3]))\n"
            "sqlite.migrate(sys.argv[1])\n"
        )
        ran = python(script, url, f"sqlite.migrate.{point}", skip)

        assert ran.returncode == -signal.SIGKILL, ran.stderr
        assert (sqlite.schema_version(url), asked(path, ALL_ROWS), asked(path, NAMES)) == (2, rows, names)
        assert sqlite.migrate(url) == (2, 4)
        assert asked(path, ALL_ROWS) == rows

    def test_writers_go_on_while_it_is_migrated(self, tmp_path: Path) -> None:
        """
        Three processes that opened the file before: each of their claims lands once, before and after.
        """
        url = filled(tmp_path / "a.db")
        script = (
            "import sys\n"
            "from sqlite_support import *\n"
            "store, own = SqliteStore(sys.argv[1]), int(sys.argv[2])\n"
            "numbers = iter(range(own, 10_000_000))\n"
            "def some(count):\n"
            "    for number, _ in zip(numbers, range(count)):\n"
            "        record = put_settled(store, key(number))\n"
            "        assert store.load(key(number)).version == record.version\n"
            "        assert not store.put(claimed(key(number)), None).landed\n"
            "        print(number, flush=True)\n"
            "some(10)\n"
            "print('ready', flush=True)\n"
            "for line in sys.stdin:\n"
            "    some(20)\n"
            "    print('more', flush=True)\n"
        )
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(tmp_path / "a.db"), str(1_000_000 * number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=HERE,
            )
            for number in (1, 2, 3)
        ]
        acknowledged: list[int] = []

        def read_until(word: str) -> None:
            for writer in writers:
                assert writer.stdout is not None
                while (line := writer.stdout.readline().strip()) != word:
                    assert line.isdigit(), line
                    acknowledged.append(int(line))

        read_until("ready")
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go on\n")
            writer.stdin.flush()
        versions = sqlite.migrate(url)
        read_until("more")
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go on\n")
            writer.stdin.close()
        read_until("more")
        codes = [writer.wait(60) for writer in writers]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.close()
        stored = {int.from_bytes(id, "big") for (id,) in asked(tmp_path / "a.db", "SELECT id FROM onceward_records")}

        assert (versions, codes) == ((2, 4), [0, 0, 0])
        assert len(acknowledged) == len({*acknowledged}) == 3 * 50
        assert {*acknowledged} <= stored
        assert asked(tmp_path / "a.db", "SELECT count(*), count(DISTINCT id) FROM onceward_records") == [(192, 192)]

    @pytest.mark.fault("schema-4-drops-what-others-made")
    @pytest.mark.parametrize(
        ("made", "told"),
        [
            ("CREATE TRIGGER mine AFTER INSERT ON onceward_records BEGIN SELECT 1; END", "trigger mine"),
            ("CREATE INDEX by_scope ON onceward_records (scope)", "index by_scope"),
        ],
    )
    def test_what_would_be_dropped_with_the_table_is_named_first(self, tmp_path: Path, made: str, told: str) -> None:
        """
        Somebody's trigger or index: nothing is changed, and the error says what to do.
        """
        url = filled(tmp_path / "a.db")
        with connected(tmp_path / "a.db") as connection:
            connection.execute(made)
        with pytest.raises(ConfigurationError, match=f"onceward_records has {told}, which would be lost"):
            sqlite.migrate(url)
        with opened(tmp_path / "a.db") as store:
            assert store.put(claimed(key(99)), None).landed

        assert sqlite.schema_version(url) == 2
        assert len(asked(tmp_path / "a.db", "SELECT 1 FROM onceward_records")) == 43

    def test_a_view_over_the_table_goes_on(self, tmp_path: Path) -> None:
        """
        It names the table, and finds the new one under that name.
        """
        url = filled(tmp_path / "a.db")
        with connected(tmp_path / "a.db") as connection:
            connection.execute("CREATE VIEW mine AS SELECT id FROM onceward_records")
            sqlite.migrate(url)
            found = connection.execute("SELECT count(*) FROM mine").fetchone()

        assert found == (42,)


@pytest.mark.fault("schema-4-has-an-index-of-what-is-due")
def test_an_operation_writes_fewer_pages_than_before(tmp_path: Path) -> None:
    """
    Pages in the log, which is what the disk gets: one less of four for claims that follow each other, and of fifty at
    once far fewer.
    """
    counted = {(version, crowd): pages_written(tmp_path, version, crowd) for version in (2, 4) for crowd in (1, 50)}

    assert counted[4, 1] + 1_000 < counted[2, 1], counted
    assert 1.7 * counted[4, 50] < counted[2, 50], counted


def pages_written(folder: Path, version: int, crowd: int) -> int:
    """By a thousand operations, each with a row as long as that of a tool call."""
    path = folder / f"{version}_{crowd}.db"
    file_of(version, path)
    ids = [sha256(b"%d" % number).digest() for number in range(1000)]
    claim = {"key": "charge:order-00000017", "holder": bytes(60)}
    with opened(path) as store:
        cursor = store._database.connections.writer
        assert cursor is not None
        cursor.execute("PRAGMA synchronous = off")
        cursor.execute("PRAGMA wal_autocheckpoint = 0")
        for first in range(0, len(ids), crowd):
            with transaction(cursor):
                some = sorted(ids[first : first + crowd])
                held = [put_within(cursor, claimed(id, **claim), None) for id in some]
            with transaction(cursor):
                for record in held:
                    put_within(cursor, settled(record, bytes(90)), record.version)
        frames: int = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
    return frames


@contextmanager
def transaction(cursor: sqlite3.Cursor) -> Iterator[None]:
    """One commit."""
    cursor.execute("BEGIN IMMEDIATE")
    yield
    cursor.execute("COMMIT")


def put_within(cursor: sqlite3.Cursor, write: Write, expect: bytes | None) -> Record:
    """As a batch of the store's does it."""
    put = rows.put_in(cursor, write, expect, START)
    assert put.landed
    assert put.record is not None
    return put.record
