"""What a request costs, counted: round trips, texts that are parsed, sessions that are used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tenant_support import DATABASE, NAMESPACE, SCOPE, Tenant, administrator

from onceward._core.errors import InFlight
from onceward.gate.call_factory import PurgeSchedule
from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.costs import cost_of
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres import PostgresEngine, session_pool
from onceward.service.sql.postgres.checked_texts import TEXTS_MAX, CheckedTexts
from onceward.service.sql.postgres.replay_reader import RESULT_BYTES_MAX
from onceward.service.sql.postgres.session import PipelineStep, TenantSession
from onceward.service.sql.postgres.statement_checker import CheckedStatement, StatementChecker
from onceward.service.sql.requests import SqlResult
from onceward.stores._postgres_rows import COLUMNS
from onceward.stores.postgres import AsyncPostgresStore

pytestmark = pytest.mark.dose(1, of="version")

EVENTS = "CREATE TABLE events (id text PRIMARY KEY, name text)"
INSERT = "INSERT INTO events VALUES ($1, $2)"


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each round trip had."""
    counted: list[int] = []
    exchange = TenantSession.exchange

    async def counting(session: TenantSession, steps: Any, **options: Any) -> Any:
        counted.append(len(steps))
        return await exchange(session, steps, **options)

    monkeypatch.setattr(TenantSession, "exchange", counting)
    return counted


