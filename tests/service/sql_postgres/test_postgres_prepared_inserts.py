"""Inserts that a session has prepared: fewer steps, and the same rows and errors as without, whatever changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from tenant_support import DATABASE, NAMESPACE, Tenant, administrator

from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres import PostgresEngine, prepared_inserts
from onceward.service.sql.postgres.prepared_inserts import PARTS_MAX, SEEN_MAX, USES_BEFORE, PreparedInserts
from onceward.service.sql.postgres.schema_room import MeasuredLately
from onceward.service.sql.postgres.session import TenantSession
from onceward.service.sql.postgres.statement_checker import CatalogNames, InsertTarget, StatementChecker
from onceward.service.sql.requests import Keyed, SqlResult

pytestmark = pytest.mark.dose(1, of="version")

INSERT = "INSERT INTO events (id, at) VALUES ($1, $2)"
TARGET = InsertTarget("t", ("a",))
TWO = "live-one", "live-two"


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are looked at once a second, and then everything is sent as text: not here."""
    monkeypatch.setattr(MeasuredLately, "is_due", lambda *_: False)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The names of the steps of each round trip; none for a text."""
    found: list[list[bytes]] = []
    exchange = TenantSession.exchange

    async def noting(session: TenantSession, steps: Any, **options: Any) -> Any:
        found.append([one.name for one in steps])
        return await exchange(session, steps, **options)

    monkeypatch.setattr(TenantSession, "exchange", noting)
    return found


async def use(tenant: Tenant, sql: str = INSERT, value: Any = None, times: int = USES_BEFORE + 2) -> None:
    """Use a text until it is prepared, and once more."""
    for number in range(times):
        await tenant.ask(sql, f"use{number}", value, key=f"use{sha256(sql.encode()).hexdigest()}-{number}")


class TestPrepared:
    """What is sent of an insert that was seen before."""

    @pytest.mark.fault("pg-no-insert-is-prepared")
    def test_its_text_is_parsed_no_more(self, play: Callable[..., Any], sent: list[list[bytes]]) -> None:
        """
        Record and role, BEGIN, the insert, constraints, the check with the time, COMMIT: six steps, all prepared.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text PRIMARY KEY, at text)")
            await use(tenant)
            assert len(sent[-1]) == 6
            assert all(sent[-1])
            assert await tenant.count() == USES_BEFORE + 2

        play(story, sessions=1)

    def test_another_tenant_has_its_own(self, url: str, sent: list[list[bytes]]) -> None:
        """
        One session, two tenants, one text: each writes to its own table, whose columns have other types.
        """

        async def story() -> None:
            async with PostgresEngine(url, sessions=1) as engine:
                for namespace, kind in zip(TWO, ("int", "text"), strict=True):
                    await engine.drop(namespace, DATABASE)
                    await engine.create(namespace, DATABASE)
                    await engine.query(namespace, DATABASE, f"CREATE TABLE events (id text, at {kind})")
                for number in range(USES_BEFORE + 3):
                    for namespace, value in zip(TWO, (7, "seven"), strict=True):
                        identity = Keyed(f"live:{namespace}:db:shop", f"k{number}")
                        await engine.query(namespace, DATABASE, INSERT, ["a", value], identity=identity)
                        last = sent[-1]
                assert all(last)
                found = [(await engine.query(one, DATABASE, "SELECT DISTINCT at FROM events")).rows for one in TWO]
                assert found == [[[7]], [["seven"]]]

        asyncio.run(story())


