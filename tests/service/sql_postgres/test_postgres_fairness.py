"""Tenants beside each other on one server: what one of them takes is its own, and never everything."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tenant_support import DATABASE, Tenant

from onceward.errors import OncewardError, RateLimitError
from onceward.protocol.errors import EngineClosed, SqlError, SqlKind
from onceward.runtime.environment import REAL
from onceward.service.access.accounts import Account, Accounts, Allowance, Resource
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.preparation import TEMPORARY_FILES
from servers import ending
from servers.postgres import PostgresServer
from servers.tenants import prepare

pytestmark = pytest.mark.dose(1, of="version")

SLOW = "SELECT count(*) FROM generate_series(1, 3000000)"
ENDLESS = "SELECT count(*) FROM generate_series(1, 2000000000)"
ATTACKER, NEIGHBOUR = "live-attacker", "live-neighbour"


def accounts_of(**allowance: Any) -> Accounts:
    """Accounts that may hold so much."""
    return Accounts(REAL.monotonic, Allowance(**allowance))


class TestTurns:
    """Sessions are lent in turn."""

    @pytest.mark.fault("pg-a-place-in-line-is-not-held")
    def test_a_place_in_line_is_held_before_anything_is_asked(self, play: Callable[..., Any]) -> None:
        """
        Three of one tenant at once, where it may have two: the third is told at once, and nothing is left held.
        """
        account = accounts_of(waiting=2).of_tenant("acme")

        async def story(tenant: Tenant) -> list[Any]:
            asked = [asyncio.ensure_future(tenant.ask(SLOW, account=account)) for _ in range(3)]
            return await asyncio.gather(*asked, return_exceptions=True)

        results = play(story)

        assert [type(one).__name__ for one in results] == ["SqlResult", "SqlResult", "RateLimitError"]
        assert set(account.usage().held.values()) == {0}

    @pytest.mark.fault("pg-only-the-first-in-line-gives-up")
    def test_each_who_waits_for_too_long_is_told(self, play: Callable[..., Any]) -> None:
        """
        Two tenants who came one after the other, while the only session is somebody else's. Then a third gets it.
        """

        async def story(tenant: Tenant) -> list[Any]:
            pool = tenant.engine._pool
            async with pool.lend("somebody"):
                first = asyncio.ensure_future(pool.lend("a").begin())
                await asyncio.sleep(0.2)
                second = asyncio.ensure_future(pool.lend("b").begin())
                _, left = await asyncio.wait((first, second), timeout=60)
                assert not left
            async with pool.lend("c"):
                return [first.exception(), second.exception()]

        results = play(story, sessions=1, limits=Limits(queue_seconds=0.5))

        assert ["busy for 0.5 s" in str(one) for one in results] == [True, True]

    def test_no_tenant_has_every_session_and_each_waits_for_its_own(self, play: Callable[..., Any]) -> None:
        """
        Four sessions, eight requests of one tenant that never end: another's is run, while the first one's still wait.
        """
        accounts = accounts_of()

        async def story(tenant: Tenant) -> tuple[int, int]:
            greedy, modest = accounts.of_tenant("greedy"), accounts.of_tenant("modest")
            asked = [asyncio.ensure_future(tenant.ask(ENDLESS, account=greedy)) for _ in range(8)]
            while greedy.usage().held[Resource.RUNNING] < 2:
                await asyncio.sleep(0)
            await tenant.ask("SELECT 1", account=modest)
            running, ended = greedy.usage().held[Resource.RUNNING], sum(one.done() for one in asked)
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            return running, ended

        running, ended = play(story, sessions=4, limits=Limits(statement_seconds=60.0))

        assert (running, ended) == (2, 0)
        assert set(accounts.of_tenant("greedy").usage().held.values()) == {0}

    def test_who_waits_when_it_is_closed_is_told_so(self, play: Callable[..., Any]) -> None:
        """
        What runs is finished; what waits was not begun.
        """

        async def story(tenant: Tenant) -> list[Any]:
            asked = [asyncio.ensure_future(tenant.ask(SLOW)) for _ in range(3)]
            while not tenant.engine._pool.is_busy:
                await asyncio.sleep(0)
            await tenant.engine.close(60.0)
            return await asyncio.gather(*asked, return_exceptions=True)

        results = play(story, sessions=1)

        assert [type(one) for one in results[1:]] == [EngineClosed, EngineClosed]
        assert not isinstance(results[0], BaseException)


class TestProcessorTime:
    """Set aside before, settled after, whatever came of it."""

    def test_an_error_costs_what_it_used(self, play: Callable[..., Any]) -> None:
        """
        A deadline that is reached, a division by zero at the last row.
        """
        account = accounts_of().of_tenant("acme")

        async def story(tenant: Tenant) -> None:
            for sql in (ENDLESS, "SELECT sum(1 / (3000000 - n)) FROM generate_series(1, 3000000) AS n"):
                before = account.usage().cpu_seconds
                with pytest.raises(SqlError):
                    await tenant.ask(sql, account=account)
                assert account.usage().cpu_seconds - before > 0.05

        play(story, limits=Limits(statement_seconds=1.0))

    @pytest.mark.fault("pg-what-is-slow-is-forgotten")
    def test_what_was_slow_before_needs_as_much_again(self, play: Callable[..., Any]) -> None:
        """
        With less than that on the account it is refused before it is run; what is quick still runs.
        """
        account = accounts_of(cpu_burst=1.2, cpu_per_second=0.0001).of_tenant("acme")

        async def story(tenant: Tenant) -> None:
            with suppress(SqlError):
                await tenant.ask(ENDLESS, account=account)
            account.spend_cpu(account.cpu_left() - 0.5)  # Half a second is left: enough for much, and not for that.
            before = account.usage().cpu_seconds
            with pytest.raises(OncewardError) as refused:
                await tenant.ask(ENDLESS, account=account)
            assert isinstance(refused.value, RateLimitError)
            assert account.usage().cpu_seconds == before
            assert (await tenant.ask("SELECT 1", account=account)).rows == [[1]]

        play(story, limits=Limits(statement_seconds=1.0, queue_seconds=0.5))

    def test_a_payer_without_time_waits_and_is_let_in_when_there_is_some(self, play: Callable[..., Any]) -> None:
        """
        Nobody has to ask again.
        """
        account = accounts_of(cpu_burst=0.1, cpu_per_second=0.1).of_tenant("acme")
        account.spend_cpu(0.1)

        async def story(tenant: Tenant) -> Any:
            return (await tenant.ask("SELECT 1", account=account)).rows

        assert play(story) == [[1]]


def own_server(settings: dict[str, str], story: Callable[[PostgresServer, str], Awaitable[Any]]) -> Any:
    """Tell a story on a server of its own."""
    server = PostgresServer(ending.folder("onceward-pg-fair-"), settings=settings)
    server.start()
    try:
        return asyncio.run(story(server, prepare(server, "fair")))  # type: ignore[arg-type]
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.fault("pg-locks-are-not-counted")
def test_one_tenant_cannot_take_every_lock_of_the_server() -> None:
    """
    A server with a small table of locks. A tenant makes as many tables as it can, and uses all of them at once, as
    often as it may; its neighbour goes on.
    """

    async def story(server: PostgresServer, url: str) -> tuple[int, list[Any], list[Any]]:
        accounts = accounts_of(cpu_burst=1_000.0)
        attacker, neighbour = accounts.of_tenant("attacker"), accounts.of_tenant("neighbour")
        async with PostgresEngine(url, limits=Limits(statement_seconds=30.0)) as engine:
            for namespace in (ATTACKER, NEIGHBOUR):
                await engine.create(namespace, DATABASE)
            await engine.query(NEIGHBOUR, DATABASE, "CREATE TABLE own (id int PRIMARY KEY, name text)")
            made = await _make_tables(engine, attacker)
            texts = [f"SELECT count(*) FROM t{number}" for number in range(min(made, 99))]
            hold = "SELECT count(*) FROM generate_series(1, 5000000)"
            asked = [
                asyncio.ensure_future(engine.batch(ATTACKER, DATABASE, [*texts, hold], account=attacker))
                for _ in range(6)
            ]
            while attacker.usage().held[Resource.RUNNING] < 3:
                await asyncio.sleep(0)
            beside = await asyncio.gather(*(_write(engine, neighbour, number) for number in range(20)),
                                          return_exceptions=True)  # fmt: skip
            return made, beside, await asyncio.gather(*asked, return_exceptions=True)

    made, beside, asked = own_server({"max_locks_per_transaction": "10", "max_connections": "40"}, story)  # type: ignore[arg-type]

    assert made <= 25, "a quarter of 400, for four requests at once"
    assert [one for one in beside if isinstance(one, BaseException)] == []
    assert [one for one in asked if isinstance(one, BaseException)] == []


async def _make_tables(engine: PostgresEngine, account: Account) -> int:
    """As many as can be made; how many that were."""
    for number in range(200):
        try:
            await engine.query(ATTACKER, DATABASE, f"CREATE TABLE t{number} (id int)", account=account)
        except SqlError as refused:
            assert refused.kind is SqlKind.FULL
            return number
    return 200


async def _write(engine: PostgresEngine, account: Account, number: int) -> Any:
    return await engine.query(NEIGHBOUR, DATABASE, "INSERT INTO own VALUES ($1, 'x')", [number], account=account)


@pytest.mark.slow
def test_a_server_with_a_limit_of_memory_refuses_and_lives() -> None:
    """
    The operator's measure: an address space for the server's processes. A statement that needs more is refused, and its
    session goes on.
    """

    async def story(server: PostgresServer, url: str) -> tuple[SqlKind, list[Any]]:
        assert server._process is not None
        status = Path(f"/proc/{server._process.pid}/status").read_text()
        [size] = [int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize")]
        resource.prlimit(server._process.pid, resource.RLIMIT_AS, (size + (200 << 20),) * 2)
        async with PostgresEngine(url, sessions=1) as engine:
            await engine.create(ATTACKER, DATABASE)
            hungry = "SELECT cardinality(array_agg(repeat(md5(n::text), 30000))) FROM generate_series(1, 600) AS n"
            with pytest.raises(SqlError) as refused:
                await engine.query(ATTACKER, DATABASE, hungry)
            return refused.value.kind, (await engine.query(ATTACKER, DATABASE, "SELECT 1")).rows

    kind, rows = own_server({}, story)  # type: ignore[arg-type]

    assert (kind, rows) == (SqlKind.TOO_LARGE, [[1]])


def test_what_the_server_writes_aside_is_limited(url: str) -> None:
    """
    By a setting of the role, which no tenant can change.
    """
    with psycopg.connect(url) as line:
        assert line.execute("SHOW temp_file_limit").fetchone() == (TEMPORARY_FILES,)