class TestRoundTrips:
    """How often the server is asked."""

    def test_a_request_takes_as_few_as_it_can(self, play: Callable[..., Any], trips: list[int]) -> None:
        """
        One for a plain insert with its key, two where the result has to be seen first; one for a replay.
        """

        async def asked(tenant: Tenant, sql: str, *params: Any, **options: Any) -> int:
            before = len(trips)
            await tenant.ask(sql, *params, **options)
            return len(trips) - before

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            await tenant.ask("SELECT 1")
            assert await asked(tenant, INSERT, "a", "x", key="a") == 1
            assert await asked(tenant, f"{INSERT} RETURNING id", "b", "x", key="b") == 2
            assert await asked(tenant, INSERT, "c", "x") == 1
            assert await asked(tenant, "UPDATE events SET name = 'y'") == 2
            assert await asked(tenant, "SELECT * FROM events") == 1
            await asked(tenant, INSERT, "a", "x", key="a")  # Opens the connection that reads.
            assert await asked(tenant, INSERT, "a", "x", key="a") == 1
            assert await asked(tenant, f"{INSERT} RETURNING id", "b", "x", key="b") == 1

        play(story)

    def test_replays_that_are_asked_for_together_share_round_trips(
        self, play: Callable[..., Any], trips: list[int]
    ) -> None:
        """
        And each gets its own.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            first = [await tenant.ask(f"{INSERT} RETURNING id", f"e{n}", "x", key=f"k{n}") for n in range(20)]
            await tenant.ask(f"{INSERT} RETURNING id", "e0", "x", key="k0")
            trips.clear()
            asked = (tenant.ask(f"{INSERT} RETURNING id", f"e{n % 20}", "x", key=f"k{n % 20}") for n in range(60))
            again = await asyncio.gather(*asked)
            assert [one.document for one in again] == [one.document for one in first] * 3
            assert all(one.replayed for one in again)
            assert len(trips) <= 3

        play(story)

    def test_what_a_quick_look_cannot_answer_goes_the_usual_way(self, play: Callable[..., Any]) -> None:
        """
        A large result, another request under the key, a reader's connection that broke.
        """

        async def story(tenant: Tenant) -> None:
            large = "SELECT repeat('x', $1::int) AS text"
            first = await tenant.ask(large, RESULT_BYTES_MAX, key="large")
            assert (await tenant.ask(large, RESULT_BYTES_MAX, key="large")).document == first.document
            await tenant.ask("SELECT 1", key="k")
            await tenant.ask("SELECT 1", key="k")
            with pytest.raises(Exception, match="different request"):
                await tenant.ask("SELECT 2", key="k")
            reader = tenant.engine._reader._session
            assert reader is not None
            reader.close()
            assert (await tenant.ask("SELECT 1", key="k")).replayed

        play(story)


class TestCertainResults:
    """Inserts whose result is known before they are sent."""

    @pytest.mark.parametrize(
        ("table", "insert", "rows"),
        [
            ("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", 1),
            ("CREATE TABLE t (a int)", "INSERT INTO t (a) VALUES ($1), ($2), (DEFAULT)", 3),
            ("CREATE TABLE t (a int) PARTITION BY LIST (a)", "INSERT INTO t VALUES ($1), ($2)", 2),
            ("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) STORED)", "INSERT INTO t VALUES (3::int)", 1),
            ("CREATE TABLE t (a int)", "INSERT INTO t VALUES (generate_series(1, 3))", 3),
            ("CREATE TABLE t (a int)", "INSERT INTO t VALUES ((SELECT 5))", 1),
            ("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2) LIMIT 1", 1),
            ("CREATE TABLE t (a int PRIMARY KEY)", "INSERT INTO t VALUES (1), (1) ON CONFLICT DO NOTHING", 1),
            ("CREATE TABLE t (a int)", "WITH x AS (DELETE FROM t RETURNING 1) INSERT INTO t VALUES (1)", 1),
        ],
    )
    @pytest.mark.fault("pg-a-function-is-one-row")
    def test_what_is_told_is_what_the_server_wrote(
        self, play: Callable[..., Any], table: str, insert: str, rows: int
    ) -> None:
        """
        Whether it was certain or not.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(table)
            if "PARTITION" in table:
                await tenant.ask("CREATE TABLE part PARTITION OF t DEFAULT")
            params = [7, 8] if "$2" in insert else []
            result = await tenant.ask(insert, *params, key="k")
            assert (result.rows_written, result.rows, result.columns) == (rows, [], [])
            assert await tenant.count("t") == rows
            assert (await tenant.ask(insert, *params, key="k")).document == result.document

        play(story)

    def test_one_that_fails_leaves_nothing_and_its_key_is_free(self, play: Callable[..., Any]) -> None:
        """
        By its own error, and by a constraint that waits until the end.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE a (id int PRIMARY KEY)")
            await tenant.ask("CREATE TABLE b (id int REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
            for sql, kind in (
                ("INSERT INTO b VALUES ('x')", SqlKind.TYPE),
                ("INSERT INTO b VALUES (1)", SqlKind.FOREIGN_KEY),
            ):
                with pytest.raises(SqlError) as refused:
                    await tenant.ask(sql, key="k")
                assert refused.value.kind is kind
            assert await tenant.count("b") == 0
            assert not (await tenant.batch("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)", key="k")).replayed

        play(story)

    @pytest.mark.fault("pg-what-fails-at-once-is-free", "pg-what-is-settled-at-once-is-free")
    def test_it_costs_what_the_server_worked_whether_it_fails_or_not(self, play: Callable[..., Any]) -> None:
        """
        A constraint can take as long as any statement.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE t (a int CHECK (a < length(repeat('x', 20000000))))")
            with pytest.raises(SqlError) as refused:
                await tenant.ask("INSERT INTO t VALUES (20000001)", key="k")
            assert refused.value.kind is SqlKind.CHECK
            for cost in (cost_of(refused.value), (await tenant.ask("INSERT INTO t VALUES (1)", key="k")).cost):
                assert cost.cpu_seconds > 5 * session_pool.REQUEST_SECONDS

        play(story)

    def test_its_record_comes_first_and_nothing_of_ours_comes_after_it_but_the_time(
        self, play: Callable[..., Any], trips: list[int]
    ) -> None:
        """
        Record and role, BEGIN, the statement, constraints, path, time, COMMIT.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            await tenant.ask(INSERT, "a", "x", key="a")
            await tenant.ask(INSERT, "b", "x", key="b")  # The size was looked at a moment ago.
            assert trips[-1] == 7

        play(story)

    @pytest.mark.fault("pg-who-replays-waits-for-a-lock")
    def test_who_replays_is_not_stopped_by_somebody_else_who_does(self, play: Callable[..., Any], url: str) -> None:
        """
        What was settled elsewhere is there for all who ask at the same time, also for those who would not wait.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            first = await tenant.ask(INSERT, "a", "x", key="k")
            async with PostgresEngine(url, in_flight_seconds=0.0) as other:
                await Tenant(other).ask("SELECT 1")
                schema = await other._schema(NAMESPACE, DATABASE)
                id = other._scope(SCOPE, schema).call("k", {}).id
                with psycopg.connect(url) as somebody:
                    somebody.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(id[:8], "big", signed=True)])
                    [again] = await asyncio.gather(Tenant(other).ask(INSERT, "a", "x", key="k"), return_exceptions=True)
            assert isinstance(again, SqlResult)
            assert (again.replayed, again.document) == (True, first.document)

        play(story)

    def test_who_finds_nothing_and_somebody_else_at_it_is_told(self, play: Callable[..., Any], url: str) -> None:
        """
        Nothing is written then, and the key can be used later.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            schema = await tenant.engine._schema(NAMESPACE, DATABASE)
            id = tenant.engine._scope(SCOPE, schema).call("k", {}).id
            with psycopg.connect(url) as somebody:
                somebody.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(id[:8], "big", signed=True)])
                with pytest.raises(InFlight):
                    await tenant.ask(INSERT, "a", "x", key="k")
            assert await tenant.count() == 0
            assert not (await tenant.ask(INSERT, "a", "x", key="k")).replayed

        play(story, in_flight_seconds=0.0)

    @pytest.mark.fault("pg-a-record-is-waited-for-without-end")
    def test_a_record_that_somebody_is_just_putting_is_waited_for_as_long_as_for_any_lock(
        self, play: Callable[..., Any], url: str
    ) -> None:
        """
        By an operator's tool, say, which does not take the lock of a request.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            await tenant.ask(INSERT, "a", "x", key="a")
            schema = await tenant.engine._schema(NAMESPACE, DATABASE)
            ids = [tenant.engine._scope(SCOPE, schema).call(key, {}).id for key in ("k", "a")]
            columns = ", ".join(COLUMNS[1:])
            table = f"{tenant.engine._records}.onceward_records"
            with psycopg.connect(url) as somebody:
                copy = f"INSERT INTO {table} (id, {columns}) SELECT %s, {columns} FROM {table} WHERE id = %s"
                assert somebody.execute(copy.encode(), ids).rowcount == 1
                [refusal] = await asyncio.gather(tenant.ask(INSERT, "k", "x", key="k"), return_exceptions=True)
                somebody.rollback()
            assert isinstance(refusal, SqlError)
            assert refusal.kind is SqlKind.LOCKED
            assert not (await tenant.ask(INSERT, "k", "x", key="k")).replayed

        play(story, limits=Limits(statement_seconds=1.0))

    @pytest.mark.fault("pg-certain-writes-purge-nothing")
    def test_now_and_then_a_little_is_purged(self, play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Beside the requests; and an engine that is closed waits for it.
        """
        purged: list[int] = []
        purge = AsyncPostgresStore.purge

        async def counting(store: AsyncPostgresStore, limit: int) -> Any:
            result = await purge(store, limit)
            purged.append(limit)
            return result

        monkeypatch.setattr(AsyncPostgresStore, "purge", counting)

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            for number in range(PurgeSchedule.PURGE_EVERY):
                await tenant.ask(INSERT, f"e{number}", "x", key=f"k{number}")

        play(story)
        assert purged != []

    def test_another_replicas_key_is_found_and_replayed(self, play: Callable[..., Any]) -> None:
        """
        What was settled elsewhere is not known here: it is tried, stopped by the record, and shown.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            first = await tenant.ask(INSERT, "a", "x", key="k")
            async with PostgresEngine(tenant.engine._url) as other:
                for _ in range(3):
                    again = await Tenant(other).ask(INSERT, "a", "x", key="k")
                    assert (again.replayed, again.document) == (True, first.document)
            assert await tenant.count() == 1

        play(story)


class TestCheckedTexts:
    """What the parser said is kept."""

    @pytest.mark.fault("pg-verdicts-are-not-kept")
    def test_a_text_is_parsed_once(self, play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Whatever its parameters; one that is refused is looked at each time.
        """
        parsed: list[str] = []
        check = StatementChecker.check
        monkeypatch.setattr(StatementChecker, "check", lambda checker, sql: parsed.append(sql) or check(checker, sql))

        async def story(tenant: Tenant) -> None:
            for number in range(5):
                await tenant.ask("SELECT $1::int", number)
                with pytest.raises(SqlError, match="pg_sleep"):
                    await tenant.ask("SELECT pg_sleep(1)")

        play(story)
        assert parsed.count("SELECT $1::int") == 1
        assert parsed.count("SELECT pg_sleep(1)") == 5

    def test_only_so_many_are_kept(self) -> None:
        """
        The one that was used longest ago goes first.
        """

        class Counting:
            def __init__(self) -> None:
                self.asked: list[str] = []

            def check(self, sql: str) -> CheckedStatement:
                self.asked.append(sql)
                return CheckedStatement("SELECT", reads=True)

        counting = Counting()
        texts = CheckedTexts(counting)
        for number in range(TEXTS_MAX):
            texts.check(f"SELECT {number}")
        texts.check("SELECT 0")
        texts.check("SELECT -1")
        for sql in ("SELECT 0", "SELECT 1", "x" * 3_000, "x" * 3_000):
            texts.check(sql)
        assert counting.asked[TEXTS_MAX:] == ["SELECT -1", "SELECT 1", "x" * 3_000, "x" * 3_000]

    @pytest.mark.fault("pg-another-server-is-believed-to-be-the-same")
    def test_on_a_server_of_another_version_everything_is_checked_anew(self, play: Callable[..., Any]) -> None:
        """
        It may have functions that the names from before do not tell of.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("SELECT 1")
            engine = tenant.engine
            known, version = engine._checker, engine._version
            engine._version = version - 10_000
            await tenant.ask("SELECT 1")
            assert engine._checker is not known
            assert engine._version == version

        play(story)


class TestSessions:
    """Sessions of the pool."""

    @pytest.mark.fault("pg-any-session-will-do")
    def test_a_tenant_gets_the_session_again_that_it_had(self, play: Callable[..., Any]) -> None:
        """
        A server process knows the tables of those it has served.
        """

        async def story(tenant: Tenant) -> None:
            pool = tenant.engine._pool
            async with pool.lend("a") as first, pool.lend("b") as second, pool.lend("c") as third:
                had = {"a": first, "b": second, "c": third}
            for name in ("a", "b", "c", "a", "b"):
                async with pool.lend(name) as again:
                    assert again is had[name]

        play(story)

    @pytest.mark.fault("pg-a-commit-that-failed-is-fine")
    def test_an_error_of_a_commit_that_nobody_asked_for_is_an_error(self, play: Callable[..., Any]) -> None:
        """
        Without COMMIT the end of a pipeline is one. And the session can be used again.
        """

        async def story(tenant: Tenant) -> None:
            schema = await tenant.engine._schema(NAMESPACE, DATABASE)
            await tenant.ask("CREATE TABLE a (id int PRIMARY KEY)")
            await tenant.ask("CREATE TABLE b (id int REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
            become = f"SELECT set_config('role', '{schema}', true), set_config('search_path', '{schema}', true)"
            async with tenant.engine._pool.lend(NAMESPACE) as session:
                steps = (PipelineStep(become.encode()), PipelineStep(b"INSERT INTO b VALUES (7)"))
                answers = await session.exchange(steps, commits=True)
                assert answers[0].error is None
                assert answers[1].error is not None
                assert session.is_at_rest
            assert await tenant.count("b") == 0

        play(story)

    def test_psycopgs_own_way_to_wait_and_ours_take_turns(self, play: Callable[..., Any]) -> None:
        """
        Both listen to one socket.
        """

        async def story(tenant: Tenant) -> None:
            async with tenant.engine._pool.lend(NAMESPACE) as session:
                for number in range(3):
                    [answer] = await session.execute(PipelineStep(b"SELECT 1"))
                    cursor = await session.connection.execute("SELECT %s::int", [number])
                    assert (answer.result.get_value(0, 0), await cursor.fetchall()) == (b"1", [(number,)])

        play(story)

    def test_one_that_the_server_has_ended_is_noticed_when_it_is_used(self, play: Callable[..., Any], url: str) -> None:
        """
        Nobody asked for what the server says then. The event loop does not turn for it, and the next request is served.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            await tenant.ask(INSERT, "a", "x", key="a")
            [session] = tenant.engine._pool._idle
            with psycopg.connect(administrator(url), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 60000)", [session.connection.info.backend_pid])
            while session._socket is not None:
                await asyncio.sleep(0.01)
            assert not (await tenant.ask(INSERT, "b", "x", key="b")).replayed

        play(story)

    @pytest.mark.fault("pg-sessions-live-for-ever")
    def test_one_that_was_used_often_is_replaced(
        self, play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A server process keeps something of every tenant that it has served.
        """
        monkeypatch.setattr(session_pool, "USES_MAX", 5)

        async def story(tenant: Tenant) -> None:
            served = set()
            for _ in range(20):
                await tenant.ask("SELECT 1")
                served.add(tenant.engine._pool._idle[-1].connection.info.backend_pid)
            assert 2 < len(served) < 10

        play(story)


def test_a_reader_of_replays_holds_no_place_of_a_tenants(play: Callable[..., Any]) -> None:
    """
    Where every session is lent, what is known to be settled is still answered.
    """

    async def story(tenant: Tenant) -> None:
        await tenant.ask(EVENTS)
        await tenant.ask(INSERT, "a", "x", key="k")
        async with tenant.engine._pool.lend("somebody"):
            assert not tenant.engine._pool._free
            assert (await tenant.ask(INSERT, "a", "x", key="k")).replayed

    play(story, sessions=1)
