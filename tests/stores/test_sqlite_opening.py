"""Which file a URL names, who may read it, and what happens when it is not what it should be."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from sqlite_support import claimed, key, put_settled, python

from onceward._core.errors import ConfigurationError, SchemaMismatch, StoreCorrupt, StoreUnavailable
from onceward.stores import _sqlite_schema as schema
from onceward.stores import open_store, sqlite
from onceward.stores._sqlite_connections import Connections
from onceward.stores.sqlite import SqliteStore

NOBODY = 65534
STATEMENTS = sum(len(statements) for _, statements in schema.migrations(0))


class TestTheUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "sqlite:/x.db",
            "sqlite:x.db",
            "sqlite://x.db",
            "sqlite://",
            "sqlite:///",
            "sqlite:///:memory:",
            "sqlite:///a.db#b",
            "sqlite:///a.db?synchronous=off",
            "sqlite:///a.db?synchronous=",
            "sqlite:///a.db?Settle=relaxed",
            "sqlite:///a.db?settle=fast",
            "sqlite:///a.db?busy=soon",
            "sqlite:///a.db?busy=-1",
            "sqlite:///a.db?busy=nan",
            "sqlite:///a.db?busy=inf",
            "sqlite:///a.db?read_first=yes",
            "sqlite:///a.db?timeout=5",
            "postgresql:///a.db",
            "sqlite:///a%00b.db",
        ],
    )
    def test_a_url_that_cannot_be_meant_is_refused(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A typo, an unknown option or value, no file at all: an error, and no file is made.
        """
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigurationError):
            SqliteStore.from_url(url)

        assert list(tmp_path.iterdir()) == []

    def test_three_slashes_are_relative_and_four_absolute(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        As everywhere else that writes SQLite files as URLs.
        """
        monkeypatch.chdir(tmp_path)
        with open_closing("sqlite:///relative.db") as relative, open_closing(f"sqlite:///{tmp_path}/b.db") as absolute:
            assert tmp_path / "relative.db" == relative.path
            assert tmp_path / "b.db" == absolute.path

    def test_any_name_can_be_written(self, tmp_path: Path) -> None:
        """
        Spaces, question marks, hashes and percent signs are percent-encoded in the URL and plain in the folder.
        """
        with open_closing(f"sqlite:///{tmp_path}/a%20b%3F%23%25c.db") as store:
            assert store.path.name == "a b?#%c.db"
            assert store.put(claimed(key(1)), None).landed

    def test_every_option_is_taken(self, tmp_path: Path) -> None:
        """
        All four options, in one URL.
        """
        url = f"sqlite:///{tmp_path}/a.db?synchronous=normal&settle=relaxed&busy=0.5&read_first=0"
        with open_closing(url) as store:
            assert tuple(store._database.options) == ("normal", "relaxed", 0.5, False)

    def test_the_path_is_the_real_one(self, tmp_path: Path) -> None:
        """
        Through a link, two stores see that they are the same file.
        """
        with open_closing(f"sqlite:///{tmp_path}/a.db") as store:
            (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
            with open_closing(f"sqlite:///{tmp_path}/link.db") as linked:
                assert store.path == linked.path


class open_closing:  # noqa: N801 - reads as what it does.
    def __init__(self, url: str) -> None:
        self.store = SqliteStore.from_url(url)

    def __enter__(self) -> SqliteStore:
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


class TestTheFile:
    def test_a_folder_is_not_a_file(self, tmp_path: Path) -> None:
        """
        A folder's name is refused, with the name of a file in it as advice.
        """
        with pytest.raises(ConfigurationError, match="is a folder"):
            open_store(f"sqlite:///{tmp_path}")

    def test_a_missing_folder_is_not_made(self, tmp_path: Path) -> None:
        """
        A typo in a path must not start a second, empty store somewhere else.
        """
        with pytest.raises(ConfigurationError, match="mkdir"):
            open_store(f"sqlite:///{tmp_path}/missing/a.db")

        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_is_no_database_is_left_alone(self, tmp_path: Path) -> None:
        """
        A text file is reported as no database, and not a byte of it is changed.
        """
        path = tmp_path / "notes.txt"
        path.write_text("these are my notes, " * 100)
        with pytest.raises(StoreCorrupt, match=re.escape(str(path))):
            open_store(f"sqlite:///{path}")

        assert path.read_text() == "these are my notes, " * 100

    @pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
    def test_only_its_owner_can_read_a_new_file(self, tmp_path: Path, umask: int) -> None:
        """
        The file, its log and its shared memory are made 0600, whatever the umask.
        """
        before = os.umask(umask)
        try:
            store = SqliteStore(tmp_path / "a.db")
            store.put(claimed(key(1)), None)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
            store.close()
        finally:
            os.umask(before)

        assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600}

    def test_the_mode_of_an_existing_file_is_left_alone(self, tmp_path: Path) -> None:
        """
        Whoever made the file decided who may read it.
        """
        path = tmp_path / "a.db"
        path.touch(mode=0o640)
        path.chmod(0o640)
        SqliteStore(path).close()

        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_tables_of_others_in_the_file_are_not_touched(self, tmp_path: Path) -> None:
        """
        The user's tables, user_version and application_id stay as they were.
        """
        own = sqlite3.connect(tmp_path / "a.db")
        own.executescript(
            "CREATE TABLE orders (id INTEGER); INSERT INTO orders VALUES (7); "
            "PRAGMA user_version = 42; PRAGMA application_id = 99;"
        )
        store = SqliteStore(tmp_path / "a.db")
        put_settled(store, key(1))
        store.close()
        found = [own.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")]
        names = {name for (name,) in own.execute("SELECT name FROM sqlite_schema")}
        rows = own.execute("SELECT * FROM orders").fetchall()
        own.close()

        assert found == [42, 99]
        assert rows == [(7,)]
        assert {name for name in names if "onceward" not in name} == {"orders"}

    @pytest.mark.parametrize("how", ["folder", "file"])
    def test_without_permission_the_error_names_the_path_and_what_is_needed(self, how: str) -> None:
        """
        A file or folder that this user may not write: an error at opening that says so, and no driver's exception.
        """
        with tempfile.TemporaryDirectory() as folder:
            # As root nothing is forbidden, so the attempt is made by a process that gave its rights away.
            Path(folder).chmod(0o755)
            path = Path(folder) / "a.db"
            if how == "file":
                SqliteStore(path).close()
            script = (
                "import os, sys\n"
                "from onceward._core.errors import StoreUnavailable\n"
                "from onceward.stores.sqlite import SqliteStore\n"
                f"os.setuid({NOBODY}) if os.geteuid() == 0 else os.chmod(sys.argv[2], 0o500)\n"
                "try:\n    SqliteStore(sys.argv[1])\n"
                "except StoreUnavailable as error:\n    print(error)\n"
            )
            if how == "file" and os.geteuid() != 0:
                path.chmod(0o400)
            ran = python(script, path, folder)
            Path(folder).chmod(0o755)

            assert str(path) in ran.stdout, ran.stderr
            assert "user" in ran.stdout

    def test_a_copy_made_with_the_backup_api_replays(self, tmp_path: Path) -> None:
        """
        What `.backup` copies while the store is in use is a store.
        """
        store = SqliteStore(tmp_path / "a.db")
        put_settled(store, key(1), b'"first"')
        source, target = sqlite3.connect(tmp_path / "a.db"), sqlite3.connect(tmp_path / "copy.db")
        source.backup(target)
        source.execute("VACUUM INTO ?", (str(tmp_path / "vacuumed.db"),))
        source.close()
        target.close()
        results = []
        for name in ("copy.db", "vacuumed.db"):
            copy = SqliteStore(tmp_path / name)
            standing = copy.put(claimed(key(1)), None)
            results.append((standing.landed, standing.record.result if standing.record else None))
            copy.close()
        store.close()

        assert results == [(False, b'"first"')] * 2


class TestTheSchema:
    def test_the_latest_version_is_the_last_migration(self) -> None:
        """
        The constant and the folder of numbered files agree, without a gap: 4 does what 3 did, which was not released.
        """
        names = sorted(file.name for file in files("onceward.stores").joinpath("sql").iterdir())
        numbers = [int(name.split("_")[1]) for name in names if name.startswith("sqlite_")]

        assert [number for number in range(1, schema.LATEST + 1) if number != 3] == numbers

    def test_a_later_schema_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        """
        An older Onceward does not guess at what a newer one wrote.
        """
        SqliteStore(tmp_path / "a.db").close()
        own = sqlite3.connect(tmp_path / "a.db")
        own.execute("UPDATE onceward_meta SET value = 99 WHERE name = 'schema_version'")
        own.commit()
        with pytest.raises(SchemaMismatch, match="upgrade onceward"):
            SqliteStore(tmp_path / "a.db")
        version = own.execute("SELECT value FROM onceward_meta WHERE name = 'schema_version'").fetchone()
        own.close()

        assert version == (99,)

    def test_an_earlier_schema_is_migrated_and_its_records_replay(self, tmp_path: Path, next_schema: None) -> None:
        """
        A file of the version before is brought up to date when it is opened, with everything in it.
        """
        path = tmp_path / "a.db"
        with earlier():
            store = SqliteStore(path)
            put_settled(store, key(1), b'"old"')
            store.close()
        versions = sqlite.migrate(f"sqlite:///{path}")
        store = SqliteStore(path)
        record = store.load(key(1))
        store.close()

        assert versions == (NEXT - 1, NEXT)
        assert record is not None
        assert record.result == b'"old"'

    def test_of_two_processes_that_migrate_at_once_one_does_it(self, tmp_path: Path) -> None:
        """
        Eight processes open a file that is not there yet: all of them get a store.
        """
        script = (
            "import sys\n"
            "from sqlite_support import *\n"
            "sys.stdin.readline()\n"
            "store = SqliteStore(sys.argv[1])\n"
            "print(store.put(claimed(key(int(sys.argv[2]))), None).landed)\n"
        )
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(tmp_path / "a.db"), str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parent,
            )
            for number in range(8)
        ]
        outputs = [process.communicate("go\n", timeout=60) for process in processes]

        assert outputs == [("True\n", "")] * 8

    @pytest.mark.parametrize(
        ("point", "skip"), [("begun", 0), *(("statement", skip) for skip in range(STATEMENTS)), ("commit", 0)]
    )
    def test_killed_anywhere_in_a_migration_the_schema_is_the_old_or_the_new(
        self, tmp_path: Path, point: str, skip: int
    ) -> None:
        """
        kill -9 between any two statements: the file is as before, and the next to open it finishes the work.
        """
        path = tmp_path / "a.db"
        script = (
            "import sys\n"
            "from sqlite_support import *\n"
            "from onceward.runtime import failpoints\n"
            "failpoints.arm(sys.argv[2], 'kill', skip=int(sys.argv[3]))\n"
            "SqliteStore(sys.argv[1])\n"
        )
        ran = python(script, path, f"sqlite.migrate.{point}", skip)
        own = sqlite3.connect(path)
        tables = own.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        own.close()
        store = SqliteStore(path)
        landed = store.put(claimed(key(1)), None).landed
        store.close()

        assert ran.returncode == -signal.SIGKILL, ran.stderr
        assert tables == (0,)
        assert landed

    def test_a_table_of_that_name_which_is_not_ours_is_reported(self, tmp_path: Path) -> None:
        """
        Somebody else's onceward_meta is not taken for a schema.
        """
        own = sqlite3.connect(tmp_path / "a.db")
        own.execute("CREATE TABLE onceward_meta (name TEXT, value TEXT)")
        own.commit()
        own.close()
        with pytest.raises(SchemaMismatch):
            SqliteStore(tmp_path / "a.db")


NEXT = schema.LATEST + 1


class earlier:  # noqa: N801 - reads as what it does.
    """Be the version before."""

    def __enter__(self) -> None:
        schema.LATEST = NEXT - 1

    def __exit__(self, *_: object) -> None:
        schema.LATEST = NEXT


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A version that does not exist yet: one more index."""
    real = schema.migrations

    def with_one_more(after: int) -> Any:
        yield from real(after)
        if schema.LATEST == NEXT and after < NEXT:
            yield NEXT, ["CREATE INDEX onceward_first ON onceward_records (first_at)"]

    monkeypatch.setattr(schema, "LATEST", NEXT)
    monkeypatch.setattr(schema, "migrations", with_one_more)
    yield


class TestForOperators:
    def test_init_makes_a_store_and_says_where(self, tmp_path: Path) -> None:
        """
        `init` twice is the same as once.
        """
        url = f"sqlite:///{tmp_path}/a.db"

        assert tmp_path / "a.db" == sqlite.init(url)
        assert tmp_path / "a.db" == sqlite.init(url)
        assert sqlite.migrate(url) == (schema.LATEST, schema.LATEST)

    @pytest.mark.parametrize("command", [sqlite.migrate, sqlite.check])
    def test_looking_at_a_store_makes_none(self, tmp_path: Path, command: Any) -> None:
        """
        Checking a mistyped path must not leave an empty store behind.
        """
        with pytest.raises(ConfigurationError):
            command(f"sqlite:///{tmp_path}/a.db")

        assert list(tmp_path.iterdir()) == []

    def test_a_good_store_passes_every_check(self, tmp_path: Path) -> None:
        """
        Damage, schema, journal, synchronous, mode and records: each has a finding.
        """
        store = SqliteStore(tmp_path / "a.db")
        put_settled(store, key(1))
        store.put(claimed(key(2)), None)
        store.close()
        findings = sqlite.check(f"sqlite:///{tmp_path}/a.db")

        assert [one.name for one in findings] == ["damage", "schema", "journal", "synchronous", "mode", "records"]
        assert all(one.ok for one in findings)
        assert findings[-1].detail == "1 claimed, 1 settled"

    def test_what_is_open_to_others_or_not_durable_is_found(self, tmp_path: Path) -> None:
        """
        A file that the group can read, and a store that does not wait for the disk, fail their checks.
        """
        SqliteStore(tmp_path / "a.db").close()
        (tmp_path / "a.db").chmod(0o640)
        findings = sqlite.check(f"sqlite:///{tmp_path}/a.db?synchronous=normal")

        assert {one.name for one in findings if not one.ok} == {"synchronous", "mode"}


class TestClosing:
    def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        """
        After close every call raises, reads and writes alike; closing again is fine.
        """
        store = SqliteStore(tmp_path / "a.db")
        store.close()
        store.close()
        for action in (
            lambda: store.put(claimed(key(1)), None),
            lambda: store.put(claimed(key(1)), b"v"),
            lambda: store.load(key(1)),
            lambda: store.purge(1),
        ):
            with pytest.raises(StoreUnavailable, match="closed"):
                action()

    def test_the_last_to_close_leaves_one_file(self, tmp_path: Path) -> None:
        """
        Every connection is closed: the log is gone, all of it is in the file.
        """
        store = SqliteStore(tmp_path / "a.db")
        put_settled(store, key(1))
        store.load(key(1))
        store.close()

        assert [path.name for path in tmp_path.iterdir()] == ["a.db"]

    def test_a_file_that_cannot_have_a_log_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Without a write-ahead log, readers and writers would stand in each other's way: better an error than that.
        """
        path = tmp_path / "a.db"
        SqliteStore(path).close()
        monkeypatch.setattr("onceward.stores._sqlite_connections.connect", lambda *_, **__: OnANetworkDrive())
        with pytest.raises(ConfigurationError, match="write-ahead log"):
            SqliteStore(path)


class OnANetworkDrive:
    """A connection that answers as SQLite does where shared memory is not to be had."""

    def cursor(self) -> Any:
        return self

    def execute(self, *_: object) -> Any:
        return self

    def fetchone(self) -> tuple[str]:
        return ("delete",)

    def close(self) -> None:
        pass


def test_a_lost_reader_does_not_keep_a_store_from_closing(tmp_path: Path) -> None:
    """
    An interrupt between borrowing a reader and giving it back loses the reader; closing does not wait for it.
    """
    store = SqliteStore(tmp_path / "a.db")
    store.load(key(1))
    connections: Connections = store._database.connections
    connections._idle.pop().connection.close()
    store.close()

    assert len(connections._readers) == 0
