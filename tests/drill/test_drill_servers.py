"""The drill on real servers: it leaves them alone, works in a random scope, and says what it may not do."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from drill_helpers import drilled, entry_of, nurseries_of, scopes_at

from onceward import Gate
from onceward.drill.proofs import PROOFS
from onceward.errors import OncewardError
from servers import postgres, redis

DATABASE = "drills"
SERVERS = tuple(name for name, server in (("postgres", postgres), ("redis", redis)) if server.wanted())  # type: ignore[attr-defined]
_TABLES = """SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' AND relkind IN ('r', 'S', 'i', 'v')"""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A PostgreSQL database with a store in it."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    url = server.url(DATABASE)
    with Gate(url, scope="live:theirs") as gate:
        gate.run("order-17", lambda: "done")
    yield url
    server.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """A store of somebody's, with a record in it."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("database")
        return found
    address = redis.running().url()
    with Gate(address, scope="live:theirs") as gate:
        gate.run("order-17", lambda: "done")
    return address


def tables() -> list[tuple[object, ...]]:
    """Every table, index and sequence in every schema of that database."""
    return sorted(postgres.running().execute(_TABLES, DATABASE), key=str)


@pytest.mark.slow
@pytest.mark.parametrize("url", SERVERS, indirect=True)
@pytest.mark.dose(1)
def test_every_proof_holds_on_a_server_and_its_own_traces_are_gone(url: str) -> None:
    """
    All thirteen, through the server's own driver; "away" is a proxy of ours. Nothing of theirs is touched.
    """
    names = [name for name in PROOFS if name != "relay"]  # It waits for a lease; the test below has it.
    before = tables() if url.startswith("postgresql") else []
    document = drilled(*names, url=url, seed=3, racers=20)

    assert (document["verdict"], document["reasons"]) == ("PERMITTED", [])
    assert scopes_at(url) == {"live:theirs"}
    assert (tables() if url.startswith("postgresql") else []) == before
    assert entry_of(document, "store-away")["where"] == [
        "the drill's own proxy in front of the server; the server itself was not touched"
    ]
    assert nurseries_of(os.getpid()) == []


@pytest.fixture
def role(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a role that may do this much with the records, and make nothing."""
    server = postgres.running()
    for sql in (
        "CREATE ROLE drilled LOGIN",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT {request.param} ON onceward_records TO drilled",
        "GRANT SELECT, UPDATE ON onceward_meta TO drilled",
    ):
        server.execute(sql, DATABASE)
    yield server.url(DATABASE, user="drilled")
    server.execute("DROP OWNED BY drilled", DATABASE)
    server.execute("DROP ROLE drilled")


@pytest.mark.skipif("postgres" not in SERVERS, reason="STORES leaves postgres out")
class TestRights:
    """Roles that may not do everything."""

    @pytest.mark.parametrize("role", ["SELECT, INSERT, UPDATE, DELETE"], indirect=True)
    def test_where_no_table_may_be_made_a_file_of_its_own_is_used_and_that_is_said(self, role: str) -> None:
        """
        The proof still runs, and its evidence says where.
        """
        document = drilled("retry", "webhook", "changed-body", url=role)
        where = {entry["name"]: entry["where"] for entry in document["proofs"]}

        assert document["verdict"] == "PERMITTED"
        assert where["retry"] == ["a temporary SQLite file: no table can be created there (InsufficientPrivilege)"]
        assert where["webhook"] == ["a temporary SQLite file: no schema can be created there (InsufficientPrivilege)"]
        assert where["changed-body"] == []

    @pytest.mark.parametrize("role", ["SELECT"], indirect=True)
    def test_a_store_that_may_not_be_written_is_refused_before_any_proof(self, role: str, database: str) -> None:
        """
        One error that names what is missing, and no evidence of anything.
        """
        with pytest.raises(OncewardError) as caught:
            drilled("retry", "race", url=role)

        assert "permission denied" in str(caught.value)
        assert scopes_at(database) == {"live:theirs"}