class TestAnotherTable:
    """What was prepared for columns that are not so any more."""

    @pytest.mark.parametrize("elsewhere", [False, True])
    @pytest.mark.fault("pg-a-prepared-insert-is-not-checked")
    def test_a_time_keeps_its_zone(self, play: Callable[..., Any], url: str, elsewhere: bool) -> None:
        """
        The column gets a zone after the insert was prepared without; by the tenant, or by somebody with psql.
        """
        change = "ALTER TABLE events ALTER at TYPE timestamptz"

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text, at timestamp)")
            await use(tenant, value="2026-11-18T12:00:00+05:00")
            if elsewhere:
                schema = await tenant.engine._schema(NAMESPACE, DATABASE)
                with psycopg.connect(administrator(url)) as somebody:
                    somebody.execute(f"SET search_path = {schema}; {change}".encode())
            else:
                await tenant.ask(change)
            for number in range(USES_BEFORE + 3):
                await tenant.ask(INSERT, f"zone{number}", "2026-11-18T12:00:00+05:00", key=f"zone{number}")
            found = await tenant.ask("SELECT DISTINCT at FROM events WHERE id LIKE 'zone%'")
            assert found.rows == [["2026-11-18 07:00:00+00"]]

        play(story, sessions=1)

    @pytest.mark.fault("pg-an-error-of-a-prepared-insert-is-believed")
    def test_a_value_that_fits_only_now_is_taken(self, play: Callable[..., Any]) -> None:
        """
        It would have been refused for the column as it was.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text, at int)")
            await use(tenant, value=7)
            await tenant.ask("ALTER TABLE events ALTER at TYPE text")
            [done] = await asyncio.gather(tenant.ask(INSERT, "now", "seven", key="now"), return_exceptions=True)
            assert isinstance(done, SqlResult)
            assert (await tenant.ask("SELECT at FROM events WHERE id = 'now'")).rows == [["seven"]]

        play(story, sessions=1)

    def test_a_table_that_was_made_anew_is_written_to(self, play: Callable[..., Any]) -> None:
        """
        With a column less, and with it again.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text, at int)")
            await use(tenant, value=7)
            await tenant.batch("DROP TABLE events", "CREATE TABLE events (id text)")
            with pytest.raises(SqlError) as refused:
                await tenant.ask(INSERT, "a", 7, key="less")
            assert refused.value.kind is SqlKind.UNKNOWN_COLUMN
            await tenant.ask("ALTER TABLE events ADD at text")
            await tenant.ask(INSERT, "a", "seven", key="less")
            assert (await tenant.ask("SELECT * FROM events")).rows == [["a", "seven"]]

        play(story, sessions=1)

    @pytest.mark.fault("pg-half-of-a-pair-is-kept")
    def test_what_was_prepared_in_vain_is_not_used(self, play: Callable[..., Any], sent: list[list[bytes]]) -> None:
        """
        The insert was prepared and its check was not, because it failed: later both are prepared anew.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text PRIMARY KEY, at timestamp)")
            await use(tenant, times=USES_BEFORE)
            with pytest.raises(SqlError) as refused:
                await tenant.ask(INSERT, "use0", None, key="again")
            assert refused.value.kind is SqlKind.UNIQUE_VIOLATION
            await tenant.ask("ALTER TABLE events ALTER at TYPE timestamptz")
            for number in range(USES_BEFORE + 3):
                await tenant.ask(INSERT, f"zone{number}", "2026-11-18T12:00:00+05:00", key=f"zone{number}")
            assert all(sent[-1])
            found = await tenant.ask("SELECT DISTINCT at FROM events WHERE id LIKE 'zone%'")
            assert found.rows == [["2026-11-18 07:00:00+00"]]

        play(story, sessions=1)


class TestErrors:
    """A prepared insert fails as its text does."""

    def test_it_leaves_nothing_and_its_key_is_free(self, play: Callable[..., Any]) -> None:
        """
        By its own error, and by a constraint that waits until the end.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE a (id text PRIMARY KEY, n int CHECK (n > 0))")
            await tenant.ask("CREATE TABLE b (id text, n text REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
            into_a, into_b = "INSERT INTO a (id, n) VALUES ($1, $2)", "INSERT INTO b (id, n) VALUES ($1, $2)"
            await use(tenant, into_a, 1)
            await use(tenant, into_b, "use0")
            rows = await tenant.count("a"), await tenant.count("b")
            for sql, value, kind in (
                (into_a, "x", SqlKind.TYPE),
                (into_a, -1, SqlKind.CHECK),
                (into_b, "nobody", SqlKind.FOREIGN_KEY),
            ):
                with pytest.raises(SqlError) as refused:
                    await tenant.ask(sql, "new", value, key="k")
                assert refused.value.kind is kind
            assert (await tenant.count("a"), await tenant.count("b")) == rows
            assert not (await tenant.ask(into_b, "new", "use1", key="k")).replayed

        play(story, sessions=1)

    @pytest.mark.fault("pg-who-waited-for-a-lock-waits-again")
    def test_who_waited_for_a_lock_does_not_wait_again(
        self, play: Callable[..., Any], url: str, sent: list[list[bytes]]
    ) -> None:
        """
        It is told once the lock was waited for.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text PRIMARY KEY, at int)")
            await use(tenant, value=1)
            schema = await tenant.engine._schema(NAMESPACE, DATABASE)
            with psycopg.connect(administrator(url)) as somebody:
                somebody.execute(f"INSERT INTO {schema}.events VALUES ('held', 1)".encode())
                sent.clear()
                [refusal] = await asyncio.gather(tenant.ask(INSERT, "held", 1, key="held"), return_exceptions=True)
                somebody.rollback()
            assert isinstance(refusal, SqlError)
            assert refusal.kind in (SqlKind.LOCKED, SqlKind.TIMEOUT)
            assert len([one for one in sent if len(one) > 1]) == 1
            assert not (await tenant.ask(INSERT, "held", 1, key="held")).replayed

        play(story, sessions=1, limits=Limits(statement_seconds=1.0))

    def test_a_record_that_is_there_is_replayed(self, play: Callable[..., Any], sent: list[list[bytes]]) -> None:
        """
        Another replica has run it; what is prepared stays so.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text PRIMARY KEY, at int)")
            async with PostgresEngine(tenant.engine._url) as other:
                first = await Tenant(other).ask(INSERT, "a", 1, key="k")
            await use(tenant, value=1)
            again = await tenant.ask(INSERT, "a", 1, key="k")
            assert (again.replayed, again.document) == (True, first.document)
            await tenant.ask(INSERT, "b", 1, key="b")
            assert all(sent[-1])

        play(story, sessions=1)


