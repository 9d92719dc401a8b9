"""A session is lent to one tenant after the other: the next one finds it as if nobody had been there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
import pytest
from hostile_probes import PROBES
from layers import SHORT, AnyStatement
from tenant_support import DATABASE, NAMESPACE, TAKEN, Tenant

from onceward._core.errors import OncewardError
from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.session import TenantSession

pytestmark = pytest.mark.dose(1, of="version")

NEXT = "live-globex"
"""The tenant that gets the session then."""
SETTINGS = "SELECT name || '=' || setting FROM pg_settings WHERE source = 'session' ORDER BY 1"
WHO = "SELECT concat_ws(' ', current_user, session_user, current_setting('role'), current_schemas(true)::text)"
QUESTIONS = {
    "settings": SETTINGS,
    "role and search path": WHO,
    "temporary tables": "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()",
    "advisory locks": "SELECT objid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
    "other locks": "SELECT relation::regclass FROM pg_locks WHERE pid = pg_backend_pid() AND relation IS NOT NULL AND "
    "relation::regclass::text NOT LIKE 'pg\\_%'",
    "channels": "SELECT pg_listening_channels()",
    "cursors": "SELECT name FROM pg_cursors WHERE name <> ''",
    "prepared transactions": "SELECT gid FROM pg_prepared_xacts",
}
"""What a session can keep, and how it is asked for."""
CANCELLED = ("too many rows",)
"""Ends after which a session is closed: it was told to stop, and nobody knows when it hears of it."""
LATE = ("a deadline", "a keyed deadline", "a lock", "a client that left")
"""Ends that come by the server's own limit or by ours, whichever is first on this machine."""


class State(NamedTuple):
    """What a session keeps."""

    pid: int
    kept: dict[str, list[Any]]
    prepared: list[str]
    """Names of prepared statements."""


async def state_of(session: TenantSession) -> State:
    """Ask the server, as the service."""

    async def ask(sql: str) -> list[Any]:
        try:
            cursor = await session.connection.execute(sql.encode(), prepare=False)
        except psycopg.errors.InsufficientPrivilege:
            return ["this is not the service's role"]
        return [str(row[0]) for row in await cursor.fetchall()]

    kept = {name: await ask(sql) for name, sql in QUESTIONS.items()}
    return State(session.connection.info.backend_pid, kept, await ask("SELECT name FROM pg_prepared_statements"))


class OneSession:
    """An engine with a single session, and a tenant whose turn it is."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine
        self.tenant = Tenant(engine)

    async def prepare(self) -> None:
        """Two tenants; the first one has tables."""
        for namespace in (NAMESPACE, NEXT):
            await self.engine.drop(namespace, DATABASE)
            await self.engine.create(namespace, DATABASE)
        await self.tenant.batch(
            "CREATE TABLE own (id int PRIMARY KEY, text text)",
            "CREATE TABLE child (id int REFERENCES own (id) DEFERRABLE INITIALLY DEFERRED)",
            "CREATE SEQUENCE numbers",
            "INSERT INTO own SELECT n, 'x' FROM generate_series(1, 1000) AS n",
        )

    async def fresh(self) -> State:
        """Of a session that nobody has used."""
        session = await TenantSession.open(self.engine._pool._target, SHORT, 0.0)
        try:
            return await state_of(session)
        finally:
            session.close()

    async def state(self) -> State | None:
        """Of the session that waits for the next one; None: there is none, because it was closed."""
        idle = self.engine._pool._idle
        assert len(idle) <= 1
        return await state_of(idle[0]) if idle else None

    async def follows(self) -> list[Any]:
        """The next tenant's own word on where it is: it sees its own schema, and nothing in it."""
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema <> 'information_schema'"
        return (await self.engine.query(NEXT, DATABASE, sql)).rows


@pytest.fixture
def one_session(url: str) -> Callable[..., Any]:
    """Tell a story to an engine with one session."""

    def tell(story: Callable[[OneSession], Awaitable[Any]], **options: Any) -> Any:
        async def run() -> Any:
            async with PostgresEngine(url, sessions=1, limits=SHORT, **options) as engine:
                one = OneSession(engine)
                await one.prepare()
                return await story(one)

        return asyncio.run(run())

    return tell


