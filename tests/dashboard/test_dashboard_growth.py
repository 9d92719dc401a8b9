"""
A million records stay quick: what a page reads does not grow with the store. Counted by the databases, not timed.

SQLite counts the steps of its machine, PostgreSQL the rows that were read. The questions that SQLite has no index for
are not among them there: they run beside the pages, and rarely (decision 126).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from dashboard_scene import SCOPE

from onceward import Breaker, Gate, Retry
from onceward.audit import DecisionLog
from onceward.dashboard import DashboardData
from onceward.dashboard.sampling import SAMPLE_RECORDS
from onceward.dashboard.searching import RecordQuery
from onceward.dashboard.sessions import Reach
from onceward.gate.operator_actions import id_of_key
from onceward.journal import Journal
from onceward.stores import open_store
from servers import ending, postgres

pytestmark = pytest.mark.dose(1, of="kind")

FEW, MANY = 4_000, 40_000
BEFORE_YESTERDAY = {"first_at": "first_at - 200000000000", "due_at": "1152921504606846976"}
"""Columns of a PostgreSQL record that a purge has looked at and left."""
STEPS = 100
"""Steps of SQLite's machine between two counts."""


def lost() -> None:
    raise OSError("cut off")


def mailed(order: str) -> None:
    raise OSError("cut off")


def seed(url: str) -> None:
    """Something of everything that pages show."""
    with (
        Journal(url, scope=SCOPE, worker="w") as journal,
        Gate(url, scope=SCOPE, listeners=[journal.listener()]) as gate,
    ):
        gate.run("charge:1", lambda: "ch_1", name="charge")
        gate.run("charge:1", lambda: "ch_1", name="charge")
        with pytest.raises(OSError, match="cut off"):
            gate.run("refund:1", lost, name="refund", guarantee="blind")
        gate.plan("order-1").step("reserve", lambda: 1)
        with journal.run("march") as run, run.turn(1) as turn, turn.call("look"):
            pass
        breaker = Breaker.shared(gate, "payments", threshold=1, staleness=1e-9, patience=20)
        with pytest.raises(OSError, match="cut off"):
            breaker(lost)()
        dead = gate.dead_letters()
        with pytest.raises(OSError, match="cut off"):
            Retry(key="mail:{order}", dead=dead, attempts=1, name="mail")(mailed)("1")
    with DecisionLog.open(url) as log:
        log.verify()


def questions(url: str) -> dict[str, Callable[[DashboardData], object]]:
    """What pages ask for whoever sees the whole store, by page."""
    everything = Reach()
    record = id_of_key(SCOPE, "charge:1")

    def attempts(data: DashboardData) -> object:
        found = data.record(record, everything)
        assert found is not None
        return data.attempts(found)

    def run(data: DashboardData) -> object:
        [found] = data.runs(everything, "march", SCOPE)
        return [data.turns(found), data.calls(found)]

    asked: dict[str, Callable[[DashboardData], object]] = {
        "records": lambda data: data.records(RecordQuery(), everything).records,
        "searched": lambda data: data.records(RecordQuery(operation="nothing"), everything).rows_read,
        "digest": lambda data: data.records(RecordQuery(digest=record.hex()[:12]), everything).records,
        "record": attempts,
        "sample": lambda data: data.sample(everything).value,
        "letters": lambda data: data.letters(everything).value,
        "shared": lambda data: data.shared(everything).value,
        "activity": lambda data: data.activity(everything).value,
        "runs": lambda data: data.runs(everything),
        "run": run,
        "health": lambda data: data.health().value,
    }
    if not url.startswith("sqlite"):
        asked |= {
            "in doubt": lambda data: data.in_doubt(everything).value,
            "findings": lambda data: data.findings().value,
        }
    return asked


