"""What a tenant may write on PostgreSQL: statements, placeholders, values, errors; and texts that are too much."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layers import SHORT
from tenant_support import DATABASE, NAMESPACE, TAKEN, Tenant, administrator

from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.postgres.allowed_names import FUNCTIONS, TYPES, VIEWS, VOLATILE
from onceward.service.sql.postgres.placeholders import numbered, ordered
from onceward.service.sql.postgres.statement_checker import (
    _OF_ROWS,
    CATALOG_QUERY,
    FUNCTIONS_EVERYWHERE,
    TYPES_EVERYWHERE,
    StatementChecker,
    catalog_names,
)

pytestmark = pytest.mark.dose(1, of="version")


@pytest.fixture
def checker(url: str) -> StatementChecker:
    """The checker for a server's own names."""
    with psycopg.connect(administrator(url)) as connection:
        return StatementChecker(catalog_names(connection.execute(CATALOG_QUERY).fetchall()))


class TestAllowList:
    """What is on it, and what the server has."""

    def test_usual_statements_are_taken(self, checker: StatementChecker) -> None:
        """
        Each is one statement, of a known verb.
        """
        for sql in TAKEN.strip().splitlines():
            assert checker.check(sql).verb == {"VALUES": "SELECT", "WITH": "SELECT"}.get(sql.split()[0], sql.split()[0])

    def test_who_writes_is_told_from_who_reads(self, checker: StatementChecker) -> None:
        """
        Also inside WITH and behind EXPLAIN, and where a sequence moves.
        """
        for sql in (
            "WITH a AS (DELETE FROM t RETURNING 1) SELECT * FROM a",
            "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
            "SELECT nextval('s')",
            "SELECT 1 FROM t FOR SHARE",
        ):
            assert not checker.check(sql).reads
        assert checker.check("WITH a AS (SELECT 1) SELECT * FROM a").reads

    def test_the_list_is_of_functions_that_the_server_has_and_that_change_nothing(self, url: str) -> None:
        """
        "The function allow-list is kept by hand and compared per version"
        """
        with psycopg.connect(administrator(url)) as connection:
            rows = connection.execute(
                "SELECT proname, provolatile, prokind, prorettype::regtype::text FROM pg_proc "
                "WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (%s)",
                [sorted(FUNCTIONS)],
            ).fetchall()
            newest = connection.info.server_version >= 180_000
            views = connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'information_schema'::regnamespace"
            ).fetchall()
        assert {name for name, volatility, _, _ in rows if volatility == "v"} <= VOLATILE
        assert not [row for row in rows if row[2] == "p" or row[3] in ("internal", "trigger", "event_trigger")]
        assert not newest or {name for name, *_ in rows} == FUNCTIONS
        assert {name for (name,) in views} >= VIEWS
        assert not [name for name in FUNCTIONS if name.startswith(("pg_", "lo_", "has_")) and name != "pg_typeof"]
        assert not [name for name in TYPES if name.startswith("reg") and name != "regconfig"]

    def test_functions_of_a_whole_row_are_known(self, url: str) -> None:
        """
        `row.function` calls one; every such function is on the list, begins with pg_, or is refused by name.
        """
        with psycopg.connect(administrator(url)) as connection:
            rows = connection.execute(
                "SELECT DISTINCT proname FROM pg_proc JOIN pg_type ON pg_type.oid = proargtypes[0] "
                "WHERE pronamespace = 'pg_catalog'::regnamespace AND pronargs - pronargdefaults <= 1 AND typname IN "
                "('record', 'any', 'anyelement', 'anynonarray', 'anycompatible', 'anycompatiblenonarray')"
            ).fetchall()
        unknown = {name for (name,) in rows if not name.startswith("pg_")} - FUNCTIONS - _OF_ROWS
        assert unknown == set()

    def test_a_catalog_that_was_not_understood_is_refused(self) -> None:
        """
        With no names of the server's, `(x).pg_sleep` would be a column.
        """
        with pytest.raises(Exception, match="catalog"):
            catalog_names([("function", "now"), ("type", "text")])

    @given(st.text(max_size=60))
    def test_whatever_is_sent_is_checked_or_refused(self, text: str) -> None:
        """
        No text makes the checker fail in any other way.
        """
        names = catalog_names(
            [*(("function", one) for one in FUNCTIONS_EVERYWHERE), *(("type", one) for one in TYPES_EVERYWHERE)]
        )
        try:
            StatementChecker(names).check(numbered(text).sql)
        except SqlError as refused:
            assert refused.kind in (SqlKind.SYNTAX, SqlKind.DENIED, SqlKind.TOO_LARGE, SqlKind.WRONG_PARAMS)


