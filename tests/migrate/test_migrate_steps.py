"""The four steps: what each leaves behind, in which order they come, and that all of them can run again."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import psycopg
import pytest
from migrate_subject import Subject, expected

from onceward.migrate import MigrationStep

REFUSED = (psycopg.IntegrityError, sqlite3.IntegrityError)


@pytest.mark.requirement("B22")
@pytest.mark.fault("migrate-columns-have-a-default")
def test_the_columns_come_first_and_are_nullable(subject: Subject) -> None:
    """
    On a table with rows, without a default: the rows that are there have NULL in both.
    """
    subject.expenses(3)

    subject.apply(until=MigrationStep.ADD)
    subject.run("INSERT INTO expenses (token, amount) VALUES ('new', 1)")

    assert {row[1:] for row in subject.stored_keys()} == {(None, None)}
    assert len(subject.stored_keys()) == 4


@pytest.mark.requirement("B23", "B24")
@pytest.mark.fault("migrate-backfill-touches-all")
@pytest.mark.fault("migrate-highest-id-as-text")
def test_the_backfill_is_what_python_computes_and_runs_again_for_nothing(subject: Subject) -> None:
    """
    The key is the SHA-256 of the label and the id; rows that have one are left alone, and the second run finds none.
    """
    subject.expenses(120)
    subject.apply(until=MigrationStep.ADD)
    subject.run("UPDATE expenses SET worker_id = 'w', idempotency_key = 'mine' WHERE id = 7")
    subject.run("UPDATE expenses SET worker_id = 'w' WHERE id = 8")

    first = subject.apply(until=MigrationStep.BACKFILL, batch_rows=50)
    second = subject.apply(until=MigrationStep.BACKFILL, batch_rows=50)

    assert (first, second) == (119, 0)
    assert subject.stored_keys()[6] == (7, "w", "mine")
    assert [row for row in subject.stored_keys() if row[0] != 7] == expected([id for id in range(1, 121) if id != 7])


@pytest.mark.requirement("B23", "B24")
def test_the_printed_backfill_is_the_same_and_runs_again_for_nothing(subject: Subject, typed: Any) -> None:
    """
    Printed SQL gives the keys that Python computes; the second time it updates no row.
    """
    subject.expenses(70)
    subject.apply(until=MigrationStep.ADD)
    printed = typed("generate", "expenses", "--database", subject.url, "--step", "backfill")
    update = re.search(r"^UPDATE.*?(?=;$)", printed.out, re.MULTILINE | re.DOTALL)
    assert update is not None

    with subject.connect() as connection:
        counts = [connection.execute(update.group()).rowcount for _ in range(2)]

    assert counts == [70, 0]
    assert subject.stored_keys() == expected(range(1, 71))


@pytest.mark.requirement("B25")
@pytest.mark.parametrize("how", ["applied", "printed"])
def test_null_is_refused_afterwards(subject: Subject, typed: Any, how: str) -> None:
    """
    In either column, by INSERT and by UPDATE, and also by an INSERT that ignores conflicts.
    """
    subject.expenses(5)
    _migrate(subject, typed, how)
    before = subject.shape()

    for columns, values in (
        ("token, amount", "'x', 1"),
        ("token, amount, worker_id", "'x', 1, 'w'"),
        ("token, amount, idempotency_key", "'x', 1, 'k'"),
    ):
        with pytest.raises(REFUSED):
            subject.run(f"INSERT INTO expenses ({columns}) VALUES ({values})")
        with pytest.raises(REFUSED):
            subject.run(f"INSERT INTO expenses ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING")
    for column in ("worker_id", "idempotency_key"):
        with pytest.raises(REFUSED):
            subject.run(f"UPDATE expenses SET {column} = NULL WHERE id = 1")

    assert subject.shape() == before


@pytest.mark.requirement("B26")
@pytest.mark.parametrize("how", ["applied", "printed"])
def test_the_constraint_is_there_under_its_name_and_judges(subject: Subject, typed: Any, how: str) -> None:
    """
    `expenses_worker_idem_key`, on worker and key: the same key of another worker is another row.
    """
    subject.expenses(5)
    _migrate(subject, typed, how)
    insert = "INSERT INTO expenses (token, amount, worker_id, idempotency_key) VALUES ('x', 1, ?, 'k')"
    subject.run(insert, ["w-1"])
    subject.run(insert, ["w-2"])
    subject.run(f"{insert} ON CONFLICT (worker_id, idempotency_key) DO NOTHING", ["w-1"])
    with pytest.raises(REFUSED):
        subject.run(insert, ["w-1"])

    named = (
        "SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE 'expenses_w%'"
        if subject.kind == "sqlite"
        else "SELECT conname FROM pg_constraint WHERE conrelid = 'expenses'::regclass AND contype = 'u'"
    )
    assert subject.run(named) == [("expenses_worker_idem_key",)]
    assert len(subject.stored_keys()) == 7


@pytest.mark.requirement("B26", "B31")
@pytest.mark.fault("migrate-any-order")
@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (["constrain"], "constrain comes after add"),
        (["tighten"], "tighten comes after add"),
        (["add", "constrain"], "some are missing"),
        (["constrain", "backfill"], "out of order"),
        (["add", "backfill", "constrain", "tighten"], "out of order"),
    ],
)
def test_a_step_before_its_turn_is_refused(subject: Subject, typed: Any, steps: list[str], says: str) -> None:
    """
    The constraint before the backfill above all: nothing is printed.
    """
    subject.expenses(5)

    ran = typed("generate", "expenses", "--database", subject.url, *(f"--step={step}" for step in steps))

    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


@pytest.mark.requirement("B26")
def test_the_constraint_is_refused_while_a_row_lacks_its_key(subject: Subject, typed: Any) -> None:
    """
    The rows are looked at, not what somebody says was done; with every key there, it is printed.
    """
    subject.expenses(5)
    subject.apply(until=MigrationStep.TIGHTEN if subject.kind == "sqlite" else MigrationStep.ADD)
    if subject.kind == "sqlite":
        subject.run("DROP TRIGGER expenses_worker_idem_set_on_insert")
        subject.run("INSERT INTO expenses (token, amount) VALUES ('late', 1)")
    words = ("generate", "expenses", "--database", subject.url, "--step", "constrain")

    early = typed(*words)
    subject.apply(until=MigrationStep.TIGHTEN)
    later = typed(*words)

    assert (early.code, "constrain comes after backfill" in early.err) == (2, True)
    assert (later.code, "UNIQUE" in later.out) == (0, True)


@pytest.mark.requirement("B31")
@pytest.mark.parametrize("format", ["sql", "alembic", "django"])
def test_the_order_is_add_backfill_tighten_constrain_and_nothing_is_dropped(
    subject: Subject, typed: Any, format: str
) -> None:
    """
    In every format, the statements of the way up stand in that order, and none of them drops anything.
    """
    subject.expenses(1)

    text = typed("generate", "expenses", "--database", subject.url, "--format", format).out
    text = re.sub(r"def downgrade.*", "", text, flags=re.DOTALL)
    text = text.replace("reverse_sql=[],", "")
    text = re.sub(r"reverse_sql=\[.*?^ {12}\]", "", text, flags=re.DOTALL | re.MULTILINE)

    tighten = "CREATE TRIGGER" if subject.kind == "sqlite" else "SET NOT NULL"
    constrain = "CREATE UNIQUE INDEX" if subject.kind == "sqlite" else "ADD CONSTRAINT"
    places = [text.index(words) for words in ("ADD COLUMN", "UPDATE ", tighten, constrain)]
    assert places == sorted(places)
    assert "DROP" not in text
    assert "DEFAULT" not in text


def _migrate(subject: Subject, typed: Any, how: str) -> None:
    if how == "applied":
        subject.apply()
    else:
        subject.script(typed("generate", "expenses", "--database", subject.url).out)
