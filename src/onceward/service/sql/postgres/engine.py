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
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, Unpack

from onceward._core.atomic_flow import foretold_write
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
from onceward._core.flow import AfterCommit
from onceward._core.operation_flow import OperationRequest, peeked_outcome
from onceward._core.record import PutResult, Record
from onceward.gate import AsyncGate
from onceward.gate.call_factory import CallSpec, unreachable
from onceward.protocol.errors import DatabaseUnknown, EngineClosed, SqlError
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.failpoints import armed
from onceward.service.access.accounts import Account
from onceward.service.sql.asked_database import AskedDatabase
from onceward.service.sql.authorizer import readonly_error
from onceward.service.sql.costs import NO_COST, SqlCost, cost_of, note_cost
from onceward.service.sql.database_files import DatabaseName, sibling_namespaces
from onceward.service.sql.key_terms import KeyTerms, key_options
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.moved_keys import replay_or_refuse
from onceward.service.sql.postgres.checked_texts import CheckedTexts
from onceward.service.sql.postgres.known_costs import KnownCosts
from onceward.service.sql.postgres.parser_process import LongStatements
from onceward.service.sql.postgres.placeholders import Template, numbered, ordered
from onceward.service.sql.postgres.replay_reader import ReplayReader
from onceward.service.sql.postgres.request_seal import FetchingSeal, RequestSeal
from onceward.service.sql.postgres.schema_inspector import read_tables
from onceward.service.sql.postgres.schema_room import MeasuredLately, SchemaRoom
from onceward.service.sql.postgres.server_report import UNKNOWN_SERVER, read_server
from onceward.service.sql.postgres.session import TenantSession
from onceward.service.sql.postgres.session_pool import REQUEST_SECONDS, SessionPool
from onceward.service.sql.postgres.statement_checker import (
    CATALOG_QUERY,
    CatalogNames,
    CheckedStatement,
    StatementChecker,
    catalog_names,
)
from onceward.service.sql.postgres.tenant_schemas import SCHEMA, TenantSchemas, stored_scope
from onceward.service.sql.postgres.tenant_transaction import (
    BoundSql,
    SchemaGone,
    TenantRequest,
    TenantTransaction,
)
from onceward.service.sql.postgres.values import to_postgres
from onceward.service.sql.ran_operations import operation_name
from onceward.service.sql.requests import (
    Identity,
    Keyed,
    Params,
    SqlBatchResult,
    SqlRequest,
    SqlResult,
    SqlStatement,
    TableInfo,
    as_sent,
    build_request,
)
from onceward.service.sql.worker_errors import NotReplayed
from onceward.service.sql.worker_sandbox import SandboxReport
from onceward.stores._settled_ids import SettledIds
from onceward.stores.postgres import AsyncPostgresStore
from onceward.stores.tables import open_tables

SESSIONS: Final = 16
EACH: Final = 4
"""Sessions of one tenant at once."""
RELATIONS_MAX: Final = 1_000
"""Tables, indexes and the like of one tenant: each needs a place in the server's table of locks when it is used."""
CLOSE_SECONDS: Final = 10.0
"""How long closing waits for what is under way."""
GATES_MAX: Final = 1_024
POLL_SECONDS: Final = 0.05
"""Between two looks at a key that another replica is at, and between two tries to reach a server."""
_MAKES_RELATIONS: Final = frozenset(("CREATE", "ALTER"))
_FREES: Final = frozenset(("DELETE", "DROP", "TRUNCATE", "COMMENT"))
"""What makes no database larger: a full one can be made smaller."""
_NAME: Final = "sql"
_CLAIMS: Final = {"claim": "last"}
_OPERATORS: Final = ""
"""Whose turn it is when the service asks for itself."""


