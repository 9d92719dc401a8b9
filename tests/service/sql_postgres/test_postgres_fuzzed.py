"""
Statements that nobody has thought of, held against the server itself: what the checker takes stays with its tenant.

    FUZZED=20000 SEED=7 .venv/bin/python -m pytest -q tests/service/sql_postgres/test_postgres_fuzzed.py
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import psycopg
import pytest
from hostile_probes import PROBES
from layers import OTHER, AnyStatement
from statement_grammar import statements
from statement_mutations import mutations
from tenant_support import DATABASE, NAMESPACE, TAKEN, administrator
from test_postgres_sessions import state_of

from onceward._core.errors import OncewardError
from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.placeholders import TOKENS_MAX, Template, numbered
from onceward.service.sql.postgres.preparation import ROLE
from onceward.service.sql.postgres.session import TenantSession
from onceward.service.sql.postgres.statement_checker import STATEMENTS
from onceward.service.sql.postgres.tenant_transaction import SchemaGone, TenantTransaction
from onceward.service.sql.requests import build_request

pytestmark = [pytest.mark.dose(1, of="version"), pytest.mark.slow]

TEXTS = int(os.environ.get("FUZZED", "1500"))
SEED = int(os.environ.get("SEED", "1"))
BRIEF = Limits(statement_seconds=0.5)
CANARY = "canary-5f0e"
SEEDS = [*TAKEN.strip().splitlines(), *(probe.sql for probe in PROBES if probe.after != "bombs")]
REFUSALS = (SqlKind.SYNTAX, SqlKind.DENIED, SqlKind.TOO_LARGE, SqlKind.WRONG_PARAMS)
_NODES = """
A_ArrayExpr A_Const A_Expr A_Indices A_Indirection A_Star Alias AlterEnumStmt AlterSeqStmt AlterTableCmd
AlterTableStmt BitString BoolExpr Boolean BooleanTest CTECycleClause CTESearchClause CaseExpr CaseWhen CoalesceExpr
CollateClause ColumnDef ColumnRef CommentStmt CommonTableExpr CompositeTypeStmt Constraint CreateDomainStmt
CreateEnumStmt CreateSeqStmt CreateStmt CreateTableAsStmt DefElem DeleteStmt DropStmt ExplainStmt Float FuncCall
GroupingFunc GroupingSet IndexElem IndexStmt InferClause InsertStmt Integer IntoClause JoinExpr JsonAggConstructor
JsonArgument JsonArrayAgg JsonArrayConstructor JsonArrayQueryConstructor JsonBehavior JsonFormat JsonFuncExpr
JsonIsPredicate JsonKeyValue JsonObjectAgg JsonObjectConstructor JsonOutput JsonParseExpr JsonScalarExpr
JsonSerializeExpr JsonValueExpr List LockingClause MergeStmt MergeWhenClause MinMaxExpr MultiAssignRef NamedArgExpr
NullTest OnConflictClause ParamRef PartitionBoundSpec PartitionCmd PartitionElem PartitionRangeDatum PartitionSpec
RangeFunction RangeSubselect RangeVar RawStmt RenameStmt ResTarget ReturningClause ReturningOption RowExpr
SQLValueFunction SelectStmt SetToDefault SortBy String SubLink TableLikeClause TruncateStmt TypeCast TypeName
UpdateStmt ViewStmt WindowDef WithClause
"""
NODES = frozenset(_NODES.split())
"""What a tree may have in it, written down a second time: a node that is added to the checker is added here, too."""
ELSEWHERE = """
SELECT space.nspname || '.' || one.relname FROM pg_locks AS held JOIN pg_class AS one ON one.oid = held.relation
JOIN pg_namespace AS space ON space.oid = one.relnamespace
WHERE held.pid = pg_backend_pid() AND space.nspname NOT IN ('{own}', 'pg_catalog', 'pg_toast', 'information_schema')
"""
"""Relations that a transaction has touched: it holds a lock on each until it ends."""
COUNTING = frozenset(
    f"{ROLE}.{one}" for one in ("onceward_databases", "onceward_databases_pkey", "onceward_databases_schema_name_key")
)
"""What the service itself looks at, after a statement that makes tables: how many the tenant may have."""
CATALOGS = {
    "pg_class": "relnamespace", "pg_type": "typnamespace", "pg_proc": "pronamespace", "pg_operator": "oprnamespace",
    "pg_collation": "collnamespace", "pg_constraint": "connamespace", "pg_opclass": "opcnamespace",
    "pg_ts_config": "cfgnamespace", "pg_statistic_ext": "stxnamespace", "pg_conversion": "connamespace",
    "pg_namespace": "oid", "pg_extension": "extnamespace", "pg_default_acl": "defaclnamespace",
}  # fmt: skip
MADE = " UNION ALL ".join(
    f"SELECT '{table}' FROM {table} WHERE xmin = pg_current_xact_id()::xid AND {column} NOT IN "
    "('{own}'::regnamespace, 'pg_toast'::regnamespace)"
    for table, column in CATALOGS.items()
) + " UNION ALL SELECT 'rights of the namespace' FROM pg_namespace WHERE xmin = pg_current_xact_id()::xid"  # fmt: skip
"""Rows of catalogs that a transaction has written, about anything outside of a tenant's schema."""


