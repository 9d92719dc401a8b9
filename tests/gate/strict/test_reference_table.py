"""The table that records are in: what it is made of, what decides in it, and what the documentation says of that."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onceward import Gate
from onceward.errors import RecordedFailure
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_rows, _redis_packed_rows
from servers import postgres

ROUTES = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "write-a-store.md"
KINDS = ["sqlite", *(["postgres"] if postgres.wanted() else [])]


class Table(NamedTuple):
    """A store's table, as the database itself describes it."""

    url: str
    connection: Any
    columns: dict[str, bool]
    """Name -> whether it may be empty."""
    primary_key: dict[str, list[str]]
    """Name of the constraint -> its columns."""
    duplicate: type[Exception]


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """The table of a store that has just been made."""
    if request.param == "sqlite":
        yield from _sqlite(tmp_path)
    else:
        yield from _postgres()


def _sqlite(folder: Path) -> Iterator[Table]:
    url = f"sqlite:///{folder}/agent.db"
    Gate(url, scope="test:table").close()
    connection = sqlite3.connect(folder / "agent.db")
    info = connection.execute("PRAGMA table_info(onceward_records)").fetchall()
    [(sql,)] = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'onceward_records'").fetchall()
    key = {name: [column] for column, name in re.findall(r"(\w+) BLOB NOT NULL CONSTRAINT (\w+) PRIMARY KEY", sql)}
    assert [[row[1] for row in info if row[5]]] == [["id"]]
    columns = {row[1]: not row[3] for row in info}
    yield Table(url, connection, columns, key, sqlite3.IntegrityError)
    connection.close()


def _postgres() -> Iterator[Table]:
    import psycopg

    name = f"table_{REAL.random(4).hex()}"
    postgres.running().execute(f"CREATE DATABASE {name}")
    url = postgres.running().url(name)
    with Gate(url, scope="test:table") as gate:
        gate.records.get("nothing")
    with psycopg.connect(url, autocommit=True) as connection:
        nullable = connection.execute(
            """SELECT column_name, is_nullable = 'YES' FROM information_schema.columns
            WHERE table_name = 'onceward_records'"""
        ).fetchall()
        key = connection.execute(
            """SELECT conname, array_agg(attname::text) FROM pg_constraint JOIN pg_attribute
            ON attrelid = conrelid AND attnum = ANY (conkey)
            WHERE conrelid = 'onceward_records'::regclass AND contype = 'p' GROUP BY conname"""
        ).fetchall()
        yield Table(url, connection, dict(nullable), dict(key), psycopg.errors.UniqueViolation)
    postgres.running().execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.requirement("E10")
def test_a_record_has_a_key_a_status_an_optional_body_and_the_time_of_its_creation(table: Table) -> None:
    """
    Key, state and time are always there, the result may be missing; the time is UTC, finer than a millisecond, and the
    store's own: with a result, without one, and for a remembered failure.
    """

    def fail() -> None:
        raise ValueError("no such card")

    began = datetime.now(UTC)
    with Gate(table.url, scope="test:table") as gate:
        gate.run("with", lambda: {"charge": "ch_1"})
        with pytest.raises(ValueError):
            gate.run("failed", fail, remember="all")
        with pytest.raises(RecordedFailure):
            gate.run("failed", fail, remember="all")
        first_at = gate.records.get("with").first_at
    ended = datetime.now(UTC)
    found = table.connection.execute("SELECT key, state, result IS NULL, first_at FROM onceward_records").fetchall()

    assert {name: table.columns[name] for name in ("key", "state", "result", "first_at")} == {
        "key": False,
        "state": False,
        "result": True,
        "first_at": False,
    }
    assert {("test:with", False), ("test:failed", True)} <= {(key, bool(empty)) for key, _, empty, _ in found}
    assert {state for _, state, _, _ in found} == {"settled"}
    a_second = timedelta(seconds=1)
    for *_, micros in found:
        assert began - a_second <= datetime.fromtimestamp(micros / 1_000_000, UTC) <= ended + a_second
    assert first_at.tzinfo == UTC


@pytest.mark.requirement("E11")
def test_the_arbiter_is_a_named_primary_key(table: Table) -> None:
    """
    Introspection finds it by name, on the id alone; and past the store, a second row with an id is refused by it.
    """
    with Gate(table.url, scope="test:table") as gate:
        gate.run("job:1", lambda: 1)
    names = ", ".join(table.columns)

    with pytest.raises(table.duplicate):
        table.connection.execute(f"INSERT INTO onceward_records ({names}) SELECT {names} FROM onceward_records")

    assert table.primary_key == {"onceward_records_pkey": ["id"]}


@pytest.mark.requirement("E24")
def test_each_stores_route_to_one_winner_is_documented_as_it_is() -> None:
    """
    Both sound routes are in use and written down, store by store, in the very words of the statements that run.
    """
    page = ROUTES.read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (PostgreSQL|SQLite|Redis|memory)(?:, \*shelf\*)? \| (.+) \|$", page, re.MULTILINE))
    sources = Path(_postgres_rows.__file__).parent
    sqlite_writes = (sources / "_sqlite_database.py").read_text(encoding="utf-8")

    assert list(table) == ["PostgreSQL", "SQLite", "Redis", "memory"]
    assert "the constraint, and a loss that is handled" in table["PostgreSQL"]
    assert "ON CONFLICT (id) DO NOTHING" in table["PostgreSQL"]
    assert b"ON CONFLICT (id) DO NOTHING" in _postgres_rows.CLAIM
    assert "the unique index, under the right lock" in table["SQLite"]
    assert "BEGIN IMMEDIATE" in table["SQLite"]
    assert 'execute("BEGIN IMMEDIATE")' in sqlite_writes
    assert "a script runs alone" in table["Redis"]
    assert "~= expected" in _redis_packed_rows.PUT.text