class PostgresEngine:
    """
    Tenants' databases on a PostgreSQL server. `async with PostgresEngine("postgresql://...") as engine:`

    `retain`, `tombstone` and `after_expiry` say for how long keys are remembered, as for a `Gate`. A request waits for
    another one with its key that is under way, here or at another replica, for `in_flight_seconds`.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        sessions: int = SESSIONS,
        relations_max: int = RELATIONS_MAX,
        in_flight_seconds: float | None = None,
        environment: Environment = REAL,
        seal: FetchingSeal | None = None,
        sealed_only: bool = False,
        **terms: Unpack[KeyTerms],
    ) -> None:
        self._url = url
        self._limits = limits
        self._in_flight_seconds = limits.queue_seconds if in_flight_seconds is None else in_flight_seconds
        self._relations_max = relations_max
        self._environment = environment
        self._seen = SettledIds()
        self._store = _TenantRecords(url, self._seen, environment)
        self._pool = SessionPool(self._store.target, limits, environment, size=sessions, each=min(EACH, sessions))
        self._options = {**key_options(terms), "in_flight": "refuse"}
        self._seal = None if seal is None else RequestSeal(seal)
        self._main_gate = AsyncGate(
            self._store,
            scope="sql",
            environment=environment,
            seal=self._seal,
            sealed_only=sealed_only,
            result_bytes_max=limits.value_bytes,
            **self._options,
        )
        self._gates: OrderedDict[tuple[str, str], AsyncGate] = OrderedDict()
        self._reader = ReplayReader(self._pool.open_for_reading)
        self._costs = KnownCosts(limits)
        self._measured = MeasuredLately(environment.monotonic)
        self._server = UNKNOWN_SERVER
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
        options = {"about": about, "replay_only": replay_only, "growth": growth}
        asked = AskedDatabase(namespace, database, account)
        return SqlResult(*await self._answer(asked, [(sql, params)], identity, readonly=readonly, **options))

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
        options = {"about": about, "replay_only": replay_only, "growth": growth, "batch": True}
        asked = AskedDatabase(namespace, database, account)
        return SqlBatchResult(*await self._answer(asked, list(statements), identity, readonly=readonly, **options))

    async def tables(self, namespace: str, database: str, *, account: Account | None = None) -> list[TableInfo]:
        """The tables and views of a database; rows are PostgreSQL's own estimate."""
        asked = AskedDatabase(namespace, database, account)
        async with self._lend(asked) as session:
            found = await read_tables(session, await self._found(session, asked))
            if not found and self._schemas is not None:  # Perhaps another replica has dropped it.
                await self._schemas.find(session, namespace, database)
            return found

    async def create(
        self, namespace: str, database: str, *, account: Account | None = None, growth: int | None = None
    ) -> bool:
        """Make a database; whether it is new."""
        schemas = await self._ready()
        async with self._lend(AskedDatabase(namespace, database, account)) as session, self._timed(session):
            return await schemas.create(session, namespace, database)

    async def drop(self, namespace: str, database: str, *, account: Account | None = None) -> bool:
        """Delete a database, and the records of its keys with it; whether there was one."""
        schemas = await self._ready()
        async with self._lend(AskedDatabase(namespace, database, account)) as session, self._timed(session):
            schema = await schemas.drop(session, namespace, database)
            if schema is not None:
                await schemas.erase_records(session, schema)
            return schema is not None

    async def databases(self, namespace: str | None = None) -> list[DatabaseName]:
        """The databases there are."""
        schemas = await self._ready()
        async with self._pool.lend(namespace or _OPERATORS) as session:
            return await schemas.list(session, namespace)

    async def operation(self, namespace: str, database: str, identity: Identity) -> str | None:
        """What a charge notes of an operation, to find its record by; None if there is no such database."""
        try:
            schema = await self._schema(namespace, database)
        except DatabaseUnknown:
            return None
        return operation_name(namespace, database, identity._replace(scope=stored_scope(identity.scope, schema)))

    async def start(self) -> SandboxReport:
        """Reach the server now, make the tables of ours, and say what holds tenants in; or why it cannot be used."""
        await self._ready()
        return self._server.confined

    async def check(self) -> None:
        """Whether the server answers; an error otherwise. Not on a tenant's session: all of those may be lent."""
        await self._store.load(bytes(32))

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Take no more work, finish what is under way (for so long at most), and let go of every connection."""
        self._closed = True
        self._pool.refuse_waiting()
        until = self._environment.monotonic() + seconds
        while self._pool.is_busy and self._environment.monotonic() < until:
            await self._environment.asleep(0.01)
        self._pool.close()
        self._reader.close()
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
                async with self._pool.lend(_OPERATORS) as session:
                    self._server = await read_server(session, self._store.target.name)
                    catalog, self._version = await _catalog(session), session.version
                driver = await asyncio.to_thread(open_tables, self._url, SCHEMA, self._environment, create=True)
                await asyncio.to_thread(driver.close)
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

    async def _found(self, session: TenantSession, asked: AskedDatabase) -> str:
        schemas = await self._ready()
        known = schemas.recall(asked.namespace, asked.database)
        return known or await schemas.find(session, asked.namespace, asked.database)

    def _lend(
        self, asked: AskedDatabase, request: SqlRequest | None = None
    ) -> AbstractAsyncContextManager[TenantSession]:
        """A session in turn, for whoever pays: so much processor time is set aside as it took the last time."""
        seconds = self._costs.quick if request is None else self._costs.expected(asked.tenant, request)
        return self._pool.lend(asked.tenant, asked.account, seconds)

    @asynccontextmanager
    async def _timed(self, session: TenantSession) -> AsyncIterator[None]:
        """What the service does for a tenant costs the tenant, too."""
        began = self._environment.monotonic()
        try:
            yield
        finally:
            session.worked += self._environment.monotonic() - began

    # A request.

    async def _answer(
        self, asked: AskedDatabase, statements: list[Any], identity: Identity | None, *, readonly: bool, **options: Any
    ) -> tuple[dict[str, Any], bool, SqlCost]:
        """Check a request and perform it; if it cannot be one here, its key may have come from elsewhere."""
        options = {**options, "identity": identity, "readonly": readonly}
        await self._ready()
        try:
            request = build_request(statements, self._limits, dialect=_checked_as_sent, **options)
        except SqlError as refusal:
            unchecked = partial(build_request, statements, self._limits, dialect=as_sent, **options)
            perform = partial(self._perform, asked)
            return await replay_or_refuse(refusal, identity, unchecked, perform, readonly=readonly)
        return await self._perform(asked, request)

    async def _read(self, request: SqlRequest, schema: str, namespace: str) -> TenantRequest:
        """The request as it is sent. If it is none of PostgreSQL's, and has a key, that may have been moved here."""
        try:
            return await self._bound(request, schema, namespace)
        except SqlError as refusal:
            if request.identity is None or request.readonly:
                raise
            raise _NotRead(refusal) from None

    async def _bound(self, request: SqlRequest, schema: str, namespace: str = "") -> TenantRequest:
        """The request as it is sent: every statement checked, every value in PostgreSQL's form."""
        bound, reads, verbs = [], True, set[str]()
        # What is only replayed is not sent, and need not be SQL of PostgreSQL's: its key may have been moved here.
        sent = () if request.replay_only and not request.readonly else request.statements
        for number, (sql, params) in enumerate(sent):
            try:
                template = numbered(sql)
                checked = await self._check(template)
                if request.readonly and not checked.reads:
                    raise readonly_error()
                values = [to_postgres(one, str(place)) for place, one in enumerate(ordered(template, params), 1)]
            except SqlError as error:
                error.statement = number if request.batch else None
                error.began = False
                raise
            reads = reads and checked.reads
            verbs.add(checked.verb)
            bound.append(BoundSql(template.sql.encode(), values, checked.verb in _MAKES_RELATIONS, checked.writes))
        milliseconds = round(self._limits.statement_seconds * 1_000)
        return TenantRequest(
            schema=schema,
            statements=bound,
            batch=request.batch,
            reads=reads and request.identity is None,
            lock_milliseconds=milliseconds,
            statement_milliseconds=milliseconds,
            room=self._room(
                request,
                schema,
                namespace if verbs & _MAKES_RELATIONS else "",
                watched=not reads and not verbs <= _FREES,
            ),
            replay_only=request.replay_only,
            is_keyed=request.identity is not None,
        )

    def _room(self, request: SqlRequest, schema: str, namespace: str, *, watched: bool) -> SchemaRoom:
        """What a request may add. Its bytes are looked at under a quota; otherwise now and then, and if it is heavy."""
        measured = watched and (request.growth is not None or self._measured.is_due(schema))
        return SchemaRoom(
            things_max=min(self._relations_max, self._server.relations_max(EACH)),
            namespaces=sibling_namespaces(namespace) if namespace else (),
            watched=watched,
            measured=measured,
            growth=request.growth,
            database_bytes=self._limits.database_bytes,
        )

    async def _check(self, template: Template) -> CheckedStatement:
        if self._checker is None or self._long is None:
            raise EngineClosed
        return self._checker.check(template.sql) if template.is_short else await self._long.check(template.sql)

    async def _perform(self, asked: AskedDatabase, request: SqlRequest) -> tuple[dict[str, Any], bool, SqlCost]:
        """The document, whether it is a replay, and what it cost."""
        operation = self._operation(asked, request)
        document = None if operation is None else await self._replayed(operation, asked.account)
        if document is not None:
            return document, True, SqlCost(REQUEST_SECONDS)
        began = self._environment.monotonic()
        spent, is_repeated = NO_COST, False
        while True:
            try:
                document, replayed, cost = await self._once(asked, request, operation, is_repeated=is_repeated)
                return document, replayed, spent.plus(cost)
            except _NotRead as unread:
                again = partial(self._perform, asked)
                return await replay_or_refuse(
                    unread.refusal, request.identity, lambda: request, again, readonly=request.readonly
                )
            except SchemaGone:
                operation = None  # It was about that schema.
                if self._schemas is not None:  # Asked again, it says that there is no such database, if there is none.
                    self._schemas.forget(DatabaseName(asked.namespace, asked.database))
            except _OtherServer:
                self._schemas = None
                self._pool.drop_idle()
                await self._ready()
                continue
            except OncewardError as error:
                spent = spent.plus(cost_of(error))
                note_cost(error, spent)
                waited = self._environment.monotonic() - began
                if isinstance(error, StoreUnavailable):
                    self._pool.drop_idle()
                    is_repeated, operation = True, None
                    if request.identity is None:
                        raise
                if waited >= self._patience(error):
                    raise
            await self._environment.asleep(POLL_SECONDS)

    def _operation(self, asked: AskedDatabase, request: SqlRequest) -> OperationRequest | None:
        """What the core is told of a request with a key; None where it has to be asked step by step."""
        identity = request.identity
        schema = None if self._schemas is None else self._schemas.recall(asked.namespace, asked.database)
        if schema is None or type(identity) is not Keyed or self._seal is not None or armed():
            return None
        factory = self._gate(identity.scope, schema)._call_factory
        call = CallSpec(unreachable, request.fingerprint_fields(), _NAME)
        return factory.joined_request((factory.stored_key(identity.key),), call, _CLAIMS, given=identity.key)

    async def _replayed(self, operation: OperationRequest, account: Account | None) -> dict[str, Any] | None:
        """The first result, if the key was settled lately and a quick look finds it; else the usual way says more."""
        claimant = operation.claimant
        if claimant.id not in self._seen or (account is not None and account.cpu_wait(REQUEST_SECONDS)):
            return None
        seen = await self._reader.read(self._records, claimant.id)
        outcome = None if seen is None else peeked_outcome(seen, claimant.fingerprint, None)
        if outcome is None:
            return None
        if account is not None:
            account.spend_cpu(REQUEST_SECONDS)
        document: dict[str, Any] = outcome.value
        return document

    def _patience(self, error: OncewardError) -> float:
        """For how long a request that ended so is tried again."""
        if isinstance(error, InFlight):
            return self._in_flight_seconds
        return self._limits.queue_seconds if isinstance(error, StoreUnavailable | RetryTransaction) else 0.0

    async def _once(
        self, asked: AskedDatabase, request: SqlRequest, operation: OperationRequest | None, *, is_repeated: bool
    ) -> tuple[dict[str, Any], bool, SqlCost]:
        async with self._lend(asked, request) as session:
            if session.version != self._version:
                raise _OtherServer
            joined: TenantTransaction | None = None
            began = self._environment.monotonic()
            try:
                try:
                    bound = await self._read(request, await self._found(session, asked), asked.namespace)
                finally:
                    session.worked += self._environment.monotonic() - began
                if self._costs.expected(asked.tenant, request) > self._costs.quick:
                    bound = bound._replace(is_slow=True)
                joined = TenantTransaction(
                    session, bound, self._records, self._store.target.lock_timeout, self._seen, is_repeated=is_repeated
                )
                async with self._sealed(request):
                    document, replayed = await self._in_transaction(request, bound, joined, operation)
            except OncewardError as error:
                note_cost(error, SqlCost(self._pool.cost_of(session)))
                if joined is not None:
                    await _undo(joined)
                if isinstance(error, StoreUnavailable) and joined and joined.committing and request.identity is None:
                    raise _unknown() from error
                raise
            except _NotRead as unread:
                note_cost(unread.refusal, SqlCost(self._pool.cost_of(session)))
                raise
            finally:
                self._costs.note(asked.tenant, request, self._pool.cost_of(session))
            return document, replayed, SqlCost(self._pool.cost_of(session), joined.grown)

    def _sealed(self, request: SqlRequest) -> AbstractAsyncContextManager[None]:
        """The keys at hand that a record is sealed under."""
        if self._seal is None or request.identity is None:
            return nullcontext()
        return self._seal.fetched(request.identity.scope)

    async def _in_transaction(
        self,
        request: SqlRequest,
        bound: TenantRequest,
        joined: TenantTransaction,
        operation: OperationRequest | None = None,
    ) -> tuple[dict[str, Any], bool]:
        began = self._environment.monotonic()

        def timed(document: dict[str, Any]) -> dict[str, Any]:
            return {**document, "meta": {"durationMs": round((self._environment.monotonic() - began) * 1_000, 3)}}

        async def work() -> dict[str, Any]:
            if request.replay_only:
                raise NotReplayed
            return timed(await joined.work())

        identity = request.identity
        if identity is None:
            if request.replay_only:
                raise NotReplayed
            return timed(await joined.run()), False
        if operation is not None and bound.is_foretold and not request.replay_only:
            document = await self._settled_at_once(operation, bound, joined)
            if document is not None:
                return document, False
        gate, fields = self._gate(identity.scope, bound.schema), request.fingerprint_fields()
        if isinstance(identity, Keyed):
            document = await gate.atomic(joined, identity.key, work, request=fields, name=_NAME, claim="last")
        else:
            steps = gate.plan(identity.plan)
            document = await steps.step(
                identity.step, work, request=fields, name=_NAME, connection=joined, claim="last"
            )
        return document, not joined.settled

    async def _settled_at_once(
        self, operation: OperationRequest, bound: TenantRequest, joined: TenantTransaction
    ) -> dict[str, Any] | None:
        """Run what has a certain result, in one round trip with its record; None if the key was used before."""
        chance = self._environment.random(48)
        if not await joined.settle_at_once(foretold_write(operation, bound.foretold_bytes(), chance)):
            return None
        done = AfterCommit(operation.claimant.id, chance[:16], (), committed=True)
        if self._main_gate._after(done, joined):
            await self._main_gate._tidy()
        return bound.foretold()

    def _gate(self, scope: str, schema: str) -> AsyncGate:
        """The gate of a scope in a database. A database that is dropped and made again has keys of its own."""
        gate = self._gates.get((scope, schema))
        if gate is None:
            gate = self._gates[scope, schema] = self._main_gate.scoped(stored_scope(scope, schema))
            if len(self._gates) > GATES_MAX:
                self._gates.popitem(last=False)
        else:
            self._gates.move_to_end((scope, schema))
        return gate


class _OtherServer(Exception):
    """The server is of another version than the one whose names are known: what was checked is checked anew."""


class _NotRead(Exception):
    """A statement with a key is none that PostgreSQL, or the service, takes."""

    def __init__(self, refusal: SqlError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


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


def _checked_as_sent(sql: str, params: Params) -> Any:
    """Parameters as they were sent. Those that PostgreSQL could not take are refused."""
    for place, value in enumerate(ordered(numbered(sql), params), 1):
        to_postgres(value, str(place))
    return as_sent(sql, params)


def _unknown() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the connection was lost while this write was committed, and it may be written. Look whether it is; with an "
        "idempotency key a write can be sent again safely"
    )
