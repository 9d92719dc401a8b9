"""
The engine on PostgreSQL: tenants' databases as schemas of one server, and keys in the same transactions.

    engine.query --> checked by the parser --> a session in turn --> gate.atomic over a `TenantTransaction`

Several services may stand in front of one server: nothing is kept here but connections and what can be asked again.
When a server is gone in the midst of a request that has a key, the request is sent again, to whichever server takes
writes now: the key decides whether it ran.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, Self, Unpack

from onceward._core.caller_transaction import CallerTransaction
from onceward._core.caller_transaction_async import AsyncCallerTransaction
from onceward._core.capabilities import Capabilities
from onceward._core.errors import (
    ConfigurationError,
    InFlight,
    OncewardError,
    OutcomeUnknown,
    RetryTransaction,
    StoreUnavailable,
)
from onceward._core.record import PutResult, Record
from onceward.gate import AsyncGate
from onceward.protocol.errors import EngineClosed, SqlError
from onceward.runtime.environment import REAL, Environment
from onceward.service.access.accounts import Account
from onceward.service.sql.authorizer import readonly_error
from onceward.service.sql.costs import SqlCost, note_cost
from onceward.service.sql.database_files import DatabaseName
from onceward.service.sql.key_terms import KeyTerms, key_options
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.postgres.checked_texts import CheckedTexts
from onceward.service.sql.postgres.parser_process import LongStatements
from onceward.service.sql.postgres.placeholders import Template, numbered, ordered
from onceward.service.sql.postgres.schema_inspector import read_tables
from onceward.service.sql.postgres.session import TenantSession
from onceward.service.sql.postgres.session_pool import SessionPool
from onceward.service.sql.postgres.statement_checker import (
    CATALOG_QUERY,
    CatalogNames,
    CheckedStatement,
    StatementChecker,
    catalog_names,
)
from onceward.service.sql.postgres.tenant_schemas import SCHEMA, TenantSchemas
from onceward.service.sql.postgres.tenant_transaction import (
    BoundSql,
    SchemaGone,
    TenantRequest,
    TenantTransaction,
)
from onceward.service.sql.postgres.values import to_postgres
from onceward.service.sql.requests import (
    Identity,
    Keyed,
    Params,
    SqlBatchResult,
    SqlRequest,
    SqlResult,
    SqlStatement,
    Step,
    TableInfo,
    build_request,
)
from onceward.service.sql.worker_errors import NotReplayed
from onceward.stores._settled_ids import SettledIds
from onceward.stores.postgres import AsyncPostgresStore
from onceward.stores.tables import open_tables

SESSIONS: Final = 16
EACH: Final = 4
"""Sessions of one tenant at once."""
RELATIONS_MAX: Final = 1_000
"""Tables, indexes and sequences of one database: each needs a place in the server's table of locks when it is used."""
GATES_MAX: Final = 1_024
POLL_SECONDS: Final = 0.05
"""Between two looks at a key that another replica is at, and between two tries to reach a server."""
_MAKES_RELATIONS: Final = frozenset(("CREATE", "ALTER"))
_OPERATORS: Final = ""
"""Whose turn it is when the service asks for itself."""


