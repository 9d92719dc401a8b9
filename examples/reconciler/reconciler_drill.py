"""
Kill the Reconciler wherever it may hurt, resume it, and count: rows, mails, and what the journal says.

One *run* of the drill is a fresh database, one to three workers that are killed with `kill -9` (at a failpoint, or
after a while; the seed says which), and one that is left alone. Workers are forked from a process that has imported
everything, so that hundreds of them take minutes and not an hour.

What a run came to is counted from outside: in the tables, in the file of a real mail server, and by a witness, to whom
every worker tells what it is about to do.

    deliveries    mails that the mail server took. A relay that is killed between the server's 250 and its own note of
                  it delivers again: nobody can do better over SMTP
    mails         the same after the receiver's recognition: a repeat has the Message-ID of the first
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

import reconcile

from onceward.journal import Journal
from onceward.runtime import failpoints

TRY_SECONDS, MARGIN_SECONDS = 0.5, 0.1
"""A killed relay's mails are tried again after so long."""
KILLS_MAX = 3
TIMER_SECONDS_MAX = 0.15
"""About as long as a worker takes."""
PLACES = {
    "reconciler.begun": 6,
    "reconciler.expense": 6,
    "reconciler.confirmation": 6,
    "reconciler.commit": 6,
    "reconciler.committed": 6,
    "outbox.add.after": 6,
    "journal.write.before": 26,
    "journal.write.written": 26,
    "journal.write.after": 26,
    "relay.turn.before": 2,
    "relay.turn.written": 2,
    "relay.turn.after": 2,
    "relay.deliver.before": 6,
    "relay.deliver.after": 6,
}
"""Failpoints, and how often a worker that is left alone passes them, about."""


class Order(NamedTuple):
    """One worker to be started, and how it is to end."""

    url: str
    port: int
    witness: str
    constraint: bool = True
    place: str | None = None
    skip: int = 0
    seconds: float | None = None


class Tally(NamedTuple):
    """What one run came to."""

    lines: int
    started: int
    killed: int
    expenses: int
    confirmations: int
    deliveries: int
    mails: int
    begun: int
    """Attempts, by the witness."""
    attempts: int
    """Attempts, by the journal."""
    effects: int
    unended: int
    faults: tuple[str, ...]
    """What is not as it was promised; nothing, if all is well."""


# --- the process that forks workers ---


def serve_orders() -> None:
    """Start a worker for each line of standard input; say how it ended."""
    for line in sys.stdin:
        order = Order(**json.loads(line))
        worker = os.fork()
        if worker == 0:
            os._exit(_work(order))
        print(json.dumps(_end_of(worker, order.seconds)), flush=True)