class TestLongTexts:
    """Texts that a parser may not survive."""

    @pytest.mark.fault("pg-long-texts-are-parsed-here")
    def test_a_long_text_is_checked_in_another_process(
        self, play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        It is taken or refused there by the same rules, and this process never parses it.
        """
        lengths: list[int] = []
        check = StatementChecker.check
        monkeypatch.setattr(
            StatementChecker, "check", lambda checker, sql: lengths.append(len(sql)) or check(checker, sql)
        )

        async def story(tenant: Tenant) -> None:
            rows = ", ".join(f"({n}, 'x')" for n in range(1_500))
            assert (await tenant.ask(f"SELECT count(*) FROM (VALUES {rows}) AS v (a, b)")).rows == [[1_500]]
            with pytest.raises(SqlError, match="pg_sleep"):
                await tenant.ask(f"SELECT pg_sleep(1), count(*) FROM (VALUES {rows}) AS v (a, b)")
            for deep in (
                "SELECT " + "1+" * 9_000 + "1",
                "SELECT " + "NOT " * 9_000 + "true",
                "SELECT " + "- " * 9_000 + "1",
            ):
                with suppress(SqlError):  # PostgreSQL may take it or not; this process has to live.
                    await tenant.ask(deep)
            with pytest.raises(SqlError, match="words"):
                await tenant.ask("SELECT " + "1," * 20_000 + "1")
            with pytest.raises(SqlError, match="deep"):
                await tenant.ask("SELECT " + "(" * 300 + "1" + ")" * 300)

        play(story)
        assert lengths == []  # None of them was short.


class TestPlaceholders:
    """Three ways to write them."""

    def test_each_kind_becomes_postgresqls_own(self) -> None:
        """
        Not inside texts, names and comments; `??` is the operator.
        """
        found = numbered("SELECT ?, '?', \"?\", $$ ? $$, a ?? 'b', j ??| x -- ?\n WHERE y = ?")
        assert found.sql == "SELECT $1, '?', \"?\", $$ ? $$, a ? 'b', j ?| x -- ?\n WHERE y = $2"
        assert ordered(found, ["a", "b"]) == ["a", "b"]
        named = numbered("SELECT :b, :a, :b::text, ':c'")
        assert named.sql == "SELECT $1, $2, $1::text, ':c'"
        assert ordered(named, {"a": 1, "b": 2}) == [2, 1]
        assert numbered("SELECT $2, $1").parameters == 2

    def test_what_does_not_fit_is_refused(self) -> None:
        """
        Before anything is sent.
        """
        for sql, params in (
            ("SELECT ?", []),
            ("SELECT ?", [1, 2]),
            ("SELECT ?", {"a": 1}),
            ("SELECT :a", [1]),
            ("SELECT :a", {"b": 1}),
            ("SELECT $1, ?", [1]),
            ("SELECT $3", [1]),
        ):
            with pytest.raises(SqlError) as refused:
                ordered(numbered(sql), params)
            assert refused.value.kind is SqlKind.WRONG_PARAMS


class TestValues:
    """To PostgreSQL and back."""

    @pytest.mark.parametrize(
        ("type", "value", "shown"),
        [
            ("integer", 7, 7),
            ("bigint", 9_007_199_254_740_993, {"integer": "9007199254740993"}),
            ("bigint", {"integer": "-9223372036854775808"}, {"integer": "-9223372036854775808"}),
            ("numeric", "12345678901234567890.12345678901234567890", "12345678901234567890.12345678901234567890"),
            ("double precision", 0.1, 0.1),
            ("double precision", "NaN", "NaN"),
            ("boolean", True, True),
            ("text", 'it\'s \\ "x" é', 'it\'s \\ "x" é'),
            ("text", None, None),
            ("bytea", {"base64": "3q2+7w=="}, {"base64": "3q2+7w=="}),
            ("jsonb", {"json": {"a": [1, None, "x"]}}, {"json": {"a": [1, None, "x"]}}),
            ("timestamptz", "2026-11-17T12:00:00+01:00", "2026-11-17 11:00:00+00"),
            ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            ("text[]", {"array": ["a", 'b "c" \\', None]}, '{a,"b \\"c\\" \\\\",NULL}'),
            ("int[]", {"array": [[1, 2], [3, 4]]}, "{{1,2},{3,4}}"),
            ("interval", "1 day 2 hours", "1 day 02:00:00"),
        ],
    )
    def test_a_value_comes_back_as_it_was(self, play: Callable[..., Any], type: str, value: Any, shown: Any) -> None:
        """
        Without losing a digit.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(f"CREATE TABLE t (v {type})")
            await tenant.ask("INSERT INTO t VALUES ($1)", value)
            assert (await tenant.ask("SELECT v FROM t")).rows == [[shown]]

        play(story)

    def test_values_that_have_no_place_are_refused(self, play: Callable[..., Any]) -> None:
        """
        With the form that they should have.
        """

        async def story(tenant: Tenant) -> None:
            for value in ({"a": 1}, [1], float("inf"), "a\0b", "\ud800", {"base64": "?"}, {"array": [[[[[[[1]]]]]]]}):
                with pytest.raises(SqlError) as refused:
                    await tenant.ask("SELECT $1::text", value)
                assert refused.value.kind is SqlKind.TYPE

        play(story)


class TestErrors:
    """Errors of PostgreSQL's, as the kinds that callers know."""

    @pytest.mark.parametrize(
        ("sql", "kind"),
        [
            ("INSERT INTO t VALUES (1, 1)", SqlKind.UNIQUE_VIOLATION),
            ("INSERT INTO t VALUES (NULL, 1)", SqlKind.NOT_NULL),
            ("INSERT INTO t VALUES (2, -1)", SqlKind.CHECK),
            ("INSERT INTO r VALUES (99)", SqlKind.FOREIGN_KEY),
            ("SELECT * FROM nothing", SqlKind.UNKNOWN_TABLE),
            ("SELECT nothing FROM t", SqlKind.UNKNOWN_COLUMN),
            ("SELEC 1", SqlKind.SYNTAX),
            ("SELECT 'a'::int", SqlKind.TYPE),
            ("SELECT 1 + 'a'::text", SqlKind.TYPE),
            ("SELECT generate_series(1, 20000)", SqlKind.TOO_LARGE),
            ("SELECT count(*) FROM t a, t b, generate_series(1, 100000000000) c", SqlKind.TIMEOUT),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", SqlKind.DENIED),
        ],
    )
    def test_an_error_has_its_kind(self, play: Callable[..., Any], sql: str, kind: SqlKind) -> None:
        """
        And nothing of the request was written.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE t (id int PRIMARY KEY, n int CHECK (n >= 0))")
            await tenant.ask("CREATE TABLE r (id int REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)")
            await tenant.ask("INSERT INTO t VALUES (1, 1)")
            with pytest.raises(SqlError) as refused:
                await tenant.batch("INSERT INTO t VALUES (50, 50)", sql)
            assert refused.value.kind in (kind, SqlKind.TOO_LARGE if kind is SqlKind.TIMEOUT else kind)
            assert await tenant.count("t") == 1
            assert await tenant.count("r") == 0

        play(story, limits=SHORT)

    def test_whoever_may_only_read_writes_nothing(self, play: Callable[..., Any]) -> None:
        """
        By the parser, and by the transaction, which is read-only.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask("CREATE TABLE t (id int)")
            for sql in ("INSERT INTO t VALUES (1)", "WITH a AS (DELETE FROM t RETURNING 1) SELECT 1 FROM a"):
                with pytest.raises(SqlError) as refused:
                    await tenant.ask(sql, readonly=True)
                assert refused.value.kind is SqlKind.READONLY
            assert (await tenant.ask("SELECT count(*) FROM t", readonly=True)).rows == [[0]]

        play(story)

    @pytest.mark.fault("pg-only-one-database-is-counted")
    def test_a_tenant_has_only_so_many_tables(self, play: Callable[..., Any]) -> None:
        """
        In all its databases and both environments: each needs a place in the server's table of locks, which everybody
        shares. Types take room in its catalog, and count, too.
        """

        async def story(tenant: Tenant) -> None:
            engine = tenant.engine
            for name in [one for one in await engine.databases() if one.namespace.endswith("-acme")]:
                await engine.drop(*name)
            for namespace in (NAMESPACE, "test-acme", "live-others"):
                await engine.create(namespace, DATABASE)
            await tenant.batch("CREATE TABLE a (id int)", "CREATE TABLE b (id int)")
            for refused_sql in ("CREATE TABLE c (id int PRIMARY KEY)", "CREATE TYPE t AS (a int, b int)"):
                with pytest.raises(SqlError) as refused:
                    await engine.batch("test-acme", DATABASE, ["CREATE TABLE d (id int)", refused_sql])
                assert refused.value.kind is SqlKind.FULL
            await engine.query("test-acme", DATABASE, "CREATE TABLE d (id int)")
            with pytest.raises(SqlError):
                await tenant.ask("CREATE INDEX ON a (id)")
            await engine.batch("live-others", DATABASE, ["CREATE TABLE a (id int)", "CREATE TABLE b (id int)"])
            assert [one.name for one in await engine.tables(NAMESPACE, DATABASE)] == ["a", "b"]
            await engine.drop("live-others", DATABASE)

        play(story, relations_max=3)
