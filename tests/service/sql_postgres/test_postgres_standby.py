"""Tenants' writes and a synchronous standby: nothing is acknowledged that the standby does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from tenant_support import DATABASE, NAMESPACE, Tenant

from onceward.errors import InFlight, OutcomeUnknown, StoreUnavailable
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.preparation import ROLE, preparation_script
from servers.postgres import PostgresServer, needed
from servers.postgres_pair import Pair, pair, primary, until

pytestmark = pytest.mark.dose(1, of="version")

needed()

__all__ = ["pair", "primary"]

EVENTS = "CREATE TABLE events (number bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL)"
INSERTS = ("INSERT INTO events (id) VALUES ($1)", "INSERT INTO events (id) VALUES ($1) RETURNING number")
"""With their record in one round trip, and in two."""
SHORT = Limits(statement_seconds=0.5, queue_seconds=3.0)
"""How long a request waits for a standby that is away."""
NOT_ACKNOWLEDGED = (StoreUnavailable, InFlight)


def prepared(server: PostgresServer) -> None:
    """A database for tenants, whose role would not wait for a standby by itself."""
    server.execute("CREATE DATABASE tenants")
    with psycopg.connect(server.url("tenants"), autocommit=True) as connection:
        connection.execute(preparation_script("tenants").encode())
        connection.execute(f"ALTER ROLE {ROLE} SET synchronous_commit = off".encode())


@pytest.fixture
def tell(pair: Pair) -> Iterator[Callable[..., Any]]:
    """Tell a story on an engine in front of a primary and its synchronous standby."""
    prepared(pair.primary)

    def play(story: Callable[[Tenant], Awaitable[Any]], **options: Any) -> Any:
        async def run() -> Any:
            async with PostgresEngine(pair.url(database="tenants", user=ROLE), **options) as engine:
                await engine.create(NAMESPACE, DATABASE)
                tenant = Tenant(engine)
                await tenant.ask(EVENTS)
                return await story(tenant)

        return asyncio.run(run())

    yield play
    pair.standby.thaw()


@pytest.mark.slow
class TestAStandbyThatIsAway:
    """The primary would answer, and its standby does not."""

    @pytest.mark.parametrize("insert", INSERTS)
    @pytest.mark.fault("pg-a-commit-is-cancelled")
    @pytest.mark.dose(1)
    def test_a_write_is_not_acknowledged_and_nobody_sees_it_before_the_standby_has_it(
        self, pair: Pair, tell: Callable[..., Any], insert: str
    ) -> None:
        """
        A retry is not answered either, by no replica; when the standby is back, all get the first answer.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(insert, "before", key="before")
            pair.standby.freeze()
            async with PostgresEngine(tenant.engine._url, limits=SHORT) as other:
                for one in (tenant, Tenant(other), tenant):
                    with pytest.raises(NOT_ACKNOWLEDGED):
                        await one.ask(insert, "e", key="k")
                assert await tenant.count() == 1
                pair.standby.thaw()
                answers = [await one.ask(insert, "e", key="k") for one in (tenant, Tenant(other))]
            assert all(one.replayed for one in answers)
            assert answers[0].document == answers[1].document
            assert await tenant.count() == 2

        tell(story, limits=SHORT)

    @pytest.mark.fault("pg-a-lost-commit-is-nothing")
    def test_whoever_has_no_key_is_told_that_nobody_knows(self, pair: Pair, tell: Callable[..., Any]) -> None:
        """
        It may be written, and later it is.
        """

        async def story(tenant: Tenant) -> None:
            pair.standby.freeze()
            told = await asyncio.gather(*(tenant.ask(insert, "e") for insert in INSERTS), return_exceptions=True)
            assert [type(one) for one in told] == [OutcomeUnknown, OutcomeUnknown]
            pair.standby.thaw()
            await asyncio.to_thread(until, lambda: _rows(pair) == 2)

        tell(story, limits=SHORT)

    @pytest.mark.parametrize("insert", INSERTS)
    @pytest.mark.fault("pg-what-was-sent-before-is-believed")
    @pytest.mark.dose(1)
    def test_a_commit_that_did_not_wait_is_not_believed_when_it_is_found(
        self, pair: Pair, tell: Callable[..., Any], insert: str
    ) -> None:
        """
        An administrator cancels the waits: the row is there, and its standby has nothing of it (decision 037).
        """

        async def story(tenant: Tenant) -> None:
            with pair.primary.without_its_standby():
                with pytest.raises(StoreUnavailable):
                    await tenant.ask(insert, "e", key="k")
                assert _rows(pair) == 1
            assert (await tenant.ask(insert, "e", key="k")).replayed

        tell(story, limits=SHORT)


@pytest.mark.slow
def test_after_a_failover_an_engine_goes_on_with_the_standby(pair: Pair, tell: Callable[..., Any]) -> None:
    """
    What it keeps (sessions, names of schemas, what it has seen settled) is dropped or still true there.
    """

    async def story(tenant: Tenant) -> None:
        first = [await tenant.ask(INSERTS[1], "e", key=f"k{number}") for number in range(8)]
        pair.fail_over()
        again = await asyncio.gather(*(tenant.ask(INSERTS[1], "e", key=f"k{number}") for number in range(8)))
        assert [one.document for one in again] == [one.document for one in first]
        assert all(one.replayed for one in again)
        assert not (await tenant.ask(INSERTS[0], "e", key="new")).replayed
        assert await tenant.count() == 9

    tell(story)


def _rows(pair: Pair) -> int:
    [(schema,)] = pair.primary.execute("SELECT schema_name FROM onceward.onceward_databases", "tenants")
    return int(str(pair.primary.execute(f"SELECT count(*) FROM {schema}.events", "tenants")[0][0]))
