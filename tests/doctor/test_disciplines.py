"""
The disciplines behind the promise, held against code, SQL files, live databases and journals.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from examining import CHARGE_SQL, answers, write

from onceward import Gate
from onceward.doctor.box import BoxState
from onceward.doctor.journal_reader import read_journal
from onceward.doctor.store_reader import read_store
from onceward.journal import Journal
from servers import postgres

EXPENSE = '''
    TABLE = """CREATE TABLE expenses (
        id INTEGER PRIMARY KEY, worker_id TEXT NOT NULL, idempotency_key TEXT NOT NULL,
        UNIQUE (worker_id, idempotency_key))"""
    INSERT = "INSERT INTO expenses VALUES (?, ?, ?) ON CONFLICT (worker_id, idempotency_key) DO NOTHING"

    from onceward import Gate

    gate = Gate("sqlite:///books.db", scope="live:books", retain=7200)

    @gate.once(key="book:{order_id}", connection="connection")
    def book(connection, order_id):
        connection.execute(INSERT, (1, "w", order_id))
'''
PROMISE = ("same-transaction", "constraint-decides", "violation-handled", "retention-agreed")


class TestPromise:
    """
    "The key recorded in the same transaction as the effect, the constraint trusted as the arbiter, the violation
    handled instead of avoided, the retention window agreed with the people who depend on it."
    """

    def test_a_project_that_keeps_it_fills_all_four(self, tmp_path: Path) -> None:
        """
        With the hours for which an answer is kept.
        """
        found = answers(write(tmp_path, books=EXPENSE))

        assert [found[id].state for id in PROMISE] == [BoxState.FILLED] * 4
        assert found["retention-agreed"].words.startswith("a result is kept 2 h")
        assert found["key-not-null"].state is BoxState.FILLED

    @pytest.mark.parametrize(
        ("box", "old", "new"),
        [
            ("same-transaction", ', connection="connection"', ""),
            ("constraint-decides", ",\n        UNIQUE (worker_id, idempotency_key)", ""),
            ("violation-handled", " ON CONFLICT (worker_id, idempotency_key) DO NOTHING", ""),
            ("retention-agreed", "retain=7200", "retain=KEEP"),
            ("key-not-null", "idempotency_key TEXT NOT NULL", "idempotency_key TEXT"),
            ("no-merge", "INSERT INTO expenses", "MERGE INTO expenses USING new"),
        ],
    )
    def test_each_is_emptied_by_what_breaks_it(self, box: str, old: str, new: str, tmp_path: Path) -> None:
        """
        With the line to look at, or what to give.
        """
        assert old in EXPENSE

        answer = answers(write(tmp_path, books=EXPENSE.replace(old, new)))[box]

        assert answer.state.is_empty

    def test_sql_files_are_judged_by_the_linter(self, tmp_path: Path) -> None:
        """
        The documents' own procedure looks first, and lets the constraint decide; without its constraint nothing does.
        """
        text = CHARGE_SQL.read_text()
        header = "-- onceward: dialect tsql\n"
        (tmp_path / "charge.sql").write_text(header + text)
        whole = answers(tmp_path)
        (tmp_path / "charge.sql").write_text(
            header + "MERGE INTO dbo.charge AS t USING (SELECT @k AS k) AS s ON t.idempotency_key = s.k\n"
            "WHEN NOT MATCHED THEN INSERT (idempotency_key) VALUES (s.k);\n"
        )

        merged = answers(tmp_path)

        assert whole["no-merge"].state is BoxState.FILLED
        assert merged["no-merge"].state is BoxState.EMPTY
        assert [one.path.rpartition("/")[2] for one in merged["no-merge"].places] == ["charge.sql"]


class TestStore:
    """What only a live store shows. Looking changes nothing."""

    @pytest.mark.fault("doctor-doubt-is-not-counted")
    def test_what_is_in_doubt_empties_its_box(self, tmp_path: Path) -> None:
        """
        Somebody has to decide; it says since when.
        """
        url = f"sqlite:///{tmp_path / 'shop.db'}"
        write(tmp_path, shop="x = 1\n")
        with Gate(url, scope="live:shop") as gate:
            gate.run("charge:1", lambda: "fine")
            before = answers(tmp_path, store=read_store(url))
            with pytest.raises(RuntimeError):
                gate.run("charge:2", self._fail)

        after = answers(tmp_path, store=read_store(url))

        assert before["store-healthy"].words.endswith("1 record")
        assert before["nothing-in-doubt"].state is BoxState.FILLED
        assert after["nothing-in-doubt"].words.startswith("1 operation in doubt, since 20")

    def _fail(self) -> None:
        raise RuntimeError("the answer was lost")

    @pytest.mark.fault("doctor-live-tables-are-not-read")
    def test_tables_of_ones_own_are_looked_at_in_sqlite(self, tmp_path: Path) -> None:
        """
        A key without UNIQUE is decoration, and one that may be NULL never collides.
        """
        file = tmp_path / "shop.db"
        Gate(f"sqlite:///{file}", scope="live:shop").close()
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, idempotency_key TEXT)")

        found = answers(write(tmp_path, shop="x = 1\n"), store=read_store(f"sqlite:///{file}"))

        assert found["constraint-decides"].words.startswith("no UNIQUE on orders.idempotency_key")
        assert "orders.idempotency_key may be NULL" in found["key-not-null"].words

    def test_tables_of_ones_own_are_looked_at_in_postgresql(self, tmp_path: Path) -> None:
        """
        And where they are right, they are evidence.
        """
        postgres.needed()
        server = postgres.running()
        server.execute("DROP DATABASE IF EXISTS doctor")
        server.execute("CREATE DATABASE doctor")
        url = server.url("doctor")
        with Gate(url, scope="live:shop") as gate:
            gate.run("charge:1", lambda: "fine")
        server.execute("CREATE TABLE orders (worker_id text, idempotency_key text NOT NULL UNIQUE)", "doctor")

        found = answers(write(tmp_path, shop="x = 1\n"), store=read_store(url))

        assert "and so has the key of 1 table of yours" in found["constraint-decides"].words
        assert found["key-not-null"].state is BoxState.FILLED
        assert found["store-healthy"].words.startswith("fsync: off")  # As the tests' own server has it.


class TestJournal:
    """What was tried."""

    def test_a_key_that_was_executed_twice_is_named(self, tmp_path: Path) -> None:
        """
        By its digest, for `onceward journal list`; keys that were replayed are fine.
        """
        url = f"sqlite:///{tmp_path / 'agent.db'}"
        with Journal(url, scope="live:acme", worker="w") as journal, journal.run("march") as run:
            for key in ("a", "b", "b"):
                with run.call("record", key=key):
                    pass

        journal_facts = read_journal(url)

        assert journal_facts is not None
        assert (journal_facts.attempts, journal_facts.keys, len(journal_facts.doubled)) == (3, 2, 1)

    def test_a_store_without_a_journal_has_none(self, tmp_path: Path) -> None:
        """
        Looking makes none.
        """
        url = f"sqlite:///{tmp_path / 'agent.db'}"
        Gate(url, scope="live:acme").close()
        before = sorted(tmp_path.iterdir())

        found = read_journal(url)

        assert found is None or found.attempts == 0
        assert sorted(tmp_path.iterdir()) == before
