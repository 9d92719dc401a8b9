"""
A migration that was killed half-way: the page Now says so, with the command that goes on; and after that, no more.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from dashboard_scene import SCOPE, SECONDS_MAX, half_moved_redis
from dashboard_visitor import Command, Open

from onceward import Gate
from onceward.cli.dashboard import unfinished_migrations
from servers import postgres


@pytest.fixture
def half_moved(tmp_path: Path) -> Iterator[Command]:
    """A dashboard over a Redis store whose rows were being moved when that was killed."""
    command = Command(half_moved_redis(), folder=tmp_path)
    try:
        yield command
    finally:
        command.stop()


def onceward(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "onceward", *words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.fault("a-half-done-migration-is-not-told")
def test_a_store_that_was_left_half_moved(half_moved: Command) -> None:
    """
    Somebody is needed, the store's health says what is left, and the command that is shown ends it.
    """
    visitor = half_moved.visitor()
    page = visitor.get("/")
    onceward("store", "migrate", "--store", half_moved.url)
    after = half_moved.again().visitor().get("/")

    left = r"schema problem the migration to version 2 has not finished: redis_0002 \(\d+ rows\)"
    assert re.search(left, page.said), page.said
    assert re.search(r"A person is needed.*schema : the migration", page.said)
    assert "<code>onceward store migrate</code>" in page.text
    assert "schema ok current" in after.said
    assert "onceward store migrate" not in after.text


@pytest.mark.fault("a-table-that-was-left-half-migrated-is-not-told")
def test_a_table_of_ones_own_that_was_left_half_migrated(store: str, opened: Open) -> None:
    """
    It is in the store's database, with rows that have a key and rows that have none: the command goes on.
    """
    command = f"onceward migrate apply expenses --database {store}"
    page = opened().visitor().get("/")
    onceward(*command.split()[1:])
    after = opened().visitor().get("/")

    assert "migration worth a look expenses has both columns for a key, and nothing yet" in page.said
    assert f"<code>{command}</code>" in page.text
    assert "expenses" not in after.said


@pytest.mark.slow
def test_the_same_on_postgresql_and_of_nobody_elses_tables() -> None:
    """
    A table that has its constraint, in any order of columns, is none of these; nor is one with other columns.
    """
    if "postgres" not in postgres.kinds():
        pytest.skip("STORES leaves postgres out")
    server = postgres.running()
    server.execute("CREATE DATABASE half_migrated")
    url = server.url("half_migrated")
    with Gate(url, scope=SCOPE) as gate:
        gate.records.list()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE half (id int PRIMARY KEY, worker_id text, idempotency_key text)")
        connection.execute("CREATE TABLE whole (id int, idempotency_key text, worker_id text)")
        connection.execute("ALTER TABLE whole ADD UNIQUE (idempotency_key, worker_id)")
        connection.execute("CREATE TABLE other (id int, worker_id text)")
        before = unfinished_migrations(url)
        connection.execute("ALTER TABLE half ADD UNIQUE (worker_id, idempotency_key)")
        after = unfinished_migrations(url)

    [told] = before
    assert told.text.startswith("public.half has both columns")
    assert told.commands[0].startswith("onceward migrate apply half --schema public --database postgresql://")
    assert after == []