class TestWhichTexts:
    """What may be prepared, and how much of it is kept."""

    @pytest.mark.parametrize(
        ("sql", "target"),
        [
            ("INSERT INTO t (a, b) VALUES ($1, 5), (DEFAULT, NULL)", InsertTarget("t", ("a", "b"))),
            ('INSERT INTO "T""x" ("a""b") VALUES ($1)', InsertTarget('T"x', ('a"b',))),
            ("INSERT INTO t VALUES ($1)", None),
            ("INSERT INTO t (a) VALUES ('now')", None),
            ("INSERT INTO t (a) VALUES ($1::mood)", None),
            ("INSERT INTO t (a[1]) VALUES ($1)", None),
            ("INSERT INTO t (a) VALUES (now())", None),
            ("INSERT INTO t (a) SELECT $1", None),
            ("INSERT INTO t (a) VALUES ($1) RETURNING a", None),
            ("INSERT INTO t (a) VALUES ($1) ON CONFLICT DO NOTHING", None),
            ("UPDATE t SET a = $1", None),
        ],
    )
    @pytest.mark.fault("pg-the-time-of-preparing-is-now")
    def test_only_inserts_of_parameters_and_numbers_into_named_columns(
        self, sql: str, target: InsertTarget | None
    ) -> None:
        """
        A text may say 'now', which is read once, when it is prepared.
        """
        checker = StatementChecker(CatalogNames(frozenset(), frozenset()))

        assert checker.check(sql).target == target

    def test_names_are_quoted(self, play: Callable[..., Any], sent: list[list[bytes]]) -> None:
        """
        Whatever a tenant calls its tables and columns.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask('CREATE TABLE "T""x" ("a""b" text, "select" int)')
            await use(tenant, 'INSERT INTO "T""x" ("a""b", "select") VALUES ($1, $2)', 1)
            assert all(sent[-1])

        play(story, sessions=1)

    @pytest.mark.fault("pg-a-session-prepares-without-end")
    def test_so_much_is_prepared_and_the_rest_is_sent_as_text(
        self, play: Callable[..., Any], sent: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A server process keeps what it has prepared for as long as it lives.
        """
        monkeypatch.setattr(prepared_inserts, "PARTS_MAX", 6)

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE events (id text, at int)")
            prepared = []
            for blanks in (" ", "  ", "   "):
                await use(tenant, INSERT.replace(" ", blanks), 1)
                prepared.append(all(sent[-1]))
            assert prepared == [True, True, False]

        play(story, sessions=1)

    def test_no_more_texts_are_remembered_than_there_is_room_for(self) -> None:
        """
        Those that were used longest ago go first; long ones and those without a target are not remembered.
        """
        inserts = PreparedInserts()
        assert inserts.find("s", b"none", None) is None
        assert inserts.find("s", b"x" * 10_000, TARGET) is None
        for number in range(SEEN_MAX + 10):
            assert inserts.find("s", b"%d" % number, TARGET) is None
        assert len(inserts._seen) == SEEN_MAX
        found = [inserts.find("s", b"%d" % number, TARGET) for _ in range(2) for number in range(20, SEEN_MAX)]
        names = [one.name for one in found if one is not None]
        assert len(set(names)) == len(names) == PARTS_MAX // 2
