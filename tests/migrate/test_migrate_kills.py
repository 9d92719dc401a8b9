"""
Killed (-9) anywhere and run again, beside writers: no row is lost, none is doubled.

`make test` has ten thousand rows under writers; MIGRATE_ROWS=1000000 has a million, and prints what it took.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from migrate_subject import Subject, expected, subject_of
from migrate_victim import BATCH_ROWS

from onceward.migrate import historical_key, open_database
from servers.postgres import kinds

ROWS = int(os.environ.get("MIGRATE_ROWS", "10000"))
WRITERS = 3
PATIENCE = 3_600
PACE_SECONDS = 0.005
"""Between two writes of a writer: SQLite lends its file to whoever asks first, and a storm would leave no gap."""
VICTIM = Path(__file__).parent / "migrate_victim.py"
REFUSED = (psycopg.errors.NotNullViolation, psycopg.errors.CheckViolation, sqlite3.IntegrityError)
AMIDST = 80
"""A statement in the midst of the backfill's fifty batches; that it is one is asserted."""
EVERY = int(os.environ.get("MIGRATE_EVERY", "7"))
"""Every so many statements a kill; 1 is each of them."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds())
def test_it_is_killed_at_any_statement_and_the_next_run_ends_it(kind: str, tmp_path: Path) -> None:
    """
    What is done is read from the schema and the rows: after a kill anywhere the same command ends what is left, and the
    table is the one that was never interrupted.
    """
    rows, number, whole = 2 * BATCH_ROWS + 5, 1, None
    for _ in range(200):
        folder = tmp_path / str(number)
        folder.mkdir()
        with subject_of(kind, folder) as subject:
            subject.expenses(rows)
            ran = subprocess.run(
                [sys.executable, VICTIM, subject.url, str(number)], capture_output=True, text=True, check=False
            )
            assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
            if ran.returncode == 0:
                whole = subject.shape()
                break
            subject.apply(batch_rows=BATCH_ROWS)

            assert subject.stored_keys() == expected(range(1, rows + 1)), number
            with open_database(subject.url) as database:
                table = database.look("expenses", "", "builtin")
                assert database.progress_of(table) == (True, True, True, True), number
        number += EVERY
    assert whole is not None
    assert number > 3 * EVERY


class Writer(threading.Thread):
    """Inserts and updates: without keys, as the old program, until it is refused; with keys from then on."""

    def __init__(self, subject: Subject, name: str, enough: threading.Event) -> None:
        super().__init__(name=name)
        self._subject = subject
        self._enough = enough
        self.written: list[str] = []
        self.keyed = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            with closing(self._subject.connect()) as connection:
                while not self._enough.is_set() or not self.keyed:
                    self._write(connection, f"{self.name}-{len(self.written)}")
                    self._enough.wait(PACE_SECONDS)
        except BaseException as error:
            self.failed = error

    def _write(self, connection: Any, token: str) -> None:
        spelt = self._subject.spelt
        if not self.keyed:
            try:
                connection.execute(spelt("INSERT INTO expenses (token, amount) VALUES (?, 1)"), [token])
                self.written.append(token)
                return
            except REFUSED:
                self.keyed = len(self.written) + 1  # The new program takes over.
        insert = "INSERT INTO expenses (token, amount, worker_id, idempotency_key) VALUES (?, 1, ?, ?)"
        connection.execute(spelt(insert), [token, self.name, token])
        self.written.append(token)


@contextmanager
def writers(subject: Subject) -> Iterator[list[Writer]]:
    """Some at once, until the block ends."""
    enough = threading.Event()
    threads = [Writer(subject, f"w{number}", enough) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        enough.set()
        for thread in threads:
            thread.join(PATIENCE)


@pytest.mark.slow
@pytest.mark.fault("migrate-forgets-late-rows")
@pytest.mark.parametrize("kind", kinds())
def test_rows_of_concurrent_writers_are_neither_lost_nor_doubled(kind: str, tmp_path: Path) -> None:
    """
    Writers go on inserting while the backfill runs, is killed in its middle, and is run again to its end.
    """
    with subject_of(kind, tmp_path) as subject:
        subject.expenses(ROWS)
        batch = max(100, ROWS // 50)
        began = time.monotonic()
        with writers(subject) as threads:
            victim = subprocess.run([sys.executable, VICTIM, subject.url, str(AMIDST), str(batch)], check=False)
            killed_at = _filled(subject)
            words = ["apply", "expenses", "--database", subject.url, "--batch", str(batch), "--lock-timeout", "60"]
            resumed = subprocess.run(
                [sys.executable, "-m", "onceward", "migrate", *words], capture_output=True, text=True, check=False
            )
        took = time.monotonic() - began

        assert victim.returncode == -signal.SIGKILL
        assert resumed.returncode == 0, resumed.stderr
        assert [thread.failed for thread in threads] == [None] * WRITERS
        _check(subject, threads, killed_at)
        told = f"{kind}: {ROWS:,} rows, killed at {killed_at:,}, {sum(len(one.written) for one in threads):,} written"
        print(f"{told} meanwhile, {took:.1f} s in all\n{resumed.stderr}{resumed.stdout}")


def _filled(subject: Subject) -> int:
    """Rows that have a key from the backfill."""
    return int(subject.run("SELECT count(*) FROM expenses WHERE worker_id = 'historical-backfill'")[0][0])


def _check(subject: Subject, threads: list[Writer], killed_at: int) -> None:
    """Every row that anybody wrote is there once, with the key that it must have."""
    found = subject.run("SELECT id, token, worker_id, idempotency_key FROM expenses")
    written = [f"old-{number}" for number in range(1, ROWS + 1)] + [one for thread in threads for one in thread.written]
    assert 0 < killed_at < ROWS
    assert Counter(token for _, token, _, _ in found) == Counter(written)
    assert len({(worker, key) for _, _, worker, key in found}) == len(found)
    wrong = [
        (id, token, worker, key)
        for id, token, worker, key in found
        if (worker, key) != ("historical-backfill", historical_key(str(id))) and (worker, key) != (token[:2], token)
    ]
    assert wrong == []
    with open_database(subject.url) as database:
        assert database.progress_of(database.look("expenses", "", "builtin")) == (True, True, True, True)
