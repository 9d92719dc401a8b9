"""An entry that was changed, removed, added or moved by hand is found, and named."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pytest
from audit_support import ALICE, World, decide

from onceward.audit import API, Decision, DecisionLog, LogFinding, LogHead, Operator
from onceward.audit.log_entries import LogEntry, entry_hash
from onceward.errors import IllegalMove, RequestInvalid

COLUMNS = {"entries": LogEntry._fields, "texts": ("number", "part", "salt", "text")}


@pytest.fixture
def filled(log: DecisionLog) -> DecisionLog:
    """Decisions of every kind: about nobody and about tenants, done and failed."""
    decide(log)
    decide(log, operator=Operator("token k3v9x2m8q4ab", API), tenant="acme", environment="live")
    with pytest.raises(IllegalMove), log.deciding(Decision("record.reconcile", "aa11", ALICE, tenant="acme")):
        raise IllegalMove("no")
    decide(log, "tenant.quota", "tenant globex", tenant="globex")
    return log


def first(log: DecisionLog, expected: LogHead | None = None) -> LogFinding:
    """The first finding."""
    found = log.verify(expected).findings
    assert found, "the walk found nothing"
    return found[0]


def another(value: Any) -> Any:
    """Another value that a column could have."""
    if value is None:
        return "x"
    if value in ("intent", "outcome"):
        return {"intent": "outcome", "outcome": "intent"}[value]
    if value in ("done", "failed"):
        return {"done": "failed", "failed": "done"}[value]
    return value + 1_000 if isinstance(value, int) else value + "x"


@pytest.mark.fault("the-walk-does-not-read-the-texts")
@pytest.mark.fault("the-walk-does-not-compute-hashes")
@pytest.mark.parametrize("table", COLUMNS)
def test_every_column_of_every_row_is_guarded(filled: DecisionLog, world: World, table: str) -> None:
    """
    Each column of each row is changed by hand, and put back: while it is changed the walk finds it, at this entry or
    (where the number itself was changed) at the gap, and afterwards nothing.
    """
    names = COLUMNS[table]
    rows = world.execute(f"SELECT {', '.join(names)} FROM onceward_audit_{table} ORDER BY number")
    assert filled.verify().findings == []
    world.execute("DROP INDEX onceward_audit_outcomes")  # It would refuse some of this by itself.
    changed = 0
    for row in rows:
        at = dict(zip(names, row, strict=True))
        key = {name: at[name] for name in (("number",) if table == "entries" else ("number", "part"))}
        for column in names:
            where = " AND ".join(f"{name} = ?" for name in key)
            value = another(at[column]) if column != "outcome" or at[column] is not None else "done"
            world.execute(f"UPDATE onceward_audit_{table} SET {column} = ? WHERE {where}", value, *key.values())
            found = filled.verify().findings
            moved = [value if name == column else old for name, old in key.items()]
            world.execute(f"UPDATE onceward_audit_{table} SET {column} = ? WHERE {where}", at[column], *moved)

            assert found, (row, column)
            if column not in ("number", "decision"):
                assert found[0].number == at["number"], (row, column, found)
            changed += 1
    assert changed == len(rows) * len(names) > 30
    assert filled.verify().findings == []


@pytest.mark.parametrize("number", [1, 4, 8])
def test_a_removed_entry_is_missed(filled: DecisionLog, world: World, number: int) -> None:
    """
    At the beginning, in the middle, and at the end, where the log's head knows of it.
    """
    world.execute("DELETE FROM onceward_audit_entries WHERE number = ?", number)
    found = filled.verify().findings

    assert any(f"numbers {number} to {number} are missing" in one.fault for one in found)
    assert min(one.number or 0 for one in found) <= number + 1


def test_exchanged_entries_are_found(filled: DecisionLog, world: World) -> None:
    """
    Two entries that change places, with their texts: the first of them is named.
    """
    for table in ("entries", "texts"):
        for old, new in ((3, 1003), (5, 3), (1003, 5)):
            world.execute(f"UPDATE onceward_audit_{table} SET number = ? WHERE number = ?", new, old)

    assert first(filled).number == 3


def test_an_inserted_entry_is_found(filled: DecisionLog, world: World) -> None:
    """
    At the end, with a hash that fits: the head does not know of it. In the middle there is no place for it.
    """
    last = LogEntry(*world.execute("SELECT * FROM onceward_audit_entries WHERE number = 8")[0])
    planted = last._replace(number=9, kind="intent", decision=9, outcome=None, digests="{}", previous=last.hash)
    planted = planted._replace(hash=entry_hash(planted))
    world.execute(f"INSERT INTO onceward_audit_entries VALUES ({', '.join('?' * len(planted))})", *planted)

    assert first(filled) == (9, "it was added by hand: the log's head does not know of it")


@pytest.mark.fault("a-head-that-was-noted-is-not-compared")
def test_a_truncated_log_is_found_by_a_head_that_was_noted(filled: DecisionLog, world: World) -> None:
    """
    Whoever takes entries off the end and mends the head leaves a log that is whole in itself. A head that was noted
    elsewhere finds it, also if as many entries were added since.
    """
    noted = filled.verify().head
    decide(filled)
    assert filled.verify(noted).findings == []
    for table in ("entries", "texts"):
        world.execute(f"DELETE FROM onceward_audit_{table} WHERE number > 6")
    [(hash,)] = world.execute("SELECT hash FROM onceward_audit_entries WHERE number = 6")
    world.execute("UPDATE onceward_audit_head SET number = 6, hash = ?", hash)

    assert filled.verify().findings == []
    assert first(filled, noted) == (7, "numbers 7 to 8 are missing: the log was longer when that head was noted")
    decide(filled)
    decide(filled)
    assert filled.verify().findings == []
    assert first(filled, noted) == (8, "it is not the expected entry: the log was rewritten")


def test_an_emptied_log_is_found(filled: DecisionLog, world: World) -> None:
    """
    By the head, and by one that was noted.
    """
    noted = filled.verify().head
    for table in ("entries", "texts"):
        world.execute(f"DELETE FROM onceward_audit_{table}")
    assert first(filled) == (1, "numbers 1 to 8 are missing: entries were removed from the end")
    world.execute("UPDATE onceward_audit_head SET number = 0, hash = ''")

    assert filled.verify().findings == []
    assert first(filled, noted).number == 1


def test_texts_that_nobody_wrote_are_found(filled: DecisionLog, world: World) -> None:
    """
    Beside an entry, and of none.
    """
    world.execute("INSERT INTO onceward_audit_texts VALUES (2, 'reason', 'x', 'planted')")
    assert first(filled) == (2, "it has a text that was not written with it (reason)")
    world.execute("DELETE FROM onceward_audit_texts WHERE number = 2 AND part = 'reason'")
    world.execute("INSERT INTO onceward_audit_texts VALUES (0, 'reason', 'x', 'planted')")

    assert first(filled) == (0, "it has a text but no entry")


def test_a_tenant_cannot_be_made_another(filled: DecisionLog, world: World) -> None:
    """
    The table of tenants is no part of the chain, and is compared with what is.
    """
    world.execute("UPDATE onceward_audit_tenants SET tenant = 'initech' WHERE tenant = 'acme'")

    assert first(filled) == (3, "it is about another tenant than the log's table of tenants says")


@pytest.mark.parametrize("sql", ["UPDATE onceward_audit_entries SET via = 'api'", "DELETE FROM onceward_audit_entries"])
def test_the_database_itself_refuses_to_change_an_entry(filled: DecisionLog, world: World, sql: str) -> None:
    """
    Append-only: against accidents. Whoever owns the database can take the guard off, and the chain is there for that.
    """
    with pytest.raises((psycopg.Error, sqlite3.Error), match="append-only"):
        world.guarded(sql)

    assert filled.verify().entries == 8


@pytest.mark.parametrize("text", ["", "1", "x:y", "1:abc", f"1:{'g' * 64}", f"-1:{'a' * 64}", f"{'1' * 19}:{'a' * 64}"])
def test_a_head_that_is_none_is_refused(text: str) -> None:
    """
    A mistyped head must not look like a broken log.
    """
    with pytest.raises(RequestInvalid, match="NUMBER:HASH"):
        LogHead.parse(text)

    assert str(LogHead.parse(f"17:{'a' * 64}")) == f"17:{'a' * 64}"