async def refused(act: Awaitable[Any]) -> SqlError | None:
    """What it was refused with, if it was."""
    try:
        await act
    except SqlError as error:
        return error
    except OncewardError:
        return None
    return None


async def leave_a_request(one: OneSession) -> None:
    """A client goes away while its statement runs."""
    with suppress(TimeoutError, OncewardError):
        async with asyncio.timeout(0.1):
            await one.tenant.ask("SELECT count(*) FROM own a, own b, own c, own d")


async def wait_for_a_lock(one: OneSession, url: str) -> None:
    """Somebody else holds a row."""
    schema = await one.engine._schema(NAMESPACE, DATABASE)
    with psycopg.connect(url.replace("onceward@", "postgres@")) as other:
        other.execute(f"SELECT 1 FROM {schema}.own WHERE id = 1 FOR UPDATE".encode())
        error = await refused(one.tenant.ask("UPDATE own SET text = 'y' WHERE id = 1"))
    assert error is not None
    assert error.kind in (SqlKind.LOCKED, SqlKind.TIMEOUT)


class TestNothingIsLeft:
    """Whatever a tenant did, and however it ended."""

    def test_by_any_statement_that_is_taken_or_refused(self, one_session: Callable[..., Any]) -> None:
        """
        Every usual statement, and every probe: the session is as it was, or it is not used again.
        """
        statements = [*TAKEN.strip().splitlines(), *(probe.sql for probe in PROBES if probe.after != "bombs")]

        async def story(one: OneSession) -> None:
            names = {"other": await one.engine._schema(NEXT, DATABASE), "records": "onceward", "own": "own"}
            before = await one.fresh()
            for sql in statements:
                text = sql
                with suppress(KeyError, ValueError, IndexError):  # Braces of JSON's are no names.
                    text = sql.format(**names)
                await refused(one.tenant.ask(text))
                now = await one.state()
                if now is None:
                    assert await one.follows() == []
                    now = await one.state()
                assert now is not None
                assert now.kept == before.kept, sql
            assert await one.follows() == []

        one_session(story)

    @pytest.mark.fault("pg-a-setting-outlives-its-transaction", "pg-a-setting-outlives-a-certain-write")
    @pytest.mark.fault("pg-a-cancelled-session-is-used-again")
    def test_however_a_request_ends(self, one_session: Callable[..., Any], url: str) -> None:
        """
        By an error, a deadline, a row too many, a lock, a constraint at the end, a client that left, a retry, a step.
        """

        async def story(one: OneSession) -> None:
            tenant = one.tenant
            await one.follows()
            begun, before = await one.state(), await one.fresh()
            assert begun is not None
            ends: dict[str, Callable[[], Awaitable[Any]]] = {
                "an error of the server's": lambda: tenant.ask("SELECT 1 / 0"),
                "an error in a batch": lambda: tenant.batch("INSERT INTO own VALUES (2000)", "SELECT 'a'::int"),
                "a keyed error": lambda: tenant.ask("INSERT INTO own VALUES (1)", key="k-error"),
                "a constraint at the end": lambda: tenant.ask("INSERT INTO child VALUES (-1)"),
                "a keyed constraint at the end": lambda: tenant.ask("INSERT INTO child VALUES (-1)", key="k-child"),
                "a key": lambda: tenant.ask("INSERT INTO own VALUES (3000)", key="k"),
                "a replay": lambda: tenant.ask("INSERT INTO own VALUES (3000)", key="k"),
                "a key for something else": lambda: tenant.ask("INSERT INTO own VALUES (3001)", key="k"),
                "a step": lambda: tenant.step("p", "s", "INSERT INTO own VALUES (3002)"),
                "a step again": lambda: tenant.step("p", "s", "INSERT INTO own VALUES (3002)"),
                "a write by a reader": lambda: tenant.ask("INSERT INTO own VALUES (3003)", readonly=True),
                "a sequence": lambda: tenant.ask("SELECT nextval('numbers'), setval('numbers', 5)"),
                "too many rows": lambda: tenant.ask("SELECT generate_series(1, 1000000)"),
                "a deadline": lambda: tenant.ask("SELECT count(*) FROM own a, own b, own c, own d"),
                "a keyed deadline": lambda: tenant.ask("SELECT count(*) FROM own a, own b, own c, own d", key="k-late"),
                "a client that left": lambda: leave_a_request(one),
                "a lock": lambda: wait_for_a_lock(one, url),
                "a table": lambda: tenant.ask("CREATE TABLE more (id serial PRIMARY KEY)"),
                "a table that is gone": lambda: tenant.ask("DROP TABLE more"),
            }
            pids = [begun.pid]
            for name, end in ends.items():
                await refused(end())
                assert await one.follows() == [], name
                now = await one.state()
                assert now is not None
                assert now.kept == before.kept, name
                # Late cancels must not stop the next tenant's statement.
                assert name in LATE or (now.pid == pids[-1]) == (name not in CANCELLED), name
                pids.append(now.pid)
                assert {one for one in now.prepared if not one.startswith(("onceward", "_pg3"))} == set(), name
            for sql in ("SELECT lastval()", "SELECT currval('numbers')", "SELECT ('numbers'::text).currval"):
                error = await refused(one.engine.query(NEXT, DATABASE, sql))
                assert error is not None
                assert error.kind is SqlKind.DENIED
                assert "numbers" not in str(error)

        one_session(story)

    def test_the_role_of_a_database_that_was_dropped_is_not_left(self, one_session: Callable[..., Any]) -> None:
        """
        Another replica drops the database between two requests.
        """

        async def story(one: OneSession) -> None:
            before = await one.fresh()
            async with PostgresEngine(one.engine._url) as other:
                await other.drop(NAMESPACE, DATABASE)
            with pytest.raises(OncewardError, match="there is no database"):
                await one.tenant.ask("SELECT 1")
            assert await one.follows() == []
            now = await one.state()
            assert now is not None
            assert now.kept == before.kept

        one_session(story)


