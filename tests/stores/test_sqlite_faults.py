"""Full disks, failing disks, damaged files: an error of ours, nothing told that is not so, and life afterwards."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlite_support import claimed, in_thread, key, lead_held, put_settled, settled

from onceward._core.errors import OncewardError, StoreCorrupt, StoreFull, StoreUnavailable
from onceward._core.record import PutResult
from onceward.runtime import failpoints
from onceward.stores import _sqlite_rows as rows
from onceward.stores._sqlite_file import breaks_connection, is_about_the_file, is_busy, translate_error
from onceward.stores.sqlite import SqliteStore, check


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "store.db")
    yield store
    failpoints.disarm()
    store.close()


def writer(store: SqliteStore) -> sqlite3.Connection:
    connection: sqlite3.Connection = store._database.connections.writer.connection
    return connection


def failing(code: int, message: str = "broken") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (sqlite3.SQLITE_BUSY, StoreUnavailable),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreUnavailable),
        (sqlite3.SQLITE_LOCKED, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreCorrupt),
        (sqlite3.SQLITE_NOTADB, StoreCorrupt),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreUnavailable),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable),
        (sqlite3.SQLITE_PERM, StoreUnavailable),
        (sqlite3.SQLITE_AUTH, StoreUnavailable),
        (sqlite3.SQLITE_NOMEM, StoreUnavailable),
        (sqlite3.SQLITE_CONSTRAINT_NOTNULL, StoreUnavailable),
    ],
)
def test_each_error_of_the_driver_has_a_meaning(code: int, meaning: type[OncewardError]) -> None:
    """
    Told by the primary result code, with the path in the message.
    """
    error = translate_error(failing(code), Path("/data/agent.db"))

    assert meaning is type(error)
    assert "/data/agent.db" in str(error)


def test_what_is_about_the_file_concerns_everybody() -> None:
    """
    Busy can be waited for; after an I/O error the connection is not trusted; a bad row is nobody else's.
    """
    busy, broken, row = (
        failing(code) for code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CONSTRAINT)
    )

    assert [is_busy(error) for error in (busy, broken, row)] == [True, False, False]
    assert [breaks_connection(error) for error in (busy, broken, row)] == [False, True, False]
    assert [is_about_the_file(error) for error in (busy, broken, row)] == [True, True, False]
    assert [judge(OverflowError()) for judge in (is_busy, breaks_connection, is_about_the_file)] == [False] * 3


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """A disk that ends there, for this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


class TestAFullDisk:
    def test_a_claim_that_does_not_fit_is_refused_and_fits_later(self, store: SqliteStore) -> None:
        """
        No room: `StoreFull`, nothing stored, and the same put lands once there is room.
        """
        (pages,) = writer(store).execute("PRAGMA page_count").fetchone()
        writer(store).execute(f"PRAGMA max_page_count = {pages}")
        big = claimed(key(1), result=b"x" * 50_000)
        with pytest.raises(StoreFull, match="same key"):
            store.put(big, None)
        found = store.load(key(1))
        writer(store).execute("PRAGMA max_page_count = 100000")

        assert found is None
        assert store.put(big, None).landed

    @pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
    def test_a_disk_that_ends_loses_nothing_that_was_acknowledged(self, store: SqliteStore, together: bool) -> None:
        """
        Writes until the kernel refuses: every landed put is there afterwards, every other raised, the file is sound.
        """
        told: dict[int, bool] = {}
        refused = 0

        def put(number: int) -> bool:
            return store.put(claimed(key(number), result=b"x" * 3000), None).landed

        with no_file_beyond(store.path.stat().st_size + 400_000):
            for first in range(0, 240, 8):
                if together:
                    with lead_held(store) as queued:
                        callers: list[Any] = [in_thread(lambda n=n: put(n)) for n in range(first, first + 8)]
                        queued(8)
                else:
                    callers = [lambda n=n: put(n) for n in range(first, first + 8)]
                for number, caller in enumerate(callers, start=first):
                    try:
                        told[number] = caller()
                    except StoreUnavailable:
                        refused += 1
        found = {number for number in range(240) if store.load(key(number)) is not None}
        sound = writer(store).execute("PRAGMA integrity_check").fetchall() if put(1000) else None

        assert refused
        assert set(told.values()) == {True}
        assert set(told) <= found
        assert sound == [("ok",)]