def tags_of(tree: Any) -> set[str]:
    """Every kind of node in a tree: each name with a capital, wherever it stands."""
    text = json.dumps(tree)
    decoder: set[str] = set()

    def note(pairs: list[tuple[str, Any]]) -> None:
        decoder.update(name for name, _ in pairs if name[:1].isupper())

    json.loads(text, object_pairs_hook=note)
    return decoder


def test_the_list_of_nodes_is_the_checkers() -> None:
    """
    Two lists, kept by hand: whoever opens one has to open the other.
    """
    from onceward.service.sql.postgres.statement_checker import _EXPRESSIONS

    assert frozenset(STATEMENTS) | _EXPRESSIONS == NODES


class Fuzzer:
    """Sends texts as one tenant, with another one beside it."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self.counted: Counter[str] = Counter()
        self.escaped: list[tuple[str, str]] = []
        """What should not have been possible, and the text."""

    async def prepare(self) -> list[str]:
        """Two tenants; the texts."""
        engine = self._engine
        for database in (DATABASE, OTHER):
            await engine.drop(NAMESPACE, database)
            await engine.create(NAMESPACE, database)
        for sql in ("own (id int PRIMARY KEY, text text)", "t (a int, b int, id int)", "e (m text)"):
            await engine.query(NAMESPACE, DATABASE, f"CREATE TABLE {sql}")
        await engine.query(NAMESPACE, DATABASE, "CREATE SEQUENCE s")
        await engine.query(NAMESPACE, DATABASE, "INSERT INTO own SELECT n, 'x' FROM generate_series(1, 5) AS n")
        await engine.query(NAMESPACE, OTHER, "CREATE TABLE secret (text text PRIMARY KEY)")
        await engine.query(NAMESPACE, OTHER, "CREATE SEQUENCE numbers")
        await engine.query(NAMESPACE, OTHER, "INSERT INTO secret VALUES ($1)", [CANARY])
        self.own = await engine._schema(NAMESPACE, DATABASE)
        names = {"other": await engine._schema(NAMESPACE, OTHER), "records": ROLE, "own": self.own}
        grown = list(islice(statements(SEED), TEXTS))
        texts = [*grown, *islice(mutations([*SEEDS, *grown[: len(SEEDS)]], SEED), TEXTS)]
        for name, value in names.items():
            texts = [text.replace(f"{{{name}}}", value) for text in texts]
        return texts

    def taken(self, checker: Any, sql: str) -> Template | None:
        """The statement, if the checker takes it. Whatever it raises but a refusal is an error of its own."""
        try:
            template = numbered(sql)
            if not template.is_short:
                self.counted["long"] += 1
                return None
            checker.check(template.sql)
        except SqlError as refused:
            assert refused.kind in REFUSALS, sql
            self.counted[str(refused.kind)] += 1
            return None
        self.counted["taken"] += 1
        return template

    async def run(self, sql: str, template: Template) -> None:
        """Run what was taken, look at what it has touched, and undo it."""
        engine = self._engine
        params: Any = dict.fromkeys(template.names) if template.names else [None] * template.parameters
        request = build_request([(sql, params)], BRIEF, dialect=lambda _sql, given: given)
        bound = await engine._bound(request, self.own)
        async with engine._pool.lend(NAMESPACE) as session:
            joined = TenantTransaction(session, bound, engine._records, engine._store.target.lock_timeout, engine._seen)
            try:
                document = await joined.work()
            except (OncewardError, SchemaGone) as error:
                self.counted["failed"] += 1
                self._note(sql, "an error tells", CANARY in str(error))
            else:
                self.counted["ran"] += 1
                self._note(sql, "a result tells", CANARY in json.dumps(document, default=str))
                makes = any(one.makes_relations for one in bound.statements)
                await self._look(session, sql, COUNTING if makes else frozenset())
            if not session.spoilt:
                await joined.rollback()

    async def _look(self, session: TenantSession, sql: str, ours: frozenset[str]) -> None:
        for what, question in (("touches", ELSEWHERE), ("writes", MADE)):
            cursor = await session.connection.execute(question.replace("{own}", self.own).encode(), prepare=False)
            for (name,) in await cursor.fetchall():
                self._note(sql, f"{what} {name}", name not in ours)

    def _note(self, sql: str, what: str, is_so: bool) -> None:
        if is_so:
            self.escaped.append((what, sql))


def fuzzing(url: str, story: Any, *, grants: bool) -> Any:
    """Tell a story to a fuzzer; without grants, to one whose tenant may do everything that the parser lets through."""

    async def run() -> Any:
        async with PostgresEngine(url, limits=BRIEF, sessions=1) as engine:
            fuzzer = Fuzzer(engine)
            texts = await fuzzer.prepare()
            with psycopg.connect(administrator(url), autocommit=True) as connection:
                if not grants:
                    connection.execute(f"ALTER ROLE {fuzzer.own} SUPERUSER".encode())
                try:
                    return await story(fuzzer, engine, texts)
                finally:
                    connection.execute(f"ALTER ROLE {fuzzer.own} NOSUPERUSER".encode())

    return asyncio.run(run())


class TestMutations:
    """Texts from a seed."""

    @pytest.mark.fault("pg-a-node-is-not-looked-at")
    @pytest.mark.fault("pg-any-schema-may-be-named")
    @pytest.mark.parametrize("grants", [True, False])
    def test_what_is_taken_stays_with_its_tenant(self, url: str, grants: bool) -> None:
        """
        No text makes the checker fail, nothing that it does not know is taken, and what it takes touches no relation,
        writes no catalog and tells no row outside of the tenant's own schema; the session is as it was.

        Also by the parser alone, where the tenant's role may do everything; but for names inside of texts.
        """

        async def story(fuzzer: Fuzzer, engine: PostgresEngine, texts: list[str]) -> None:
            assert engine._checker is not None
            checker: Any = engine._checker.checker
            before = (await state_of(engine._pool._idle[0])).kept
            for sql in texts:
                template = fuzzer.taken(checker, sql)
                if template is None:
                    continue
                unknown = tags_of(checker._parser.parse(template.sql)) - NODES
                assert unknown == set(), sql
                await fuzzer.run(sql, template)
                if engine._pool._idle:
                    assert (await state_of(engine._pool._idle[0])).kept == before, sql
            assert [one for one in fuzzer.escaped if grants or not one[0].endswith(".numbers")] == []
            # Most of it means something: enough is taken, enough of that runs, and enough is refused for a reason.
            assert fuzzer.counted["taken"] > TEXTS // 50, fuzzer.counted
            assert fuzzer.counted["ran"] > TEXTS // 100, fuzzer.counted
            assert fuzzer.counted[str(SqlKind.DENIED)] > TEXTS // 50, fuzzer.counted
            assert (await engine.query(NAMESPACE, OTHER, "SELECT text FROM secret")).rows == [[CANARY]]

        fuzzing(url, story, grants=grants)

    def test_the_same_seed_gives_the_same_texts(self) -> None:
        """
        And another one others.
        """
        first, again, other = (list(islice(mutations(SEEDS, seed), 200)) for seed in (1, 1, 2))
        assert first == again
        assert first != other
        assert len(set(first)) > 150


DEEP: dict[str, Callable[[int], str]] = {
    "sums": lambda n: "SELECT " + "1+" * n + "1",
    "negations": lambda n: "SELECT " + "NOT " * n + "true",
    "signs": lambda n: "SELECT " + "- " * n + "1",
    "casts": lambda n: "SELECT 1" + "::text" * n,
    "elements": lambda n: "SELECT x" + "[1]" * n,
    "attributes": lambda n: "SELECT (x)" + ".a" * n,
    "unions": lambda n: "SELECT 1" + " UNION SELECT 1" * n,
    "joins": lambda n: "SELECT 1 FROM t" + " NATURAL JOIN t" * n,
    "cases": lambda n: "SELECT " + "CASE WHEN a THEN " * n + "1" + " END" * n,
    "collations": lambda n: "SELECT a" + ' COLLATE "C"' * n,
    "zones": lambda n: "SELECT a" + " AT TIME ZONE 'x'" * n,
    "tests": lambda n: "SELECT a" + " IS NULL" * n,
    "texts": lambda n: "SELECT " + "a||" * n + "b",
    "subqueries": lambda n: "SELECT " + "(SELECT " * n + "1" + ")" * n,
    "queries with names": lambda n: "WITH a AS (" * n + "SELECT 1" + ") SELECT 1" * n,
    "calls": lambda n: "SELECT " + "abs(" * n + "1" + ")" * n,
    "arrays": lambda n: "SELECT " + "ARRAY[" * n + "1" + "]" * n,
}
"""Texts whose tree is as deep as they are long."""
_CHECK = """
import json, sys
from onceward.protocol.errors import SqlError
from onceward.service.sql.postgres.statement_checker import *
names = [*(("function", one) for one in FUNCTIONS_EVERYWHERE), *(("type", one) for one in TYPES_EVERYWHERE)]
checker = StatementChecker(catalog_names(names))
for sql in json.load(sys.stdin):
    try:
        checker.check(sql)
    except SqlError as refused:
        assert "deep" in str(refused), refused