class TestTheChecksThemselves:
    """Without the parser things are left, and these tests see each of them."""

    @pytest.mark.parametrize(
        ("sql", "where"),
        [
            ("SET work_mem = '1GB'", "settings"),
            ("SET search_path = public", "settings"),
            ("SET SESSION ROLE {other}", "role and search path"),
            ("CREATE TEMPORARY TABLE t (a int)", "temporary tables"),
            ("SELECT pg_advisory_lock(7)", "advisory locks"),
            ("LISTEN somebody", "channels"),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "cursors"),
            ("PREPARE mine AS SELECT 1", "prepared"),
        ],
    )
    def test_what_is_left_is_seen(self, one_session: Callable[..., Any], url: str, sql: str, where: str) -> None:
        """
        "PREPARE, temp tables, cursors WITH HOLD, LISTEN and advisory locks leak into the next user of a session"
        """

        async def story(one: OneSession) -> None:
            before = await one.state()
            assert before is not None
            session = one.engine._pool._idle[0]
            other = await one.engine._schema(NEXT, DATABASE)
            with psycopg.connect(url.replace("onceward@", "postgres@"), autocommit=True) as connection:
                connection.execute("GRANT EXECUTE ON FUNCTION pg_advisory_lock(bigint) TO PUBLIC")
                connection.execute(f"GRANT TEMPORARY ON DATABASE {connection.info.dbname} TO PUBLIC".encode())
            one.engine._checker = AnyStatement()  # type: ignore[assignment]
            try:
                await one.tenant.ask(sql.format(other=other))
            finally:
                with psycopg.connect(url.replace("onceward@", "postgres@"), autocommit=True) as connection:
                    connection.execute("REVOKE EXECUTE ON FUNCTION pg_advisory_lock(bigint) FROM PUBLIC")
                    connection.execute(f"REVOKE TEMPORARY ON DATABASE {connection.info.dbname} FROM PUBLIC".encode())
            now = await state_of(session)
            session.spoilt = True
            if where == "prepared":
                assert "mine" in now.prepared
            else:
                assert now.kept[where] != before.kept[where]

        one_session(story)