class PostgresEngine:
    """
    Tenants' databases on a PostgreSQL server. `async with await PostgresEngine.open("postgresql://...") as engine:`

    `retain`, `tombstone` and `after_expiry` say for how long keys are remembered, as for a `Gate`.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        sessions: int = SESSIONS,
        relations_max: int = RELATIONS_MAX,
        environment: Environment = REAL,
        **terms: Unpack[KeyTerms],
    ) -> None:
        self._url = url
        self._limits = limits
        self._relations_max = relations_max
        self._environment = environment
        self._seen = SettledIds()
        self._store = _TenantRecords(url, self._seen, environment)
        self._pool = SessionPool(self._store.target, limits, environment, size=sessions, each=min(EACH, sessions))
        self._options = {**key_options(terms), "in_flight": "refuse"}
        self._main_gate = AsyncGate(
            self._store, scope="sql", environment=environment, result_bytes_max=limits.value_bytes, **self._options
        )
        self._gates: OrderedDict[tuple[str, str], AsyncGate] = OrderedDict()
        self._records = ""
        self._version = 0
        """Of the server whose names the checker knows."""
        self._checker: CheckedTexts | None = None
        self._long: LongStatements | None = None
        self._schemas: TenantSchemas | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def query(
        self,
        namespace: str,
        database: str,
        sql: str,
        params: Params = None,
        *,
        identity: Identity | None = None,
        readonly: bool = False,
        about: Any = None,
        replay_only: bool = False,
        account: Account | None = None,
        growth: int | None = None,
    ) -> SqlResult:
        """Run one statement, once per identity; a retry gets the first result."""
        request = await self._checked(
            [(sql, params)], identity=identity, readonly=readonly, about=about, replay_only=replay_only
        )
        return SqlResult(*await self._perform(namespace, database, request, account))

    async def batch(
        self,
        namespace: str,
        database: str,
        statements: Iterable[SqlStatement | tuple[str, Params] | str],
        *,
        identity: Identity | None = None,
        readonly: bool = False,
        about: Any = None,
        replay_only: bool = False,
        account: Account | None = None,
        growth: int | None = None,
    ) -> SqlBatchResult:
        """Run statements in one transaction, all or none of them, once per identity."""
        request = await self._checked(
            statements, identity=identity, readonly=readonly, batch=True, about=about, replay_only=replay_only
        )
        return SqlBatchResult(*await self._perform(namespace, database, request, account))

    async def tables(self, namespace: str, database: str, *, account: Account | None = None) -> list[TableInfo]:
        """The tables and views of a database; rows are PostgreSQL's own estimate."""
        schema = await self._schema(namespace, database)
        async with self._pool.lend(namespace) as session:
            return await read_tables(session, schema)

    async def create(
        self, namespace: str, database: str, *, account: Account | None = None, growth: int | None = None
    ) -> bool:
        """Make a database; whether it is new."""
        schemas = await self._ready()
        async with self._pool.lend(namespace) as session:
            return await schemas.create(session, namespace, database)

    async def drop(self, namespace: str, database: str, *, account: Account | None = None) -> bool:
        """Delete a database; whether there was one. Its keys are forgotten: one that is made anew has none of them."""
        schemas = await self._ready()
        async with self._pool.lend(namespace) as session:
            return await schemas.drop(session, namespace, database) is not None

    async def databases(self, namespace: str | None = None) -> list[DatabaseName]:
        """The databases there are."""
        schemas = await self._ready()
        async with self._pool.lend(namespace or _OPERATORS) as session:
            return await schemas.list(session, namespace)

    async def close(self) -> None:
        """Take no more work, and let go of every connection."""
        self._closed = True
        self._pool.close()
        await self._main_gate.close()
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    # What is asked of the server once.

    async def _ready(self) -> TenantSchemas:
        """Our tables are there, and the server's own names are known."""
        if self._closed:
            raise EngineClosed
        if self._schemas is not None:
            return self._schemas
        async with self._opening:
            if self._schemas is None:
                self._records = str((await self._store.identify())[-1])
                driver = await asyncio.to_thread(open_tables, self._url, SCHEMA, self._environment, create=True)
                await asyncio.to_thread(driver.close)
                async with self._pool.lend(_OPERATORS) as session:
                    catalog, self._version = await _catalog(session), session.version
                self._checker, self._long = CheckedTexts(StatementChecker(catalog)), LongStatements(catalog)
                self._schemas = TenantSchemas(self._records, self._environment)
        return self._schemas

    async def _schema(self, namespace: str, database: str) -> str:
        schemas = await self._ready()
        known = schemas.recall(namespace, database)
        if known is not None:
            return known
        async with self._pool.lend(namespace) as session:
            return await schemas.find(session, namespace, database)

    # A request.

    async def _checked(self, statements: Iterable[Any], **options: Any) -> SqlRequest:
        await self._ready()
        return build_request(statements, self._limits, dialect=_as_sent, **options)

    async def _bound(self, request: SqlRequest, schema: str) -> TenantRequest:
        """The request as it is sent: every statement checked, every value in PostgreSQL's form."""
        bound, reads = [], True
        for number, (sql, params) in enumerate(request.statements):
            try:
                template = numbered(sql)
                checked = await self._check(template)
                if request.readonly and not checked.reads:
                    raise readonly_error()
                values = [to_postgres(one, str(place)) for place, one in enumerate(ordered(template, params), 1)]
            except SqlError as error:
                error.statement = number if request.batch else None
                raise
            reads = reads and checked.reads
            bound.append(BoundSql(template.sql.encode(), values, checked.verb in _MAKES_RELATIONS, checked.writes))
        milliseconds = round(self._limits.statement_seconds * 1_000)
        return TenantRequest(
            schema=schema,
            statements=bound,
            batch=request.batch,
            reads=request.readonly or (reads and request.identity is None),
            lock_milliseconds=milliseconds,
            statement_milliseconds=milliseconds,
            relations_max=self._relations_max,
            replay_only=request.replay_only,
        )

    async def _check(self, template: Template) -> CheckedStatement:
        if self._checker is None or self._long is None:
            raise EngineClosed
        return self._checker.check(template.sql) if template.is_short else await self._long.check(template.sql)

    async def _perform(
        self, namespace: str, database: str, request: SqlRequest, account: Account | None
    ) -> tuple[dict[str, Any], bool, SqlCost]:
        """The document, whether it is a replay, and what it cost."""
        deadline = self._environment.monotonic() + self._limits.queue_seconds
        is_repeated = False
        while True:
            schema = await self._schema(namespace, database)
            bound = await self._bound(request, schema)
            try:
                return await self._once(namespace, request, bound, account, is_repeated=is_repeated)
            except SchemaGone:
                if self._schemas is not None:
                    self._schemas.forget(DatabaseName(namespace, database))
                await self._schema(namespace, database)  # Says that there is no such database, if there is none.
            except _OtherServer:
                self._schemas = None
                continue
            except StoreUnavailable:
                self._pool.drop_idle()
                is_repeated = True
                if request.identity is None or self._environment.monotonic() >= deadline:
                    raise
            except (RetryTransaction, InFlight):
                if self._environment.monotonic() >= deadline:
                    raise
            await self._environment.asleep(POLL_SECONDS)

    async def _once(
        self,
        namespace: str,
        request: SqlRequest,
        bound: TenantRequest,
        account: Account | None,
        *,
        is_repeated: bool,
    ) -> tuple[dict[str, Any], bool, SqlCost]:
        session = await self._pool.take(namespace)
        try:
            if session.version != self._version:
                raise _OtherServer
            began = self._environment.monotonic()
            joined = TenantTransaction(
                session, bound, self._records, self._store.target.lock_timeout, self._seen, is_repeated=is_repeated
            )
            try:
                document, replayed = await self._in_transaction(request, bound, joined)
            except OncewardError as error:
                note_cost(error, self._paid(account, began))
                await _undo(joined)
                if isinstance(error, StoreUnavailable) and joined.committing and request.identity is None:
                    raise _unknown() from error
                raise
            return document, replayed, self._paid(account, began)
        finally:
            self._pool.give(namespace, session)

    def _paid(self, account: Account | None, began: float) -> SqlCost:
        """The time that a server process was occupied: what the server itself does not tell."""
        seconds = self._environment.monotonic() - began
        if account is not None:
            account.spend_cpu(seconds)
        return SqlCost(seconds)

    async def _in_transaction(
        self, request: SqlRequest, bound: TenantRequest, joined: TenantTransaction
    ) -> tuple[dict[str, Any], bool]:
        began = self._environment.monotonic()

        def timed(document: dict[str, Any], *, is_foretold: bool = False) -> dict[str, Any]:
            milliseconds = None if is_foretold else round((self._environment.monotonic() - began) * 1_000, 3)
            return {**document, "meta": {"durationMs": milliseconds}}

        async def work() -> dict[str, Any]:
            if request.replay_only:
                raise NotReplayed
            is_foretold = joined.is_foretold
            return timed(await joined.work(), is_foretold=is_foretold)

        match request.identity:
            case None:
                if request.replay_only:
                    raise NotReplayed
                return timed(await joined.run()), False
            case Keyed(scope, key):
                document = await self._gate(scope, bound.schema).atomic(
                    joined, key, work, request=request.fingerprint_fields(), name="sql", claim="last"
                )
            case Step(scope, plan, step):
                steps = self._gate(scope, bound.schema).plan(plan)
                document = await steps.step(
                    step, work, request=request.fingerprint_fields(), name="sql", connection=joined, claim="last"
                )
        return document, not joined.settled

    def _gate(self, scope: str, schema: str) -> AsyncGate:
        """The gate of a scope in a database. A database that is dropped and made again has keys of its own."""
        gate = self._gates.get((scope, schema))
        if gate is None:
            gate = self._main_gate.scoped(f"{scope}:{sha256(schema.encode()).hexdigest()[:12]}")
            self._gates[scope, schema] = gate
            if len(self._gates) > GATES_MAX:
                self._gates.popitem(last=False)
        else:
            self._gates.move_to_end((scope, schema))
        return gate


