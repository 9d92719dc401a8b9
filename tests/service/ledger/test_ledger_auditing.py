"""A row that was changed, removed or added by hand is found, and named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ledger_support import LIVE, TABLES, World, audited, emit

from onceward.cli import main
from onceward.service.ledger.hash_chain import LedgerCheckpoint, LedgerEntry

pytestmark = pytest.mark.dose(1, of=("kind", "colour", "ledger"))

CUSTOMERS = ("scope", "customer", "seq", "head", "closed", "created_at")
COLUMNS = dict(zip(TABLES, (LedgerEntry._fields, LedgerCheckpoint._fields, CUSTOMERS), strict=True))


@pytest.fixture
def filled(world: World) -> Iterator[Any]:
    """Two customers, entries of every kind, two checkpoints."""
    with world.open(rule=lambda entry: "no" if entry.amount < 0 else None) as ledger:
        flows = ledger.flows
        first = emit(ledger, 1, reference_id="a", period="2020-01", metadata={"a": 1})
        ledger.run(flows.checkpoint(LIVE, "cus_1", "2020-01"))
        emit(ledger, 2, reference_id="b", period="2020-02", corrects=first["id"])
        emit(ledger, 3, key="c", period="2020-03")
        ledger.run(flows.checkpoint(LIVE, "cus_1", "2020-02"))
        flows.terms = flows.terms._replace(verify="queued")
        emit(ledger, -4, reference_id="d")
        ledger.run(flows.verify_queued())
        emit(ledger, 5, reference_id="e")
        ledger.run(flows.add_customer(LIVE, "cus_2"))
        yield ledger


def another(value: Any) -> list[Any]:
    """Other values that a column could have."""
    if value is None:
        return ["x", 7]
    return [value + 1_000] if isinstance(value, int) else [value + "x"]


def rows_of(world: World, table: str) -> list[dict[str, Any]]:
    names = COLUMNS[table]
    return [dict(zip(names, row, strict=True)) for row in world.execute(f"SELECT {', '.join(names)} FROM {table}")]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_every_row_is_guarded(filled: Any, world: World, table: str) -> None:
    """
    Each column of each row is changed by hand, and put back: while it is changed the walk names the row (or, where the
    row's own name was changed, what it became), and afterwards nothing.
    """
    assert audited(filled).findings == []
    named = {"onceward_ledger_customers": ("scope", "customer")}.get(table, ("id",))
    changed = 0
    for row in rows_of(world, table):
        where = " AND ".join(f"{name} = ?" for name in named)
        for column in COLUMNS[table]:
            for value in another(row[column]):
                text = isinstance(row[column], str) or column in ("failure", "reference", "metadata", "corrects")
                if text != isinstance(value, str):
                    continue
                after = {**row, column: value}
                world.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", value, *(row[one] for one in named))
                found = audited(filled).findings
                name = "/".join(str(after[one]) for one in named)
                assert name in [one.row for one in found], f"{column} of {row} became {value!r}: {found}"
                back = " AND ".join(f"{one} = ?" for one in named)
                world.execute(f"UPDATE {table} SET {column} = ? WHERE {back}", row[column], *(after[n] for n in named))
                changed += 1

    assert changed >= len(COLUMNS[table])
    assert audited(filled).findings == []


@pytest.mark.parametrize("table", TABLES)
def test_every_row_that_is_removed_is_missed(filled: Any, world: World, table: str) -> None:
    """
    Entries and checkpoints, whether in the middle or the last; and a customer that has any.
    """
    for row in rows_of(world, table):
        if row.get("seq") == 0:
            continue  # A customer for whom nothing was booked has left no trace.
        where = "scope = ? AND customer = ?" if "head" in row else "id = ?"
        values = (row["scope"], row["customer"]) if "head" in row else (row["id"],)
        world.execute(f"DELETE FROM {table} WHERE {where}", *values)
        assert audited(filled).findings, row
        marks = ", ".join("?" * len(row))
        world.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())

    assert audited(filled).findings == []


def test_the_command_says_so_and_ends_with_1(filled: Any, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """
    For people and for programs: the row is named.
    """
    if world.kind == "sqlite":  # The records' own file, beside which the ledger is.
        assert main(["store", "init", "--store", world.url]) == 0
    assert main(["ledger", "verify", "--store", world.url]) == 0
    assert "2 customers, 5 entries, 2 checkpoints" in capsys.readouterr().out
    [(id,)] = world.execute("SELECT id FROM onceward_ledger_entries WHERE seq = 2")
    world.execute("UPDATE onceward_ledger_entries SET amount = amount + 1 WHERE seq = 2")

    assert main(["ledger", "verify", "--store", world.url]) == 1
    assert id in capsys.readouterr().out
    assert main(["ledger", "verify", "--json", "--store", world.url]) == 1
    assert id in [one["row"] for one in json.loads(capsys.readouterr().out)["findings"]]


def test_the_command_adds_a_customer_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Again does no harm; a ledger that is not there yet is made.
    """
    assert main(["store", "init", "--store", world.url]) == 0
    command = ["ledger", "customer", "acme", "cus_9", "--environment", "live", "--json", "--store", world.url]
    capsys.readouterr()
    added = []
    for _ in range(2):
        assert main(command) == 0
        added.append(json.loads(capsys.readouterr().out)["added"])

    assert added == [True, False]
    assert main([*command[:3], "has space", *command[4:]]) == 2


def test_a_ledger_that_is_not_there_is_not_made_by_looking(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A mistyped store is told as such, and not as a ledger without faults.
    """
    url = f"sqlite:///{tmp_path}/agent.db"
    assert main(["store", "init", "--store", url]) == 0

    assert main(["ledger", "verify", "--store", url]) == 2
    assert "no tables of ledger" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if "-" not in path.name] == ["agent.db"]
