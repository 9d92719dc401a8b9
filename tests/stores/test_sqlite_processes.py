"""Many processes, one file: races, forks, waiting, and kill -9."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlite_support import HERE, Clock, claimed, in_thread, key, lead_held, put_settled, python

from onceward._core.errors import StoreUnavailable
from onceward.runtime import failpoints
from onceward.stores import _sqlite_connections
from onceward.stores.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "store.db")
    yield store
    failpoints.disarm()
    store.close()


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that runs a script, with pipes to it."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )


RACE = """
import sys
from sqlite_support import *
store = SqliteStore(sys.argv[1], synchronous="normal")
sys.stdin.readline()
won = [number for number in range(200) if store.put(claimed(key(number)), None).landed]
print(*won)
"""


@pytest.mark.slow
def test_of_eight_processes_one_claims_each_key(tmp_path: Path) -> None:
    """
    1600 claims of 200 keys: one lands for each, nobody hears "database is locked".
    """
    SqliteStore(tmp_path / "a.db").close()
    processes = [started(RACE, tmp_path / "a.db") for _ in range(8)]
    outputs = [process.communicate("go\n", timeout=120) for process in processes]
    won = sorted(int(number) for output, _ in outputs for number in output.split())

    assert [errors for _, errors in outputs] == [""] * 8
    assert won == list(range(200))


class TestWaiting:
    def test_a_write_waits_for_another_process(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A lock that is let go within the limit is never heard of.
        """
        own = sqlite3.connect(store.path, isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        pauses: list[float] = []

        def wait(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                own.execute("COMMIT")

        monkeypatch.setattr(_sqlite_connections, "pause", wait)
        landed = store.put(claimed(key(1)), None).landed
        own.close()

        assert landed
        assert len(pauses) == 3

    def test_the_clock_is_read_when_the_lock_is_ours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        However long a claim waited for the file, its lease is as long as it asked for.
        """
        clock = Clock()
        store = SqliteStore(tmp_path / "a.db", environment=clock)
        own = sqlite3.connect(store.path, isolation_level=None)
        own.execute("BEGIN IMMEDIATE")

        def wait(_: float) -> None:
            clock.now += 3_000_000
            own.execute("COMMIT")

        monkeypatch.setattr(_sqlite_connections, "pause", wait)
        record = store.put(claimed(key(1)), None).record
        own.close()
        store.close()

        assert (clock.now, clock.now) == (record.first_at, record.fence)

    @pytest.mark.parametrize("callers", [1, 5])
    def test_past_the_limit_everybody_hears_that_the_file_was_locked(
        self, tmp_path: Path, callers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        An error of ours, with a time to come back, once per caller and after one limit: not a limit for each.
        """
        pauses: list[float] = []
        monkeypatch.setattr(_sqlite_connections, "pause", pauses.append)
        store = SqliteStore(tmp_path / "a.db", busy_seconds=0.2)
        own = sqlite3.connect(store.path, isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        with lead_held(store) as queued:
            threads = [in_thread(lambda n=n: store.put(claimed(key(n)), None)) for n in range(callers)]
            queued(callers)
        errors = []
        for thread in threads:
            with pytest.raises(StoreUnavailable, match="locked") as raised:
                thread()
            errors.append(raised.value)
        own.execute("ROLLBACK")
        own.close()
        landed = store.put(claimed(key(1)), None).landed
        store.close()

        assert [1.0] * callers == [error.retry_after_seconds for error in errors]
        assert callers == len(set(map(id, errors)))
        assert pytest.approx(sum(pauses)) == 0.2
        assert landed

    def test_waiting_can_be_interrupted(self, store: SqliteStore) -> None:
        """
        Ctrl-C ends the wait for a locked file at once, and nothing is written.
        """
        own = sqlite3.connect(store.path, isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            store.put(claimed(key(1)), None)
        own.execute("ROLLBACK")
        own.close()

        assert store.load(key(1)) is None
        assert store.put(claimed(key(1)), None).landed


def in_child(action: Any) -> int:
    """Fork, do something in the child, and say how it ended: 0 if all was well."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# A fork in a process with threads is what is tested here; from 3.12 on Python warns of it.
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
class TestForking:
    def test_parent_and_child_both_go_on(self, store: SqliteStore) -> None:
        """
        After a fork both sides read and write, in a row and at the same time.
        """
        put_settled(store, key(1))

        def child() -> None:
            replayed = store.put(claimed(key(1)), None)
            if replayed.landed or not all(store.put(claimed(key(n)), None).landed for n in range(10, 60)):
                raise AssertionError("the child got another answer")

        pid = os.fork()
        if pid == 0:
            try:
                child()
            except BaseException:
                os._exit(1)
            os._exit(0)
        landed = [store.put(claimed(key(n)), None).landed for n in range(60, 110)]
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert code == 0
        assert landed == [True] * 50
        assert [store.load(key(n)) is not None for n in range(10, 110)] == [True] * 100

    def test_a_child_has_connections_and_locks_of_its_own(self, store: SqliteStore) -> None:
        """
        Nothing that was open before the fork is open after it: SQLite would take the parent's locks for the child's.
        """
        store.load(key(1))
        before = store._database.connections
        seen: list[Any] = []
        os.register_at_fork(before=lambda: seen.append((before.writer, len(before._idle))) if not seen else None)

        def child() -> None:
            if store._database.connections is before or before.writer is not None:
                raise AssertionError("inherited")
            store.put(claimed(key(2)), None)
            locks = Path("/proc/locks").read_text() if Path("/proc/locks").exists() else f" {os.getpid()} "
            if f" {os.getpid()} " not in locks:
                raise AssertionError("the child believes in locks that it does not have")

        assert in_child(child) == 0
        assert store.put(claimed(key(3)), None).landed

    @pytest.mark.slow
    def test_what_a_child_wrote_survives_its_parent_and_a_visitor(self, tmp_path: Path) -> None:
        """
        A server forks, its parent ends, somebody else opens and closes the file: what the child then writes is there.

        With inherited connections it is not: the visitor takes itself for the last one and deletes the log.
        """
        script = (
            "import os, sys\n"
            "from sqlite_support import *\n"
            "store = SqliteStore(sys.argv[1])\n"
            "put_settled(store, key(0))\n"
            "if os.fork():\n"
            "    os._exit(0)\n"
            "store.put(claimed(key(1)), None)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.readline()\n"
            "print(store.put(claimed(key(2)), None).landed, flush=True)\n"
            "sys.stdin.readline()\n"
            "os.kill(os.getpid(), 9)\n"
        )
        visitor = (
            "import sys\n"
            "from sqlite_support import *\n"
            "store = SqliteStore(sys.argv[1])\n"
            "store.load(key(1))\n"
            "store.close()\n"
        )
        with started(script, tmp_path / "a.db") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            ready = process.stdout.readline()
            python(visitor, tmp_path / "a.db")
            process.stdin.write("go\n")
            process.stdin.flush()
            landed = process.stdout.readline()
            process.stdin.write("die\n")
            process.stdin.close()
            process.stdout.read()
        store = SqliteStore(tmp_path / "a.db")
        found = [store.load(key(number)) is not None for number in range(3)]
        store.close()

        assert (ready, landed) == ("ready\n", "True\n")
        assert found == [True, True, True]

    def test_a_fork_waits_for_a_write_under_way(self, store: SqliteStore) -> None:
        """
        Whatever other threads are doing, the child finds the file at rest, and their answers come.
        """
        stop = threading.Event()

        def write(first: int) -> bool:
            number = first
            while not stop.is_set():
                number += 1
                if not store.put(claimed(key(number)), None).landed:
                    return False
            return True

        callers = [in_thread(lambda first=first: write(first)) for first in (10_000, 20_000, 30_000)]
        codes = [in_child(lambda n=n: store.put(claimed(key(n)), None)) for n in range(5)]
        stop.set()

        assert codes == [0] * 5
        assert all(caller() for caller in callers)
        assert [store.load(key(n)) is not None for n in range(5)] == [True] * 5

    def test_a_child_forked_in_the_middle_of_a_write_refuses(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        If the file cannot be at rest, the child's store says so instead of writing without locks; the parent goes on.
        """
        monkeypatch.setattr("onceward.stores._sqlite_database.REST_SECONDS_MAX", 0.05)
        codes: list[int] = []

        def child() -> None:
            with pytest.raises(StoreUnavailable, match="fork first"):
                store.put(claimed(key(9)), None)
            with pytest.raises(StoreUnavailable, match="fork first"):
                store.load(key(9))

        failpoints.arm("sqlite.write.before", lambda: codes.append(in_child(child)) if not codes else None)
        landed = store.put(claimed(key(1)), None).landed
        failpoints.disarm()

        assert codes == [0]
        assert landed
        assert store.load(key(9)) is None

    def test_closed_stores_stay_closed_in_a_child(self, store: SqliteStore) -> None:
        """
        A fork does not open what was closed.
        """
        store.close()

        def child() -> None:
            with pytest.raises(StoreUnavailable, match="closed"):
                store.load(key(1))

        assert in_child(child) == 0


KILLED = """
import sys, threading
from sqlite_support import *
from onceward.runtime import failpoints
store = SqliteStore(sys.argv[1])
put_settled(store, key(0))
print(0, flush=True)
failpoints.arm(sys.argv[2], "kill", skip=int(sys.argv[3]))
if sys.argv[4] == "alone":
    for number in range(1, 6):
        store.put(claimed(key(number)), None)
        print(number, flush=True)
else:
    def call(number):
        store.put(claimed(key(number)), None)
        sys.stdout.write(f"{number}\\n"); sys.stdout.flush()
    with lead_held(store) as queued:
        callers = [in_thread(lambda n=n: call(n)) for n in range(1, 6)]
        queued(5)
    for caller in callers:
        caller()
    store.erase([key(99)])
"""


class TestKilled:
    @pytest.mark.parametrize(
        ("point", "how", "skip", "whole"),
        [
            ("sqlite.write.before", "alone", 0, 1),
            ("sqlite.write.before", "alone", 3, 4),
            ("sqlite.commit.after", "alone", 0, 2),
            ("sqlite.commit.after", "alone", 3, 5),
            ("batch.before_answer", "alone", 1, 3),
            ("sqlite.write.before", "together", 0, 1),
            ("sqlite.commit.before", "together", 0, 1),
            ("sqlite.commit.after", "together", 0, 6),
            ("batch.before_answer", "together", 0, 6),
            ("sqlite.commit.before", "together", 1, 6),
        ],
    )
    def test_after_kill_9_all_that_was_acknowledged_is_there(
        self, tmp_path: Path, point: str, how: str, skip: int, whole: int
    ) -> None:
        """
        At each failpoint: what callers were told is stored, a batch is there as a whole or not at all, and the file
        is sound.
        """
        ran = python(KILLED, tmp_path / "a.db", point, skip, how)
        told = [int(number) for number in ran.stdout.split()]
        store = SqliteStore(tmp_path / "a.db")
        found = [number for number in range(10) if store.load(key(number)) is not None]
        sound = store._database.connections.writer.connection.execute("PRAGMA integrity_check").fetchall()
        goes_on = store.put(claimed(key(9)), None).landed
        store.close()

        assert ran.returncode == -signal.SIGKILL, ran.stderr
        assert set(told) <= set(found)
        assert list(range(whole)) == found
        assert sound == [("ok",)]
        assert goes_on


def test_the_pause_between_two_tries_is_short() -> None:
    """
    Waiting for another process is polling: often enough that a lock is not missed for long.
    """
    assert _sqlite_connections.PAUSE_SECONDS_FIRST < _sqlite_connections.PAUSE_SECONDS_MAX <= 0.01


def test_a_reader_never_blocks_a_writer(store: SqliteStore) -> None:
    """
    Somebody reads the file for a long time; claims land all the same.
    """
    put_settled(store, key(1))
    own = sqlite3.connect(store.path, isolation_level=None)
    own.execute("BEGIN")
    own.execute("SELECT count(*) FROM onceward_records").fetchall()
    landed = [store.put(claimed(key(number)), None).landed for number in range(2, 30)]
    own.close()

    assert landed == [True] * 28