class TestAFailingDisk:
    @pytest.mark.parametrize("point", ["sqlite.write.before", "sqlite.commit.after"])
    def test_after_an_io_error_the_connection_is_not_used_again(self, store: SqliteStore, point: str) -> None:
        """
        The caller hears an error, never an answer; the next one gets a connection that was just opened.
        """
        before = writer(store)
        failpoints.arm(point, raising(failing(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error")))
        with pytest.raises(StoreUnavailable, match="disk I/O error"):
            store.put(claimed(key(1)), None)
        failpoints.disarm()

        assert store.put(claimed(key(2)), None).landed
        assert writer(store) is not before

    def test_a_reader_that_failed_is_replaced(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        An I/O error while reading: an error of ours, and the next read has a new connection.
        """
        store.load(key(1))
        before = store._database.connections._idle[0]
        real = rows.find
        monkeypatch.setattr(rows, "find", raising(failing(sqlite3.SQLITE_IOERR, "disk I/O error")))
        with pytest.raises(StoreUnavailable, match="disk I/O error"):
            store.load(key(1))
        monkeypatch.setattr(rows, "find", real)

        assert store.load(key(1)) is None
        assert [reader is not before for reader in store._database.connections._idle] == [True]

    def test_a_file_that_became_read_only_is_reported(self, store: SqliteStore) -> None:
        """
        Claims raise with advice about permissions; what is stored is still answered.
        """
        put_settled(store, key(1))
        writer(store).execute("PRAGMA query_only = 1")
        with pytest.raises(StoreUnavailable, match="needs to read and write"):
            store.put(claimed(key(2)), None)

        assert not store.put(claimed(key(1)), None).landed


def raising(error: BaseException) -> Any:
    def act(*_: object) -> None:
        raise error

    return act


class TestADamagedFile:
    @pytest.mark.slow
    def test_a_damaged_structure_is_noticed_or_harmless(self, tmp_path: Path) -> None:
        """
        Bits of the file's structure flipped, one at a time: every record is read as it was, or an error says that
        the file is damaged, or `check` does. (SQLite has no checksums: a bit flipped inside a stored value is found
        by nobody, and is not tried here.)
        """
        source = SqliteStore(tmp_path / "a.db")
        records = [put_settled(source, key(number), b"r" * 300) for number in range(60)]
        source.close()
        healthy = (tmp_path / "a.db").read_bytes()
        chance = random.Random(7)
        outcomes = {"right": 0, "noticed": 0, "wrong": 0}
        for _ in range(150):
            damaged = bytearray(healthy)
            page = chance.randrange(len(healthy) // 4096) * 4096
            place = page + (100 if page == 0 else 0) + chance.randrange(8)
            damaged[place] ^= 1 << chance.randrange(8)
            copy = tmp_path / "copy.db"
            copy.write_bytes(damaged)
            outcomes[self.outcome(copy, records)] += 1
            for path in tmp_path.glob("copy.db*"):
                path.unlink()

        assert outcomes["wrong"] == 0, outcomes
        assert outcomes["noticed"] > 30

    def outcome(self, path: Path, records: list[Any]) -> str:
        try:
            store = SqliteStore(path)
        except OncewardError:
            return "noticed"
        try:
            for record in records:
                found = store.load(record.id)
                if found is None or found.result != record.result or found.fingerprint != record.fingerprint:
                    findings = {finding.name: finding.ok for finding in check(f"sqlite:///{path}")}
                    return "wrong" if findings["damage"] else "noticed"
        except OncewardError:
            return "noticed"
        finally:
            store.close()
        return "right"

    def test_a_torn_log_loses_no_more_than_its_end(self, tmp_path: Path) -> None:
        """
        A log cut off anywhere, as by a power cut: what is left opens, is sound, and is a beginning of what was written.
        """
        store = SqliteStore(tmp_path / "a.db")
        store._database.connections.writer.connection.execute("PRAGMA wal_autocheckpoint = 0")
        for number in range(20):
            held = store.put(claimed(key(number)), None).record
            assert held is not None
            store.put(settled(held), held.version)
        log = (tmp_path / "a.db-wal").read_bytes()
        beginnings = []
        for cut in range(0, len(log), 5000):
            copy = tmp_path / f"cut{cut}.db"
            shutil.copy(tmp_path / "a.db", copy)
            Path(f"{copy}-wal").write_bytes(log[:cut])
            beginnings.append(self.beginning(copy))
        store.close()

        assert beginnings == sorted(beginnings)
        assert beginnings[0] == 0
        assert beginnings[-1] >= 18

    def beginning(self, path: Path) -> int:
        """How many records are there, of which only the last may be unsettled."""
        store = SqliteStore(path)
        found = [record for number in range(20) if (record := store.load(key(number))) is not None]
        sound = store._database.connections.writer.connection.execute("PRAGMA integrity_check").fetchall()
        store.close()
        assert sound == [("ok",)]
        assert [key(number) for number in range(len(found))] == [record.id for record in found]
        assert all(record.state == "settled" for record in found[:-1])
        return len(found)


def test_a_lost_answer_can_be_asked_for_again(store: SqliteStore) -> None:
    """
    The commit happened and the answer was lost: the same put does not land again, and finds itself.
    """
    claim = claimed(key(1))
    failpoints.arm("sqlite.commit.after", raising(failing(sqlite3.SQLITE_IOERR, "disk I/O error")))
    with pytest.raises(StoreUnavailable):
        store.put(claim, None)
    failpoints.disarm()
    again: PutResult = store.put(claim, None)

    assert again.record is not None
    assert (False, claim.version) == (again.landed, again.record.version)