print("alive")
"""


def longest(make: Callable[[int], str], fits: Callable[[str], bool]) -> str:
    """The longest of these texts that fits."""
    low, high = 1, 2 * TOKENS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(make(middle)) else (low, middle - 1)
    return make(low)


class TestCaps:
    """A parser takes stack for every level of a tree."""

    @pytest.mark.fault("pg-short-is-too-long")
    def test_what_is_checked_here_is_survived_on_a_small_stack(self) -> None:
        """
        The longest texts that count as short, each kind of depth: by a process whose stack is an eighth of the usual.
        """

        def is_short(sql: str) -> bool:
            try:
                return numbered(sql).is_short
            except SqlError:
                return False

        texts = [longest(make, is_short) for make in DEEP.values()]
        command = ["sh", "-c", 'ulimit -s 1024 && exec "$@"', "sh", sys.executable, "-c", _CHECK]
        ran = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, timeout=300, check=False)
        assert (ran.returncode, ran.stdout.strip()) == (0, "alive"), ran.stderr[-500:]

    def test_nothing_beyond_the_caps_is_parsed_at_all(self) -> None:
        """
        Words and parentheses are counted first, whatever they are in.
        """
        for make in DEEP.values():
            with pytest.raises(SqlError) as refused:
                numbered(make(TOKENS_MAX))
            assert refused.value.kind is SqlKind.TOO_LARGE


class TestTheChecksThemselves:
    """Without the parser things get out, and the fuzzer sees them."""

    @pytest.mark.parametrize(
        ("sql", "what"),
        [
            ("SELECT text FROM {other}.secret", ["a", "touches"]),
            ("SELECT text::int FROM {other}.secret", ["an"]),
            ("CREATE TABLE {other}.mine (a int)", ["touches", "writes"]),
            ("CREATE SCHEMA x", ["writes"]),
            ("CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", ["writes"]),
            ("SELECT nextval('{other}.numbers')", ["touches"]),
        ],
    )
    def test_what_gets_out_is_seen(self, url: str, sql: str, what: list[str]) -> None:
        """
        With the rights of a superuser, so that nothing else stops it: by its rows, its errors, its locks, its writes.
        """

        async def story(fuzzer: Fuzzer, engine: PostgresEngine, texts: list[str]) -> None:
            engine._checker = AnyStatement()  # type: ignore[assignment]
            text = sql.replace("{other}", await engine._schema(NAMESPACE, OTHER))
            await fuzzer.run(text, numbered(text))
            seen = {one.partition(" ")[0] for one, _ in fuzzer.escaped}
            assert seen >= set(what)

        fuzzing(url, story, grants=False)