def _work(order: Order) -> int:
    """Be a worker, and perhaps be killed."""
    witness = os.open(order.witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    record = reconcile.record

    def witnessed(books: Any, gate: Any, run: str, line: reconcile.Line, key: str) -> int:
        os.write(witness, f"{line.line}\n".encode())  # With the kernel, and so safe from kill -9.
        return record(books, gate, run, line, key)

    reconcile.record = witnessed
    reconcile.TRY_SECONDS, reconcile.MARGIN_SECONDS = TRY_SECONDS, MARGIN_SECONDS
    if order.place is not None:
        failpoints.arm(order.place, "kill", skip=order.skip)
    try:
        reconcile.main(
            [order.url, "--mail-port", str(order.port), "--constraint", "on" if order.constraint else "off"],
            out=sys.stderr,
        )
    except BaseException as error:
        print(f"a worker failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _end_of(worker: int, seconds: float | None) -> str:
    """Wait for a worker, and kill it if it is time; how it ended."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(worker, 0 if until is None else os.WNOHANG)
        if ended:
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            return "killed" if killed else "done" if status == 0 else "failed"
        if until is not None and time.monotonic() >= until:
            os.kill(worker, signal.SIGKILL)
            until = None
        time.sleep(0.001)


# --- the drill ---


class Drill:
    """Starts workers, kills them, counts. The mail server is the caller's: `mails` is where it writes them."""

    def __init__(self, folder: Path, port: int, mails: Path) -> None:
        self._folder = folder
        self._port = port
        self._mails = mails
        self._seen = 0

    def __enter__(self) -> Self:
        self._log = (self._folder / "workers.log").open("ab")
        self._forks = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._forks.communicate()
        self._log.close()

    def run(
        self,
        url: str,
        kills: list[dict[str, Any]],
        *,
        constraint: bool = True,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Tally:
        """Kill so often, resume after each, and count at the end."""
        prepare(url)
        witness = self._folder / "witness"
        witness.unlink(missing_ok=True)
        ended: list[str] = []
        for kill in [*kills, {}]:
            ended.append(self.start(url, witness, constraint=constraint, **kill))
            tell(ended[-1])
        begun = Counter(map(int, witness.read_text().split())) if witness.exists() else Counter()
        return self._counted(url, ended, begun)

    def start(self, url: str, witness: Path, *, constraint: bool = True, **kill: Any) -> str:
        """One worker, from its start to its end."""
        order = Order(url, self._port, str(witness), constraint, **kill)
        if self._forks.stdin is None or self._forks.stdout is None:
            raise RuntimeError("there is nobody to start workers")
        self._forks.stdin.write(json.dumps(order._asdict()) + "\n")
        self._forks.stdin.flush()
        answer = self._forks.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that forks is gone: {(self._folder / 'workers.log').read_text()[-2000:]}")
        return str(json.loads(answer))

    def _new_mails(self) -> list[dict[str, Any]]:
        lines = self._mails.read_text().splitlines() if self._mails.exists() else []
        new, self._seen = lines[self._seen :], len(lines)
        return [json.loads(line) for line in new]

    def _counted(self, url: str, ended: list[str], begun: Counter[int]) -> Tally:
        lines = reconcile.lines_of(reconcile.STATEMENT)
        books = reconcile.Books(url)
        expenses = [str(row[0]) for row in books.connection.execute("SELECT idempotency_key FROM expenses").fetchall()]
        confirmed = [
            row[0] for row in books.connection.execute("SELECT expense_id FROM confirmation_emails").fetchall()
        ]
        books.close()
        mails = self._new_mails()
        with Journal(url, scope=reconcile.SCOPE, worker=reconcile.WORKER) as journal:
            calls = journal.calls(limit=1_000)
        killed = ended.count("killed")
        tally = Tally(
            lines=len(lines),
            started=len(ended),
            killed=killed,
            expenses=len(expenses),
            confirmations=len(confirmed),
            deliveries=len(mails),
            mails=len({mail["message_id"] for mail in mails}),
            begun=begun.total(),
            attempts=len(calls),
            effects=sum(call.outcome == "executed" for call in calls),
            unended=sum(call.outcome is None for call in calls),
            faults=(),
        )
        by_turn = Counter(call.turn for call in calls)
        told = {
            "a worker failed": "failed" in ended,
            "not one expense a line": [1] * len(lines) != [*Counter(expenses).values()],
            "not one confirmation an expense": [1] * len(lines) != [*Counter(confirmed).values()],
            "not one mail a line": tally.mails != len(lines),
            "a line without its mail": len({mail["subject"] for mail in map(_with_subject, mails)}) != len(lines),
            "an attempt is not in the journal": any(by_turn[line] < many for line, many in begun.items()),
            "the journal tells of attempts that nobody made": tally.attempts > tally.begun + killed,
            "more attempts without an end than were killed": tally.unended > killed,
            "more effects than lines in the journal": tally.effects > len(lines),
            "an effect that the journal knows nothing of": tally.effects + tally.unended < len(lines),
        }
        return tally._replace(faults=tuple(what for what, is_so in told.items() if is_so))


def _column(books: reconcile.Books, sql: str) -> list[Any]:
    return [value for (value,) in books.connection.execute(sql).fetchall()]


def _with_subject(mail: dict[str, Any]) -> dict[str, Any]:
    subject = next(line for line in mail["content"].splitlines() if line.startswith("Subject:"))
    return {**mail, "subject": subject}


def prepare(url: str) -> None:
    """An empty database: SQLite has a new file for each run, PostgreSQL is emptied."""
    if url.startswith("sqlite"):
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS expenses, confirmation_emails")
        found = connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'onceward_journal_%' "
            "OR tablename = 'onceward_outbox_messages'"
        ).fetchall()
        for (table,) in found:
            connection.execute(f"TRUNCATE {table}".encode())


def kills_of(seed: int, number: int) -> list[dict[str, Any]]:
    """Where the workers of a run are killed: the same for the same seed."""
    dice = Random(f"{seed}:{number}")
    kills: list[dict[str, Any]] = []
    for _ in range(dice.randint(1, KILLS_MAX)):
        if dice.random() < 0.3:
            kills.append({"seconds": dice.uniform(0.0, TIMER_SECONDS_MAX)})
        else:
            place = dice.choice(sorted(PLACES))
            kills.append({"place": place, "skip": dice.randrange(PLACES[place])})
    return kills


if __name__ == "__main__":
    serve_orders()
