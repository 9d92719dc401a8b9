"""Who decides between two callers: the named primary key, and the lock on the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, handle, query

from onceward.errors import SchemaMismatch
from onceward.runtime.environment import REAL
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import PostgresServer, needed

needed()

PAGES = Path(__file__).parents[3] / "docs" / "how-to"


@pytest.fixture
def fresh(server: PostgresServer) -> str:
    """A database of its own, with the tables made."""
    database = f"arbiter_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {database}")
    with handle(server.url(database), "blocking") as store:
        store.put(row("test:arbiter", "warm"))
    return server.url(database)


@pytest.mark.requirement("E11")
@pytest.mark.parametrize("colour", COLOURS)
def test_it_is_a_named_primary_key_and_without_it_nothing_is_written(fresh: str, colour: str) -> None:
    """
    The key has the name that the documentation gives it; if somebody drops it, claims are refused, with its cure.
    """
    found = query(
        fresh,
        "SELECT conname, contype::text, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = 'onceward_records'::regclass AND contype = 'p'",
    )
    query(fresh, "ALTER TABLE onceward_records DROP CONSTRAINT onceward_records_pkey")
    with handle(fresh, colour) as store:
        with pytest.raises(SchemaMismatch, match="ADD CONSTRAINT onceward_records_pkey PRIMARY KEY") as told:
            store.put(row("test:arbiter"))
        before = query(fresh, "SELECT count(*) FROM onceward_records")
        query(fresh, str(told.value).partition("Add it: ")[2])

        assert True is store.put(row("test:arbiter")).landed
    assert found == [("onceward_records_pkey", "p", "PRIMARY KEY (id)")]
    assert before == [(1,)]


@pytest.mark.requirement("E24")
def test_both_routes_are_documented_and_are_the_ones_that_are_taken(fresh: str) -> None:
    """
    A claim is an insert that the constraint judges, and its violation is handled; a change compares the version of a
    row that it has locked. The page says so, and the server is seen to do it.
    """
    names = ("run-postgresql", "run-redis", "run-sqlite-in-production")
    texts = {name: (PAGES / f"{name}.md").read_text(encoding="utf-8") for name in names}
    page = " ".join(texts["run-postgresql"].split())
    with handle(fresh, "blocking") as store, psycopg.connect(fresh) as other, psycopg.connect(fresh) as watcher:
        held = store.put(row("test:arbiter")).record
        other.execute("SELECT FROM onceward_records WHERE id = %s FOR UPDATE", (held.id,))
        waiting = store.start("put", settled(held), held.version)
        blocked = _waits(watcher)
        other.rollback()
        landed = waiting.result(30).landed
        loser = store.put(row("test:arbiter"))

    assert (blocked, landed, loser.landed) == (True, True, False)
    assert all("## Who decides" in text for text in texts.values())
    assert "onceward_records_pkey" in page
    assert "`ON CONFLICT (id) DO NOTHING`" in page
    assert "locks the row and compares its version" in page


def _waits(watcher: psycopg.Connection[Any]) -> bool:
    """Whether a statement of the store is seen to wait for a lock."""
    watcher.autocommit = True
    for _ in range(500):
        if watcher.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
            return True
    return False