class Sqlite:
    """A file, and the steps of its machine."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._folder = ending.folder("onceward-growth-")
        self.url = f"sqlite:///{self._folder}/shop.db"
        self._patch = patch

    def grow(self, number: int) -> None:
        """So many more settled records and attempts."""
        for name, table, new, where in (
            ("shop", "onceward_records", "randomblob(32)", "state = 'settled' AND kind = 'key'"),
            ("shop.journal", "onceward_journal_calls", "lower(hex(randomblob(16)))", "tool = 'charge'"),
        ):
            with closing(sqlite3.connect(self._folder / f"{name}.db")) as connection, connection:
                columns = [row[1] for row in connection.execute(f"SELECT * FROM pragma_table_info('{table}')")]
                chosen = ", ".join(new if one == "id" else one for one in columns)
                connection.execute(
                    f"INSERT INTO {table} WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
                    f"SELECT {chosen} FROM n, (SELECT * FROM {table} WHERE {where} LIMIT 1)",
                    (number,),
                )

    @contextmanager
    def counted(self) -> Iterator[list[int]]:
        """How much was done within the block, when it is over."""
        spent, connect = [0], sqlite3.connect

        def count() -> int:
            spent[0] += STEPS
            return 0

        def counting(*args: Any, **options: Any) -> sqlite3.Connection:
            made = connect(*args, **options)
            made.set_progress_handler(count, STEPS)
            return made

        self._patch.setattr(sqlite3, "connect", counting)
        try:
            yield spent
        finally:
            self._patch.undo()


class Postgres:
    """A database, and the rows that were read in it."""

    def __init__(self) -> None:
        name = f"growth_{os.urandom(4).hex()}"
        postgres.running().execute(f"CREATE DATABASE {name}")
        self.url = postgres.running().url(name)

    def grow(self, number: int, *, old: bool = True) -> None:
        """So many more settled records and attempts; old ones are from before yesterday, and a purge has seen them."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for table, new, where in (
                ("onceward_records", "sha256(random()::text::bytea)", "state = 'settled' AND kind = 'key'"),
                ("onceward_journal_calls", "md5(random()::text)", "tool = 'charge'"),
            ):
                rows = connection.execute(
                    "SELECT column_name FROM information_schema.columns WHERE table_name = %s",
                    [table],
                ).fetchall()
                names = [row[0] for row in rows]
                changed = {
                    "id": new,
                    **({"first_at": "first_at - 200000000000", "due_at": "1152921504606846976"} if old else {}),
                }
                chosen = ", ".join(changed.get(one, f"one.{one}") for one in names)
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(names)}) SELECT {chosen} "
                    f"FROM generate_series(1, {number}), (SELECT * FROM {table} WHERE {where} LIMIT 1) AS one"
                )
            connection.execute("VACUUM ANALYZE")

    @contextmanager
    def counted(self) -> Iterator[list[int]]:
        """How many rows were read within the block, when it is over and its connections are closed."""
        spent = [0]
        before = self._rows_read()
        yield spent
        with psycopg.connect(self.url, autocommit=True) as connection:
            while connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchone() != (0,):
                pass  # Whoever leaves writes down what it has read, before it is gone from this list.
        spent[0] = self._rows_read() - before

    def _rows_read(self) -> int:
        with psycopg.connect(self.url, autocommit=True) as connection:
            [(rows,)] = connection.execute(
                "SELECT sum(seq_tup_read + COALESCE(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables "
                "WHERE relname LIKE 'onceward%'"
            ).fetchall()
            return int(rows)


def costs(place: Sqlite | Postgres) -> dict[str, int]:
    """What each question costs, asked by a dashboard that has just been started."""
    found = {}
    for name, ask in questions(place.url).items():
        with place.counted() as spent:
            store = open_store(place.url)
            with DecisionLog.open(place.url) as log:
                data = DashboardData(place.url, store, log)
                answer = ask(data)
                data.close()
            store.close()
        assert answer is not None, name
        found[name] = spent[0]
    return found


@pytest.mark.slow
@pytest.mark.fault("a-search-reads-everything")
@pytest.mark.parametrize("kind", postgres.kinds())
def test_ten_times_the_records_cost_no_more(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Every question that a page asks, at four thousand records and attempts and at forty-four thousand.
    """
    place = Sqlite(monkeypatch) if kind == "sqlite" else Postgres()
    seed(place.url)
    place.grow(FEW)
    few = costs(place)
    place.grow(MANY)
    many = costs(place)

    assert any(few.values())
    grown = {name: (few[name], many[name]) for name in few if many[name] > 1.5 * few[name] + 2 * STEPS}
    assert grown == {}


@pytest.mark.slow
@pytest.mark.fault("the-queue-is-looked-for-sixteen-times")
@pytest.mark.skipif("postgres" not in postgres.kinds(), reason="STORES leaves postgres out")
def test_on_postgresql_the_queue_costs_one_look_at_a_days_claims() -> None:
    """
    What was claimed within a day is gone through for a page of the queue and for the empty one after it: no more.
    """
    place = Postgres()
    seed(place.url)
    place.grow(FEW, old=False)
    found = costs(place)

    assert found["in doubt"] < 3 * FEW
    assert found["findings"] < 3 * FEW + SAMPLE_RECORDS
