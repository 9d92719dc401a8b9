"""A journal protects nothing, and harms nothing: off, away or full, the gate holds and the work is done once."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from journal_support import SCOPE, WORKER, opened

from onceward import Gate, insert_once
from onceward.journal.note_queue import NoteQueue
from onceward.journal.note_writer import PAUSE_SECONDS, WriteFailures
from onceward.journal.notes import CallDetails, CallSubject, JournalNote
from onceward.runtime.environment import Environment
from onceward.testing.clock import StillEnvironment

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
"""Nobody listens on this port."""


def charges(gate: Gate, times: int) -> int:
    """Send a charge so often; how often it ran."""
    ran = []
    for _ in range(times):
        gate.call("charge:1", lambda: ran.append(1) or "paid", name="charge")
    return len(ran)


@pytest.mark.requirement("B44")
@pytest.mark.parametrize("how", ["off", "away", "damaged", "read-only"])
def test_without_its_journal_the_gate_still_holds(how: str, tmp_path: Path, caplog: Any) -> None:
    """
    The work is done once, whatever the matter with the journal is; and if it is not simply off, a warning is told.
    """
    url = NOWHERE if how == "away" else f"sqlite:///{tmp_path}/notes.db"
    if how == "damaged":
        (tmp_path / "notes.journal.db").write_bytes(b"this is no database" * 1000)
    if how == "read-only":
        (tmp_path / "notes.journal.db").mkdir()
    journal = None if how == "off" else opened("blocking", url)
    listeners = [] if journal is None else [journal.listener()]
    with (
        caplog.at_level(logging.WARNING),
        Gate(f"sqlite:///{tmp_path}/gate.db", scope=SCOPE, listeners=listeners) as gate,
    ):
        ran = charges(gate, 3)
    warned = [record.getMessage() for record in caplog.records if record.name == "onceward.journal"]

    assert ran == 1
    assert (0 if journal is None else 1) == len(warned)
    if journal is not None:
        assert "the work is not affected" in warned[0]
        assert journal.missed == 4
        journal.close()


@pytest.mark.requirement("B44")
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_without_its_journal_the_database_still_refuses_the_second_row(colour: str, caplog: Any) -> None:
    """
    Runs, turns and calls go on when nothing can be written; the constraint does what it did.
    """
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE TABLE expenses (worker_id TEXT, idempotency_key TEXT, UNIQUE (worker_id, idempotency_key))"
    )
    row = {"worker_id": WORKER, "idempotency_key": "demo-key-001"}
    journal = opened(colour, NOWHERE)
    written = []
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with journal.run("run-1") as run, run.turn(1) as turn, turn.call("record", key="demo-key-001") as call:
                written.append(call.wrote(insert_once(connection, "expenses", row, key=list(row))))
    journal.close()

    assert written == [1, 0, 0]
    assert len(caplog.records) == 1
    connection.close()


@pytest.mark.requirement("B44")
def test_nothing_of_the_gate_imports_the_journal() -> None:
    """
    Not the package, not a gate that has run something: what decides does not know what watches.
    """
    script = (
        "import sys, onceward; gate = onceward.Gate('memory://', scope='test:a'); gate.run('k', lambda: 1);"
        "import onceward.gate, onceward.adapters.insert, onceward.retry, onceward.http.server.handler_outcomes;"
        "print([name for name in sys.modules if name.startswith('onceward.journal')])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_journal_that_comes_back_is_written_again_and_makes_up_for_the_beginning(tmp_path: Path) -> None:
    """
    The end of an attempt carries what its beginning said: one whose beginning was missed is there, with its time.
    """
    environment = StillEnvironment()
    blocked = tmp_path / "notes.journal.db"
    blocked.mkdir()
    with opened("blocking", f"sqlite:///{tmp_path}/notes.db", environment=environment) as journal:
        with journal.call("charge", key="k1"):
            blocked.rmdir()
            environment.advance(PAUSE_SECONDS / 2)
        with journal.call("charge", key="k2"):
            environment.advance(PAUSE_SECONDS)
        [call] = journal.calls()

        assert journal.missed == 3
    assert call.finished_at is not None
    assert (call.finished_at - call.started_at).total_seconds() == PAUSE_SECONDS


def test_a_database_that_is_away_is_asked_once_in_a_while(tmp_path: Path) -> None:
    """
    After a failure the journal rests: a hundred calls do not wait a hundred times.
    """
    environment = StillEnvironment()
    asked = []
    (tmp_path / "notes.journal.db").mkdir()
    with opened("blocking", f"sqlite:///{tmp_path}/notes.db", environment=environment) as journal:
        journal._tables.driver._opened = lambda real=journal._tables.driver._opened: asked.append(1) or real()
        for _ in range(100):
            with journal.call("charge"):
                pass

        assert (len(asked), journal.missed) == (1, 200)


class Slow:
    """A writer that waits until it is let go."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.has_begun = threading.Event()
        self.written: list[JournalNote] = []

    def __call__(self, notes: list[JournalNote]) -> bool:
        self.has_begun.set()
        self.may.wait(60)
        self.written += notes
        return True


def note(number: int) -> JournalNote:
    """Some note."""
    return CallSubject(Environment(), CallDetails(SCOPE, WORKER, f"tool-{number}")).begun()


def test_the_queue_is_bounded_and_what_does_not_fit_is_told(caplog: Any) -> None:
    """
    While the database is slow, so many notes wait; the rest are missed, counted, and told once. Nobody is kept waiting.
    """
    slow, trouble = Slow(), WriteFailures(Environment())
    batches = NoteQueue(slow, trouble, Environment(), queue_max=10)
    batches.put([note(0)])
    assert slow.has_begun.wait(60)
    with caplog.at_level(logging.WARNING):
        for number in range(1, 31):
            batches.put([note(number)])
    slow.may.set()
    batches.close()

    assert len(slow.written) == 11
    assert trouble.missed == 20
    assert len(caplog.records) == 1


def test_what_waits_is_written_when_a_journal_is_closed() -> None:
    """
    Closing loses nothing; what is put afterwards is missed and counted.
    """
    slow, trouble = Slow(), WriteFailures(Environment())
    slow.may.set()
    batches = NoteQueue(slow, trouble, Environment())
    batches.put([note(number) for number in range(1_200)])
    batches.close()
    batches.put([note(0)])

    assert len(slow.written) == 1_200
    assert trouble.missed == 1