class _OtherServer(Exception):
    """The server is of another version than the one whose names are known: what was checked is checked anew."""


class _TenantRecords(AsyncPostgresStore):
    """The store of the records, which joins tenants' transactions as they come."""

    def __init__(self, url: str, seen: SettledIds, environment: Environment) -> None:
        super().__init__(url, environment=environment)
        self._found = seen

    async def load(self, id: bytes) -> Record | None:
        """Read one record. Whoever is shown it comes again, and is to look before it works."""
        record = await super().load(id)
        self._found.note(id, PutResult(False, record))
        return record

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(awaits=True, joins=_Joiner())


class _Joiner:
    def join(self, connection: Any) -> CallerTransaction:
        raise ConfigurationError("tenants' transactions are for functions that await")

    def join_async(self, connection: Any) -> AsyncCallerTransaction:
        if not isinstance(connection, TenantTransaction):
            raise ConfigurationError("these records commit with a tenant's transaction only")
        return connection


async def _catalog(session: TenantSession) -> CatalogNames:
    cursor = await session.connection.execute(CATALOG_QUERY)
    return catalog_names(await cursor.fetchall())


async def _undo(joined: TenantTransaction) -> None:
    try:
        await joined.rollback()
    except OncewardError:
        return  # The session is closed, and the server undoes it.


def _as_sent(sql: str, params: Params) -> Any:
    """Parameters as a fingerprint sees them: as they were sent. Those that PostgreSQL could not take are refused."""
    for place, value in enumerate(ordered(numbered(sql), params), 1):
        to_postgres(value, str(place))
    return dict(sorted(params.items())) if isinstance(params, Mapping) else list(params or ())


def _unknown() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the connection was lost while this write was committed, and it may be written. Look whether it is; with an "
        "idempotency key a write can be sent again safely"
    )
