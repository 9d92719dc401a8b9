"""
The Reconciler: every line of a bank statement becomes one expense and one confirmation by mail, however often it runs.

    python examples/mail_server.py --file mails.jsonl                         prints its port
    python examples/reconciler/reconcile.py sqlite:///books.db --mail-port PORT
    python examples/reconciler/reconcile.py postgresql:///books --mail-port PORT

Kill it wherever you like and start it again. Three things keep the promise, and none of them is the journal:

    the key       derived from worker, run, turn, tool and line: the same on every attempt, also on one that corrects
    the database  UNIQUE (worker_id, idempotency_key), and UNIQUE (run_id, expense_id): the second row is refused
    the outbox    the mail is a row of the same transaction, under an id that stays; a relay delivers it afterwards

A line that was categorised otherwise is the same line: its row is corrected, and nobody gets a second mail.

The journal tells what was tried. It is never asked what to do: a resumed run begins at the first line, and the lines
that were written before are recognised by their keys.

`--constraint off` is the negative control: the same worker on tables that refuse nothing.
"""

from __future__ import annotations

import argparse
import csv
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from onceward import Gate, Update, derive, insert_once
from onceward.journal import Journal
from onceward.messaging.outbox.delivery import SmtpEndpoint
from onceward.messaging.outbox.relay import Relay
from onceward.runtime import failpoints

WORKER = "reconciler-v1"
SCOPE = "test:books"
STATEMENT = Path(__file__).with_name("statement-2030-03.csv")
IDENTITY = ["worker_id", "idempotency_key"]
CORRECTABLE = ["category", "amount", "spent_at"]
"""What a later attempt may correct: none of it is in the key."""
TRY_SECONDS = 2.0
"""How long one try at handing a mail over may take. Short, so that a killed relay's mail is soon tried again."""
MARGIN_SECONDS = 0.25
SCHEDULE = [0.1] * 50

EXPENSES = """CREATE TABLE IF NOT EXISTS expenses (
    id {serial},
    worker_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    category TEXT NOT NULL,
    amount {money} NOT NULL,
    spent_at TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    updated_at {instant}{refusing}
)"""
CONFIRMATIONS = """CREATE TABLE IF NOT EXISTS confirmation_emails (
    id {serial},
    worker_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    expense_id BIGINT NOT NULL,
    recipient TEXT NOT NULL,
    idempotency_key TEXT NOT NULL{refusing}
)"""
REFUSING = {
    EXPENSES: ",\n    CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)",
    CONFIRMATIONS: ",\n    CONSTRAINT confirmation_emails_run_expense UNIQUE (run_id, expense_id)",
}
SQLITE = {
    "serial": "INTEGER PRIMARY KEY",
    "money": "TEXT",
    "instant": "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP",
}
POSTGRESQL = {
    "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "money": "NUMERIC",
    "instant": "TIMESTAMPTZ NOT NULL DEFAULT now()",
}

# Where a test may kill this worker, besides the places that the library has.
for _name, _meaning in {
    "reconciler.begun": "an attempt is noted, and nothing is written",
    "reconciler.expense": "the expense is written, and its confirmation is not",
    "reconciler.confirmation": "both rows are written, and there is no mail yet",
    "reconciler.commit": "everything is written, and nothing is committed",
    "reconciler.committed": "everything is committed, and nobody has been told",
}.items():
    failpoints.declare(_name, _meaning)


class Line(NamedTuple):
    """One line of a statement."""

    line: int
    date: str
    user: str
    mail: str
    category: str
    amount: Decimal


def lines_of(statement: Path) -> list[Line]:
    """The lines of a statement. Amounts are decimals, never floats."""
    with statement.open(encoding="utf-8", newline="") as file:
        return [
            Line(int(row["line"]), row["date"], row["user"], row["mail"], row["category"], Decimal(row["amount"]))
            for row in csv.DictReader(file)
        ]


