"""What a journal tells: every attempt, as it was."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from journal_support import SCOPE, WORKER, opened, url_of

from onceward import AsyncGate, ConfigurationError, Gate, InFlight, OutcomeUnknown, insert_once
from onceward.errors import RecordedFailure
from onceward.gate import Event, EventType
from onceward.gate.operator_actions import id_of_key
from onceward.journal import Journal
from onceward.journal.notes import run_subject
from onceward.journal.views import CallFilter
from onceward.runtime.environment import REAL
from onceward.testing.clock import StillEnvironment
from servers.postgres import kinds

TABLE = "CREATE TABLE expenses (worker_id TEXT, idempotency_key TEXT, amount TEXT, UNIQUE (worker_id, idempotency_key))"


def test_notes_put_behind_the_work_are_there_after_a_flush(journal: Any) -> None:
    """
    In both colours, for whoever writes notes of its own, as the service does; and found by whoever may see every scope.
    """
    with journal.call("charge", key="charge:1"):
        journal.put([run_subject(REAL, SCOPE, "march", WORKER, None).begun()])
    journal.flush()

    assert [run.id for run in journal.runs()] == ["march"]
    assert [call.tool for call in journal.find(CallFilter(None))] == ["charge"]
    assert journal.find(CallFilter("live:nobody")) == []


@pytest.mark.requirement("B43")
def test_after_a_deduplicated_retry_there_are_two_attempts_and_one_effect(journal: Any) -> None:
    """
    The database refuses the second row; the journal tells of both attempts, and which of them wrote it.
    """
    connection = sqlite3.connect(":memory:")
    connection.execute(TABLE)
    row = {"worker_id": WORKER, "idempotency_key": "demo-key-001", "amount": "12.50"}
    for _ in range(2):
        with (
            journal.run("run-42") as run,
            run.turn(1) as turn,
            turn.call("record_expense", key="demo-key-001", arguments=row) as call,
        ):
            call.wrote(insert_once(connection, "expenses", row, key=["worker_id", "idempotency_key"]))

    [told] = journal.runs()
    first, second = journal.calls(run="run-42")
    assert (told.attempts, told.effects, told.unended) == (2, 1, 0)
    assert (told.begun, told.status) == (2, "completed")
    assert [first.outcome, second.outcome] == ["executed", "replayed"]
    assert first.digest == second.digest == id_of_key(SCOPE, "demo-key-001").hex()[:12]
    assert first.fingerprint == second.fingerprint is not None
    assert [(turn.seq, turn.status, turn.begun) for turn in journal.turns("run-42")] == [(1, "completed", 2)]
    assert connection.execute("SELECT count(*) FROM expenses").fetchone()[0] == 1
    connection.close()


class Stopped(BaseException):
    """What ends a program and is no error of it."""


@pytest.mark.parametrize(
    ("error", "outcome", "detail"),
    [
        (ValueError("4242 4242 4242 4242"), "failed", "ValueError"),
        (InFlight("k"), "refused", "in_flight"),
        (OutcomeUnknown("k"), "unknown", "outcome_unknown"),
        (RecordedFailure("ValueError", "m"), "replayed", "recorded_failure"),
        (Stopped(), "unknown", "Stopped"),
    ],
)
def test_an_exception_says_how_an_attempt_ended_and_goes_on(
    error: BaseException, outcome: str, detail: str, tmp_path: Path
) -> None:
    """
    It is noted by its kind, never by its words: those have arguments in them.
    """
    with opened("blocking", url_of("sqlite", tmp_path)) as journal:
        with (
            pytest.raises(type(error)),
            journal.run("r") as run,
            run.turn(1) as turn,
            turn.call("charge", key="k"),
        ):
            raise error

        [call] = journal.calls()
        [run] = journal.runs()
    assert (outcome, detail) == (call.outcome, call.detail)
    assert ("failed" if isinstance(error, Exception) else "cancelled") == run.status


def test_the_same_is_true_of_cancelled_tasks(tmp_path: Path) -> None:
    """
    A task that is cancelled in the middle leaves an attempt of unknown outcome, and a run that was cancelled.
    """
    made = opened("awaiting", url_of("sqlite", tmp_path))

    async def work(began: asyncio.Event) -> None:
        async with made.inner.run("r") as run, run.call("charge", key="k"):
            began.set()
            await asyncio.Event().wait()

    async def main() -> None:
        began = asyncio.Event()
        task = asyncio.create_task(work(began))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    made.loop.run_until_complete(main())
    [call], [run] = made.calls(), made.runs()
    made.close()

    assert (call.outcome, call.detail, run.status) == ("unknown", "CancelledError", "cancelled")


_DIES = """
import os, signal, sys
from onceward.journal import Journal
from onceward.testing.clock import StillEnvironment
journal = Journal(sys.argv[1], scope="test:acme", worker="reconciler-v1")
with journal.run("run-1") as run, run.turn(1) as turn, turn.call("charge", key="k"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", kinds())
def test_an_attempt_that_is_killed_has_a_beginning_and_no_end(url: str) -> None:
    """
    `running` and no end is what a killed worker leaves: of the run, of the turn, and of the attempt.
    """
    done = subprocess.run([sys.executable, "-c", _DIES, url], check=False, timeout=60)
    with opened("blocking", url) as journal:
        [call], [run], [turn] = journal.calls(), journal.runs(), journal.turns("run-1")

    assert done.returncode == -signal.SIGKILL
    assert (call.outcome, call.finished_at) == (None, None)
    assert (run.status, run.finished_at, run.unended) == ("running", None, 1)
    assert (turn.status, turn.finished_at) == ("running", None)


@pytest.mark.parametrize("kind", kinds())
def test_instants_are_those_of_the_databases_clock(kind: str, url: str) -> None:
    """
    Whatever the worker's clock says: on PostgreSQL the server's counts, on SQLite the host's.
    """
    environment = StillEnvironment()
    with opened("blocking", url, environment=environment) as journal:
        with journal.call("charge", key="k"):
            environment.advance(90)
        [call] = journal.calls()

    now = datetime.now(UTC) if kind == "postgres" else datetime(2001, 9, 9, 1, 48, 10, tzinfo=UTC)
    assert call.finished_at is not None
    assert timedelta(minutes=5) > abs(now - call.finished_at)


class TestAGate:
    """A gate tells a journal by way of a listener."""

    def test_every_attempt_at_a_gate_is_noted(self, url: str, tmp_path: Path) -> None:
        """
        One that ran, one that was answered from the record, one that raised, one that was refused; in their run.
        """

        def fail() -> None:
            raise RuntimeError

        with opened("blocking", url) as journal:
            gate = Gate(f"sqlite:///{tmp_path}/gate.db", scope=SCOPE, listeners=[journal.listener()])
            with gate, journal.run("run-1") as run, run.turn(7):
                gate.call("charge:1", lambda: "paid", name="charge")
                gate.call("charge:1", lambda: "paid", name="charge")
                with pytest.raises(RuntimeError):
                    gate.call("charge:2", fail, name="charge")
                with pytest.raises(Exception, match="may have happened"):
                    gate.call("charge:2", fail, name="charge")
            calls = journal.calls(run="run-1")

        assert [call.outcome for call in calls] == ["executed", "replayed", "unknown", "refused"]
        assert {(call.tool, call.turn, call.worker) for call in calls} == {("charge", 7, WORKER)}
        assert id_of_key(SCOPE, "charge:1").hex()[:12] == calls[0].digest

    def test_an_awaiting_gate_is_not_kept_waiting(self, url: str, tmp_path: Path) -> None:
        """
        Its notes are written behind it.
        """
        made = opened("awaiting", url)

        async def main() -> None:
            gate = AsyncGate(f"sqlite:///{tmp_path}/gate.db", scope=SCOPE, listeners=[made.inner.listener()])
            for _ in range(2):
                await gate.call("charge:1", lambda: "paid", name="charge")
            await gate.close()

        made.loop.run_until_complete(main())
        made.flush()
        calls = made.calls()
        made.close()

        assert [call.outcome for call in calls] == ["executed", "replayed"]

    @pytest.mark.fault("journal-what-is-under-way-is-not-noted")
    def test_what_is_under_way_is_noted_behind_the_work_and_its_end_later(self, url: str) -> None:
        """
        An attempt that lasts is there without its end, as a killed one stays; its end goes into the same row. One that
        has ended by then is written as one row, and once.
        """
        claimed = Event(EventType.CLAIMED, "0" * 12, SCOPE, "charge", 1, 17)
        made = opened("awaiting", url)
        listener = made.inner.listener()
        listener(claimed)
        listener(claimed._replace(fence=18))
        listener(claimed._replace(fence=18, type=EventType.SETTLED))
        made.flush()
        before = [(call.outcome, call.finished_at is None) for call in made.calls()]
        listener(claimed._replace(type=EventType.RELEASED))
        made.flush()
        after = [call.outcome for call in made.calls()]
        missed = made.inner.missed
        made.close()

        assert before == [(None, True), ("executed", False)]
        assert after == ["failed", "executed"]
        assert missed == 0

    def test_a_dead_holders_attempt_is_not_ended_by_others(self, url: str) -> None:
        """
        Another process may find out what became of its claim; the attempt itself has no end, and shows none.
        """
        claimed = Event(EventType.CLAIMED, "0" * 12, SCOPE, "charge", 1, 17)
        with opened("blocking", url) as journal:
            journal.listener()(claimed)
            journal.listener()(claimed._replace(type=EventType.IN_DOUBT))
            [call] = journal.calls()

        assert (call.outcome, call.finished_at) == (None, None)


def test_nothing_of_the_arguments_is_kept_but_a_fingerprint(tmp_path: Path) -> None:
    """
    Neither a key nor an argument is found in the file, or beside it; with `redacted`, what that lets through is.
    """
    url = url_of("sqlite", tmp_path)
    canary = "canary-4242"
    with opened("blocking", url, redacted=lambda tool, arguments: f"{tool} of {len(arguments)} fields") as journal:
        with journal.run("r") as run, run.call("charge", key=f"key-{canary}", arguments={"card": canary}):
            pass
        with pytest.raises(ValueError, match=canary), journal.call("charge", key="k2", arguments={"card": canary}):
            raise ValueError(canary)
        [first, _] = journal.calls()

    assert first.arguments == "charge of 1 fields"
    assert [file.name for file in tmp_path.iterdir() if canary.encode() in file.read_bytes()] == []


def test_a_secret_makes_fingerprints_that_cannot_be_guessed(tmp_path: Path) -> None:
    """
    Equal arguments have equal fingerprints under one secret, and other ones without it.
    """
    found = []
    for number, secret in enumerate((None, b"s" * 32, b"s" * 32)):
        with opened("blocking", f"sqlite:///{tmp_path}/{number}.db", secret=secret) as journal:
            with journal.call("charge", arguments={"pin": 1234}):
                pass
            found.append(journal.calls()[0].fingerprint)

    assert found[1] == found[2] != found[0]


def test_pages_follow_each_other_without_a_gap(journal: Any) -> None:
    """
    `after` goes on where the page before ended.
    """
    for number in range(5):
        with journal.call("charge", key=f"k{number}"):
            pass

    first = journal.calls(limit=3)
    second = journal.calls(limit=3, after=first[-1].id)

    assert len({call.digest for call in first + second}) == 5
    assert (len(first), len(second)) == (3, 2)


def test_what_is_old_or_too_much_is_forgotten(journal: Any) -> None:
    """
    Retention is by age and by number; both take the oldest.
    """
    for number in range(5):
        with journal.run(f"run-{number}") as run, run.turn(1) as turn, turn.call("charge", key=f"k{number}"):
            pass
    newest = journal.calls()[-1]

    assert journal.prune(retain=3600) == 0
    assert journal.prune(retain=3600, rows=1) == 4
    assert [newest] == journal.calls()
    assert journal.prune(retain=0.000_001) == 11
    assert (journal.calls(), journal.runs(), journal.turns("run-1")) == ([], [], [])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"worker": ""}, "name of its worker"),
        ({"scope": ""}, "scope"),
        ({"secret": b"short"}, "16 or more"),
        ({"url": "redis://localhost"}, "SQLite or PostgreSQL"),
        ({"url": "memory://"}, "SQLite or PostgreSQL"),
    ],
)
def test_what_cannot_be_a_journal_is_refused_at_once(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    """
    A mistake in the declaration is told when it is made, before any work.
    """
    taken = {"url": f"sqlite:///{tmp_path}/a.db", "scope": SCOPE, "worker": WORKER, **options}
    with pytest.raises(ConfigurationError, match=says):
        Journal(taken.pop("url"), **taken)
    assert list(tmp_path.iterdir()) == []


def test_an_end_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """
    The five outcomes are named.
    """
    with (
        opened("blocking", url_of("sqlite", tmp_path)) as journal,
        pytest.raises(ConfigurationError, match="executed, replayed"),
        journal.call("charge") as call,
    ):
        call.end("done")
