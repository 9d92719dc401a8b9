"""Opening: the tables are made once, however many come first, and a pooler in between is noticed."""

from __future__ import annotations

import pytest
from postgres_support import COLOURS, Handle, handle, query

from onceward import ConfigurationError, Gate
from onceward.runtime.environment import REAL
from onceward.stores._postgres_flow import LATEST, migrations
from onceward.stores.postgres import PostgresStore
from onceward.testing.store_suite.rows import row
from servers.postgres import PostgresServer, needed

needed()


@pytest.mark.parametrize("colour", COLOURS)
def test_many_that_come_first_make_the_tables_once(server: PostgresServer, colour: str) -> None:
    """
    Eight handles open an empty database at the same moment: all of them can write.
    """
    database = f"fresh_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {database}")
    handles = [Handle(server.url(database), colour) for _ in range(8)]
    running = [one.start("put", row("test:opening", f"k{n}"), None) for n, one in enumerate(handles)]
    landed = [one.result(30).landed for one in running]
    for one in handles:
        one.close()

    assert landed == [True] * 8
    assert query(server.url(database), "SELECT value FROM onceward_meta WHERE name = 'schema_version'") == [(LATEST,)]


@pytest.mark.parametrize("colour", COLOURS)
def test_callers_of_one_handle_wait_until_the_tables_are_there(server: PostgresServer, colour: str) -> None:
    """
    The first call makes them; nobody else's is sent before that, whatever it is.
    """
    database = f"fresh_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {database}")
    with handle(server.url(database), colour) as store:
        running = [store.start("put", row("test:opening", f"k{n}"), None) for n in range(5)]
        running += [store.start("load", bytes(32)) for _ in range(5)]
        answers = [one.result(30) for one in running]

    assert [getattr(answer, "landed", answer) for answer in answers] == [True] * 5 + [None] * 5


def test_nothing_is_opened_before_it_is_needed() -> None:
    """
    A gate may be declared where its server is not (yet) to be reached.
    """
    PostgresStore.from_url("postgresql://nobody@127.0.0.1:1/nowhere").close()


@pytest.mark.parametrize(("option", "offered"), [("", False), ("?onceward_settle=relaxed", True)])
def test_a_relaxed_settle_is_offered_only_where_it_was_asked_for(url: str, option: str, offered: bool) -> None:
    """
    Both words are needed: the deployment's in the URL, and the operation's own.
    """
    with Gate(f"{url}{option}", scope="test:opening") as gate:
        if offered:
            assert gate.run("k", lambda: "done", relaxed_settle=True) == "done"
        else:
            with pytest.raises(ConfigurationError, match="relaxed"):
                gate.run("k", lambda: "done", relaxed_settle=True)


def test_the_migrations_lead_to_the_latest_version() -> None:
    """
    They are numbered without a gap, and the last is the one this code knows.
    """
    assert [number for number, _ in migrations()] == list(range(1, LATEST + 1))


@pytest.mark.parametrize(("swallowed", "prepared"), [(False, True), (True, False)], ids=["direct", "through a pooler"])
def test_statements_are_prepared_only_if_the_session_is_ours(url: str, swallowed: bool, prepared: bool) -> None:
    """
    A pooler that ignores startup parameters gives itself away: ours does not arrive, and nothing is prepared.
    """
    store = PostgresStore(url)
    if swallowed:
        store.target.parameters.pop("options")
    for n in range(4):
        store.put(row("test:opening", f"k{n}"), None)
    [lane] = store._pool._for_batches
    [(count,)] = lane.connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
    store.close()

    assert prepared is (count > 0)
