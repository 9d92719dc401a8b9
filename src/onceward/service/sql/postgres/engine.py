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
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, Unpack

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
from onceward._core.operation_flow import peeked_outcome
from onceward._core.record import PutResult, Record, new_tuple
from onceward.gate import AsyncGate
from onceward.protocol.errors import DatabaseUnknown, EngineClosed, SqlError
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.failpoints import armed
from onceward.service.access.accounts import Account
from onceward.service.sql.asked_database import AskedDatabase
from onceward.service.sql.authorizer import readonly_error
from onceward.service.sql.costs import NO_COST, SqlCost, cost_of, note_cost
from onceward.service.sql.database_files import DatabaseName, sibling_namespaces
from onceward.service.sql.key_terms import KeyTerms, key_options
from onceward.service.sql.keyed_scope import CLAIM, NAME
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.moved_keys import replay_or_refuse
from onceward.service.sql.postgres.checked_texts import CheckedTexts
from onceward.service.sql.postgres.keyed_scope import KeyedCall, SchemaKeyedScope
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
    certain_writes,
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
    check_statements,
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
SCOPES_MAX: Final = 1_024
POLL_SECONDS: Final = 0.05
"""Between two looks at a key that another replica is at, and between two tries to reach a server."""
_MAKES_RELATIONS: Final = frozenset(("CREATE", "ALTER"))
_FREES: Final = frozenset(("DELETE", "DROP", "TRUNCATE", "COMMENT"))
"""What makes no database larger: a full one can be made smaller."""
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
        self._milliseconds = round(limits.statement_seconds * 1_000)
        self._in_flight_seconds = limits.queue_seconds if in_flight_seconds is None else in_flight_seconds
        self._relations_max = relations_max
        self._environment = environment
        self._seen = SettledIds()
        self._store = _TenantRecords(url, self._seen, environment)
        self._lock_timeout = self._store.target.lock_timeout
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
        self._scopes: OrderedDict[tuple[str, str], SchemaKeyedScope] = OrderedDict()
        self._reader = ReplayReader(self._pool.open_for_reading)
        self._costs = KnownCosts(limits)
        self._usual_room = SchemaRoom(RELATIONS_MAX, watched=True, database_bytes=limits.database_bytes)
        """Of a request that is looked at only if it turns out to be heavy, and makes no things."""
        self._measured = MeasuredLately(environment.monotonic)
        self._server = UNKNOWN_SERVER
        self._records = ""
        self._version = 0
        """Of the server whose names the checker knows."""
        self._checker: CheckedTexts | None = None
        self._long: LongStatements | None = None
        self._schemas: TenantSchemas | None = None
        self._opening = asyncio.Lock()
        self._tidying: asyncio.Task[None] | None = None
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
        options = new_tuple(_Options, (identity, readonly, False, about, replay_only, growth))
        asked = new_tuple(AskedDatabase, (namespace, database, account))
        document, replayed, cost = await self._answer(asked, ((sql, params),), options)
        return SqlResult(document, replayed, cost)

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
        options = _Options(identity, readonly, True, about, replay_only, growth)
        asked = AskedDatabase(namespace, database, account)
        return SqlBatchResult(*await self._answer(asked, tuple(statements), options))

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
        if self._tidying is not None:
            await asyncio.wait((self._tidying,))
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

    def _lend(self, asked: AskedDatabase) -> AbstractAsyncContextManager[TenantSession]:
        """A session in turn, for whoever pays; for what is quick."""
        return self._pool.lend(asked.tenant, asked.account, self._costs.quick)

    @asynccontextmanager
    async def _timed(self, session: TenantSession) -> AsyncIterator[None]:
        """What the service does for a tenant costs the tenant, too."""
        began = self._environment.monotonic()
        try:
            yield
        finally:
            session.worked += self._environment.monotonic() - began

    # A request.

    def _answer(
        self, asked: AskedDatabase, statements: tuple[Any, ...], options: _Options
    ) -> Coroutine[Any, Any, tuple[dict[str, Any], bool, SqlCost]]:
        """Check a request, to perform it; if it cannot be one here, its key may have come from elsewhere."""
        if self._schemas is None or self._closed:
            return self._answer_when_ready(asked, statements, options)
        values: list[list[bytes | None]] = []

        def checked_as_sent(sql: str, params: Params) -> Any:
            """Parameters as they were sent. Those that PostgreSQL could not take are refused."""
            values.append(_in_postgres_form(numbered(sql), params))
            return as_sent(sql, params)

        try:
            plain = check_statements(statements, self._limits, checked_as_sent, options.batch)
            request = new_tuple(SqlRequest, (plain, *options))
        except SqlError as refusal:
            unchecked = partial(build_request, statements, self._limits, dialect=as_sent, **options._asdict())
            perform = partial(self._perform, asked)
            return replay_or_refuse(refusal, options.identity, unchecked, perform, readonly=options.readonly)
        return self._perform(asked, request, values)

    async def _answer_when_ready(
        self, asked: AskedDatabase, statements: tuple[Any, ...], options: _Options
    ) -> tuple[dict[str, Any], bool, SqlCost]:
        await self._ready()
        return await self._answer(asked, statements, options)

    async def _bound(
        self,
        request: SqlRequest,
        schema: str,
        namespace: str = "",
        converted: Sequence[list[bytes | None]] | None = None,
        *,
        is_slow: bool = False,
    ) -> TenantRequest:
        """The request as it is sent: every statement checked, every value in PostgreSQL's form."""
        bound: list[BoundSql] = []
        reads, adds, grows = True, False, False
        # What is only replayed is not sent, and need not be SQL of PostgreSQL's: its key may have been moved here.
        sent = () if request.replay_only and not request.readonly else request.statements
        for number, (sql, params) in enumerate(sent):
            try:
                template = numbered(sql)
                verb, only_reads, writes, target = self._short(template) or await self._checked(template)
                if request.readonly and not only_reads:
                    raise readonly_error()
                values = converted[number] if converted is not None else _in_postgres_form(template, params)
            except SqlError as error:
                error.statement = number if request.batch else None
                error.began = False
                raise
            reads = reads and only_reads
            makes = verb in _MAKES_RELATIONS
            adds = adds or makes
            grows = grows or verb not in _FREES
            bound.append(new_tuple(BoundSql, (template.sql.encode(), values, makes, writes, target)))
        is_keyed, limit = request.identity is not None, self._milliseconds
        room = self._room(request, schema, namespace if adds else "", watched=grows and not reads)
        only, certain = request.replay_only, certain_writes(bound)
        common = (schema, bound, request.batch, reads and not is_keyed, limit, limit, room, only, is_keyed)
        made: TenantRequest = new_tuple(TenantRequest, (*common, is_slow, certain))
        return made

    def _room(self, request: SqlRequest, schema: str, namespace: str, *, watched: bool) -> SchemaRoom:
        """What a request may add. Its bytes are looked at under a quota; otherwise now and then, and if it is heavy."""
        measured = watched and (request.growth is not None or self._measured.is_due(schema))
        if watched and not measured and not namespace:
            return self._usual_room
        return SchemaRoom(
            things_max=min(self._relations_max, self._server.relations_max(EACH)),
            namespaces=sibling_namespaces(namespace) if namespace else (),
            watched=watched,
            measured=measured,
            growth=request.growth,
            database_bytes=self._limits.database_bytes,
        )

    def _short(self, template: Template) -> CheckedStatement | None:
        """What the parser says of a statement; None if it is too long to be parsed here."""
        if self._checker is None:
            raise EngineClosed
        return self._checker.check(template.sql) if template.is_short else None

    async def _checked(self, template: Template) -> CheckedStatement:
        """The same, in a process of its own."""
        if self._long is None:
            raise EngineClosed
        return await self._long.check(template.sql)

    async def _perform(
        self, asked: AskedDatabase, request: SqlRequest, values: Sequence[list[bytes | None]] | None = None
    ) -> tuple[dict[str, Any], bool, SqlCost]:
        """The document, whether it is a replay, and what it cost. `values` are the parameters in PostgreSQL's form."""
        call = self._call(asked, request)
        if call is not None and call.id in self._seen:
            document = await self._replayed(call, asked.account)
            if document is not None:
                return document, True, SqlCost(REQUEST_SECONDS)
        began = self._environment.monotonic()
        spent, is_repeated = NO_COST, False
        while True:
            try:
                document, replayed, cost = await self._once(asked, request, call, values, is_repeated=is_repeated)
                return document, replayed, cost if spent is NO_COST else spent.plus(cost)
            except _NotRead as unread:
                again = partial(self._perform, asked)
                return await replay_or_refuse(
                    unread.refusal, request.identity, lambda: request, again, readonly=request.readonly
                )
            except SchemaGone:
                call = None  # It was about that schema.
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
                    is_repeated, call = True, None
                    if request.identity is None:
                        raise
                if waited >= self._patience(error):
                    raise
            await self._environment.asleep(POLL_SECONDS)

    def _call(self, asked: AskedDatabase, request: SqlRequest) -> KeyedCall | None:
        """What is known of a request by its key alone; None where the gate has to be asked step by step."""
        identity = request.identity
        schema = None if self._schemas is None else self._schemas.recall(asked.namespace, asked.database)
        if schema is None or type(identity) is not Keyed or self._seal is not None or armed():
            return None
        return self._scope(identity.scope, schema).call(identity.key, request.fingerprint())

    async def _replayed(self, call: KeyedCall, account: Account | None) -> dict[str, Any] | None:
        """The first result of a key that was settled lately, if a quick look finds it; else the usual way says more."""
        if account is not None and account.cpu_wait(REQUEST_SECONDS):
            return None
        seen = await self._reader.read(self._records, call.id)
        outcome = None if seen is None else peeked_outcome(seen, call.fingerprint, None)
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
        self,
        asked: AskedDatabase,
        request: SqlRequest,
        call: KeyedCall | None,
        values: Sequence[list[bytes | None]] | None,
        *,
        is_repeated: bool,
    ) -> tuple[dict[str, Any], bool, SqlCost]:
        tenant = asked.tenant
        text = self._costs.text_of(tenant, request)
        expected = self._costs.expected(text)
        lending = self._pool.lend(tenant, asked.account, expected)
        session = await lending.begin()
        try:
            if session.version != self._version:
                raise _OtherServer
            joined: TenantTransaction | None = None
            try:
                bound = await self._read(session, request, asked, values, is_slow=expected > self._costs.quick)
                joined = TenantTransaction(
                    session, bound, self._records, self._lock_timeout, self._seen, is_repeated=is_repeated
                )
                document = None
                if call is not None and bound.is_foretold and not bound.replay_only:
                    chance = self._environment.random(48)
                    if await joined.settle_at_once(call, chance):
                        self._note_settled(call, chance, joined)
                        document = bound.foretold()
                if document is not None:
                    replayed = False
                else:
                    async with self._sealed(request):
                        document, replayed = await self._in_transaction(request, bound, joined)
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
                cost = self._pool.cost_of(session)
                self._costs.note(text, cost)
            return document, replayed, new_tuple(SqlCost, (cost, joined.grown))
        finally:
            lending.end()

    async def _read(
        self,
        session: TenantSession,
        request: SqlRequest,
        asked: AskedDatabase,
        values: Sequence[list[bytes | None]] | None,
        *,
        is_slow: bool,
    ) -> TenantRequest:
        """The request as it is sent. If it is none of PostgreSQL's, and has a key, that may have been moved here."""
        began = self._environment.monotonic()
        try:
            schema = None
            if self._schemas is not None and not self._closed:
                schema = self._schemas.recall(asked.namespace, asked.database)
            if schema is None:
                schema = await self._found(session, asked)
            return await self._bound(request, schema, asked.namespace, values, is_slow=is_slow)
        except SqlError as refusal:
            if request.identity is None or request.readonly or request.replay_only:
                raise
            raise _NotRead(refusal) from None
        finally:
            session.worked += self._environment.monotonic() - began

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
        gate, fields = self._scope(identity.scope, bound.schema).gate, request.fingerprint_fields()
        if isinstance(identity, Keyed):
            document = await gate.atomic(joined, identity.key, work, request=fields, name=NAME, claim=CLAIM)
        else:
            steps = gate.plan(identity.plan)
            document = await steps.step(identity.step, work, request=fields, name=NAME, connection=joined, claim=CLAIM)
        return document, not joined.settled

    def _note_settled(self, call: KeyedCall, chance: bytes, joined: TenantTransaction) -> None:
        """What has a certain result was run, in one round trip with its record: the gate counts it."""
        if self._main_gate._after(new_tuple(AfterCommit, (call.id, chance[:16], (), True)), joined):
            self._tidy_later()

    def _tidy_later(self) -> None:
        """Purge a little beside the requests: a session of a tenant's is lent, and others wait for it."""
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(self._main_gate._tidy())

    def _scope(self, scope: str, schema: str) -> SchemaKeyedScope:
        """The keys of a scope in a database. A database that is dropped and made again has keys of its own."""
        found = self._scopes.get((scope, schema))
        if found is None:
            found = self._scopes[scope, schema] = SchemaKeyedScope(self._main_gate.scoped(stored_scope(scope, schema)))
            if len(self._scopes) > SCOPES_MAX:
                self._scopes.popitem(last=False)
        else:
            self._scopes.move_to_end((scope, schema))
        return found


class _Options(NamedTuple):
    """What a caller says of a request besides its statements, in the order of `SqlRequest`."""

    identity: Identity | None
    readonly: bool
    batch: bool
    about: Any
    replay_only: bool
    growth: int | None


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


def _in_postgres_form(template: Template, params: Params) -> list[bytes | None]:
    """The values of a statement's placeholders; `SqlError` for those that PostgreSQL could not take."""
    return [to_postgres(value, place) for place, value in enumerate(ordered(template, params), 1)]


def _unknown() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the connection was lost while this write was committed, and it may have been written. Check whether it is; "
        "with an "
        "idempotency key, a write can be sent again safely"
    )