class Books:
    """The database: SQLite or PostgreSQL."""

    def __init__(self, url: str, *, refusing: bool = True) -> None:
        self.url = url
        self.refusing = refusing
        self.connection: Any
        if url.startswith("sqlite"):
            self._mark, words = "?", SQLITE
            self.connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
        else:
            import psycopg

            self._mark, words = "%s", POSTGRESQL
            self.connection = psycopg.connect(url, autocommit=True)
        for table, constraint in REFUSING.items():
            self.connection.execute(table.format(**words, refusing=constraint if refusing else ""))

    def close(self) -> None:
        """Let go of it."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it, or nothing."""
        self.connection.execute("BEGIN IMMEDIATE" if self._mark == "?" else "BEGIN")
        try:
            yield
            failpoints.hit("reconciler.commit")
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        failpoints.hit("reconciler.committed")

    def insert(self, table: str, row: dict[str, Any], key: list[str]) -> int:
        """Write a row once; without its constraint, write it and hope."""
        if self.refusing:
            return insert_once(self.connection, table, row, key=key)
        values = [str(value) if isinstance(value, Decimal) else value for value in row.values()]
        marks = ", ".join([self._mark] * len(row))
        return int(self.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", values).rowcount)

    def write_expense(self, row: dict[str, Any]) -> int:
        """Write an expense once. A retry touches nothing; one that carries a correction corrects the row."""
        written = self.insert("expenses", row, IDENTITY)
        if written or self._stands(row):
            return written
        update = Update(CORRECTABLE, touch="updated_at")
        return insert_once(self.connection, "expenses", row, key=IDENTITY, on_duplicate=update)

    def _stands(self, row: dict[str, Any]) -> bool:
        """Whether the row that is there says what this one says. Another user is no correction: it is refused."""
        sql = f"SELECT user_id, {', '.join(CORRECTABLE)} FROM expenses WHERE worker_id = {self._mark}"
        found = self.connection.execute(
            f"{sql} AND idempotency_key = {self._mark}", (row["worker_id"], row["idempotency_key"])
        ).fetchone()
        user, category, amount, spent_at = found
        if user != row["user_id"]:
            raise ValueError(f"this line was about {user}, and is now about {row['user_id']}: another statement?")
        return (category, Decimal(amount), spent_at) == tuple(row[name] for name in CORRECTABLE)

    def expense_id(self, key: str) -> int:
        """The expense of a key; the latest, if nothing stopped there being several."""
        sql = f"SELECT max(id) FROM expenses WHERE worker_id = {self._mark} AND idempotency_key = {self._mark}"
        return int(self.connection.execute(sql, (WORKER, key)).fetchone()[0])


def record(books: Books, gate: Gate, run: str, line: Line, key: str) -> int:
    """The tool: an expense, its confirmation and the mail, in one transaction; how many rows of expenses changed."""
    failpoints.hit("reconciler.begun")
    outbox = gate.outbox(books.connection)
    with books.transaction():
        expense = {
            "worker_id": WORKER,
            "user_id": line.user,
            "category": line.category,
            "amount": line.amount,
            "spent_at": line.date,
            "idempotency_key": key,
        }
        written = books.write_expense(expense)
        failpoints.hit("reconciler.expense")
        id = books.expense_id(key)
        confirmation = {
            "worker_id": WORKER,
            "run_id": run,
            "expense_id": id,
            "recipient": line.mail,
            "idempotency_key": key,
        }
        confirmed = books.insert("confirmation_emails", confirmation, ["run_id", "expense_id"])
        failpoints.hit("reconciler.confirmation")
        if confirmed:
            mail = {
                "to": line.mail,
                "subject": f"Expense {line.line} of {run}",
                "text": f"{line.date}: {line.amount} for {line.category}.\n",
            }
            outbox.add("mail", mail, topic="expense.recorded", id=f"confirmation-{run}-{id}")
    return written


def reconcile(books: Books, gate: Gate, journal: Journal, statement: Path) -> tuple[int, int]:
    """Every line of a statement, from the first; how many attempts wrote, and how many found it done."""
    run_id = statement.stem  # Of what is reconciled, not of the process: whoever resumes it has the same.
    written = 0
    lines = lines_of(statement)
    with journal.run(run_id, input_ref=statement.name) as run:
        for line in lines:
            asked = line._asdict()
            # The line, and not what it says: whoever corrects it has to find the row that it corrects.
            identity = {"line": line.line}
            key = derive(worker=WORKER, run=run_id, turn=line.line, tool="record_expense", input=identity)
            with run.turn(line.line) as turn, turn.call("record_expense", key=key, arguments=asked) as call:
                written += call.wrote(record(books, gate, run_id, line, key))
    return written, len(lines) - written


def send_mail(url: str, port: int) -> None:
    """Deliver what waits, until nothing does. In real life a relay runs all the time: `onceward relay`."""
    endpoint = SmtpEndpoint("127.0.0.1", port=port, sender="books@example.com", tls="none", seconds=TRY_SECONDS)
    with Relay(url, {"mail": endpoint}, schedule=SCHEDULE, margin=MARGIN_SECONDS, threshold=1_000) as relay:
        while True:
            relay.step()
            states = {one.state: one.messages for one in relay.message_counts()}
            if states.get("dead"):
                raise SystemExit(f"{states['dead']} mails were given up; is there a mail server on port {port}?")
            if not states.get("waiting"):
                return
            time.sleep(0.02)


def main(arguments: list[str], out: TextIO = sys.stdout) -> None:
    """One run of the worker, from the first line to the last mail."""
    parser = argparse.ArgumentParser(description="Reconcile a bank statement: one expense and one mail per line.")
    parser.add_argument("database", help="sqlite:///books.db or postgresql://...")
    parser.add_argument("--mail-port", type=int, required=True, help="of a mail server on this machine")
    parser.add_argument("--statement", type=Path, default=STATEMENT, help="a CSV; its name names the run")
    parser.add_argument("--constraint", choices=("on", "off"), default="on", help="off: what happens without it")
    told = parser.parse_args(arguments)
    with (
        Gate(told.database, scope=SCOPE) as gate,
        Journal(told.database, scope=SCOPE, worker=WORKER) as journal,
        closing(Books(told.database, refusing=told.constraint == "on")) as books,
    ):
        written, found = reconcile(books, gate, journal, told.statement)
        print(f"{told.statement.name}: {written} lines written, {found} found done", file=out)
    send_mail(told.database, told.mail_port)


if __name__ == "__main__":
    main(sys.argv[1:])
