"""One key for one id, whoever computes it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from migrate_subject import Subject, expected, subject_of

from onceward.migrate import historical_key
from onceward.migrate.hashing import HASHES
from onceward.migrate.sqlite_sha256 import sha256_of
from servers.postgres import DEBIAN_15, PostgresServer, throwaway, wanted

IDS = ["a", "A", "é", "日本", "🙂", "with 'quotes' and \\", "x" * 34, "x" * 35, "x" * 36, "x" * 44, "y" * 300, ""]


@pytest.fixture(scope="module")
def debian() -> PostgresServer:
    """PostgreSQL 15 with its contrib package, which has pgcrypto."""
    if not wanted() or not DEBIAN_15.is_dir():
        pytest.skip("no PostgreSQL 15 with pgcrypto is installed")
    return throwaway(DEBIAN_15)


@pytest.fixture
def fifteen(debian: PostgresServer, tmp_path: Path) -> Iterator[Subject]:
    """An empty database there."""
    with subject_of("postgres", tmp_path, debian) as made:
        yield made


def _with_ids(subject: Subject) -> None:
    subject.run("CREATE TABLE expenses (id text PRIMARY KEY, amount integer)")
    for id in IDS:
        subject.run("INSERT INTO expenses VALUES (?, 1)", [id])


def _found(subject: Subject) -> dict[str, tuple[str, str]]:
    return {id: (worker, key) for id, worker, key in subject.stored_keys()}


WANTED = {id: ("historical-backfill", historical_key(id)) for id in IDS}


def test_the_key_is_pinned() -> None:
    """
    A backfill that begins today and ends with another version must not mix two kinds of keys.
    """
    assert historical_key("1") == hashlib.sha256(b"historical-backfill:1").hexdigest()
    assert historical_key("1")[:16] == "d898a0406898af72"


@pytest.mark.requirement("B23")
@pytest.mark.fault("migrate-sqlite-hash-of-one-block")
def test_plain_sqlite_computes_sha256() -> None:
    """
    At every length around the ends of blocks, and in any script: with nothing but SQLite's own arithmetic.
    """
    texts = [*IDS, *("z" * length for length in (*range(53, 67), *range(117, 131)))]
    with closing(sqlite3.connect(":memory:")) as connection:
        found = [connection.execute(f"SELECT {sha256_of('?')}", [text]).fetchone()[0] for text in texts]

    assert found == [hashlib.sha256(text.encode()).hexdigest() for text in texts]


@pytest.mark.parametrize("how", ["applied builtin", "applied application", "printed"])
def test_ids_in_any_script_have_the_key_that_python_computes(subject: Subject, typed: Any, how: str) -> None:
    """
    Long ones, short ones, the empty one; applied in either way, and printed.
    """
    _with_ids(subject)

    if how == "printed":
        subject.script(typed("generate", "expenses", "--database", subject.url).out)
    else:
        subject.apply(how=how.removeprefix("applied "), batch_rows=5)

    assert _found(subject) == WANTED


@pytest.mark.requirement("B30")
@pytest.mark.fault("migrate-pgcrypto-hashes-otherwise")
@pytest.mark.parametrize("how", HASHES)
def test_every_way_to_hash_gives_the_same_key(fifteen: Subject, typed: Any, how: Any) -> None:
    """
    pgcrypto's digest, the built-in sha256, and this program; applied.
    """
    _with_ids(fifteen)
    fifteen.run("CREATE SCHEMA tools")
    fifteen.run("CREATE EXTENSION pgcrypto SCHEMA tools")

    fifteen.apply(how=how, batch_rows=5)

    assert _found(fifteen) == WANTED


@pytest.mark.requirement("B30")
def test_the_printed_migration_enables_pgcrypto_where_it_can_be_had(fifteen: Subject, typed: Any) -> None:
    """
    The statement is printed before the backfill, and the keys are the same.
    """
    _with_ids(fifteen)

    printed = typed("generate", "expenses", "--database", fifteen.url, "--hash", "pgcrypto")
    fifteen.script(printed.out)

    assert "CREATE EXTENSION IF NOT EXISTS pgcrypto" in printed.out
    assert _found(fifteen) == WANTED


@pytest.mark.requirement("B30")
def test_a_database_that_has_not_enabled_pgcrypto_is_told_how(fifteen: Subject, typed: Any) -> None:
    """
    Applying enables nothing by itself: one line that says what to run, no traceback, and nothing is changed.
    """
    fifteen.expenses(3)
    before = fifteen.shape()

    ran = typed("apply", "expenses", "--database", fifteen.url, "--hash", "pgcrypto")

    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "CREATE EXTENSION pgcrypto" in ran.err
    assert fifteen.shape() == before


@pytest.mark.requirement("B30")
@pytest.mark.parametrize("command", ["generate", "apply"])
def test_a_server_without_pgcrypto_is_told_what_else_there_is(subject: Subject, typed: Any, command: str) -> None:
    """
    One line that names the other ways, and nothing is changed. SQLite never has it.
    """
    subject.expenses(3)
    before = subject.shape()

    ran = typed(command, "expenses", "--database", subject.url, "--hash", "pgcrypto")

    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "--hash application" in ran.err
    assert subject.shape() == before


def test_one_way_goes_on_where_another_was_killed(subject: Subject) -> None:
    """
    Half of the rows by one, half by the other: nobody can tell.
    """
    subject.expenses(10)
    subject.apply()
    subject.run("INSERT INTO expenses (token, amount, worker_id, idempotency_key) VALUES ('n', 1, 'w', 'k')")

    assert subject.apply(how="application") == 0
    assert subject.stored_keys()[:10] == expected(range(1, 11))
