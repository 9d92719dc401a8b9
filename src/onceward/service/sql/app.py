"""
SQL over HTTP: `POST /v1/db/{namespace}/{database}/query` and its neighbours.

A namespace is a tenant. Tokens of the test environment see the tenant's test databases, live ones its live databases;
the two are different files. Keys and steps go with the statement into its database, where the record commits together
with what the statement writes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import msgspec
from starlette.applications import Starlette

from onceward._core.durations import SECOND, microseconds
from onceward._core.errors import (
    BalanceExhausted,
    Forbidden,
    InFlight,
    OncewardError,
    OutcomeUnknown,
    QuotaExceeded,
    SealKeyMissing,
)
from onceward._core.keys import ENVIRONMENTS
from onceward.http.server.profile import PROFILES, Profile
from onceward.protocol.errors import DatabaseUnknown, EngineClosed, NameInvalid, SqlError
from onceward.protocol.paths import DATABASES
from onceward.service.access import Role
from onceward.service.sql.database_files import (
    NAME_CHARACTERS_MAX,
    NAME_PATTERN,
    DatabaseName,
    check_name,
    namespace_of,
)
from onceward.service.sql.dialects import SQLITE, SqlDialect
from onceward.service.sql.engine import SqlEngine
from onceward.service.sql.in_flight import RunningKeys
from onceward.service.sql.limit_texts import with_limit
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.metering import Metering, Run, refuse_writes
from onceward.service.sql.requests import Identity, Keyed, SqlBatchResult, SqlResult, SqlStatement, Step
from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import (
    ApiEndpoint,
    EndpointResource,
    EndpointResponse,
    build_application,
    pending_or_refused,
)
from onceward.service.web.service_contract import AppContract

GROUP = "SQL"
PERSQL = PROFILES["persql"]
KEPT: tuple[type[OncewardError], ...] = (NameInvalid, EngineClosed, SqlError)
"""What anything that reaches a database may be refused with."""
RUNS: tuple[type[OncewardError], ...] = (
    *(*KEPT, DatabaseUnknown, OutcomeUnknown, QuotaExceeded, BalanceExhausted),
    SealKeyMissing,
)
"""What a statement may be refused with."""
DATABASES_MAX = 10_000
"""Databases that a tenant may have, unless its quota says otherwise."""


class QueryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One statement."""

    sql: str
    params: list[Any] | dict[str, Any] | None = None
    """A list for `?` (on PostgreSQL also for `$1`), an object for `:name`."""


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Up to 100 statements: one transaction, one key."""

    statements: list[QueryRequest]


class QueryResponse(msgspec.Struct, rename="camel"):
    """What a statement came to."""

    columns: list[str]
    rows: list[list[Any]]
    rows_read: int
    rows_written: int
    last_insert_rowid: Any
    meta: dict[str, Any]


class BatchResponse(msgspec.Struct, rename="camel"):
    """What a batch came to, statement by statement."""

    results: list[QueryResponse]
    rows_written: int
    meta: dict[str, Any]


class ColumnResponse(msgspec.Struct, rename="camel"):
    """A column."""

    name: str
    type: str
    nullable: bool
    primary_key: bool


class TableResponse(msgspec.Struct, rename="camel"):
    """A table or a view."""

    name: str
    kind: str
    columns: list[ColumnResponse]
    rows: int | None
    exact: bool


class TablesResponse(msgspec.Struct, rename="camel"):
    """The tables of a database."""

    tables: list[TableResponse]


class DatabasesResponse(msgspec.Struct, rename="camel"):
    """The databases of a namespace."""

    databases: list[str]


class CreateDatabaseResponse(msgspec.Struct, rename="camel"):
    """What became of a database."""

    namespace: str
    database: str
    created: bool


class DropDatabaseResponse(msgspec.Struct, rename="camel"):
    """What became of a database."""

    namespace: str
    database: str
    dropped: bool


class SqlApp:
    """The endpoints of one engine."""

    def __init__(
        self,
        engine: SqlEngine,
        authenticator: Authenticator,
        *,
        profile: Profile = PROFILES["persql"],
        price: int = 0,
        charge_failed: bool = True,
        databases_max: int = DATABASES_MAX,
        limits: Limits = DEFAULT_LIMITS,
        dialect: SqlDialect = SQLITE,
    ) -> None:
        self._engine = engine
        self._authenticator = authenticator
        self._profile = profile
        self._limits = limits
        """Those of the engine, to be published."""
        self._dialect = dialect
        self._metering = Metering(
            authenticator.access,
            price=price,
            charge_failed=charge_failed,
            databases_max=databases_max,
            writes=dialect.may_write,
        )
        self._running = RunningKeys(microseconds(profile.wait, "wait") / SECOND if profile.in_flight == "wait" else 0.0)

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        path = f"{DATABASES}/{{namespace}}/{{database}}"
        named = {"path.database": {"pattern": NAME_PATTERN, "maxLength": NAME_CHARACTERS_MAX}}
        one = EndpointResource.DATABASE
        runs: dict[str, Any] = {
            "about": one, "keyed": True, "refusals": RUNS, "bounds": {**named, **self._bounds()},
        }  # fmt: skip
        kept: dict[str, Any] = {"about": one, "refusals": KEPT, "bounds": named}
        example = {"sql": "INSERT INTO events (id, name) VALUES (?, ?)", "params": ["e-1", "click"]}
        return [
            ApiEndpoint("POST", f"{path}/query", self.query, "Run one statement, once per key.",
                        QueryResponse, QueryRequest, example=example, **runs),
            ApiEndpoint("POST", f"{path}/batch", self.batch, "Run statements in one transaction, once per key.",
                        BatchResponse, BatchRequest, example={"statements": [example]}, **runs),
            ApiEndpoint("GET", f"{path}/tables", self.tables, "Show the tables of a database.", TablesResponse,
                        about=one, refusals=(*KEPT, DatabaseUnknown), bounds=named),
            ApiEndpoint("GET", f"{DATABASES}/{{namespace}}", self.databases, "Show the databases of a namespace.",
                        DatabasesResponse, about=EndpointResource.DATABASES),
            ApiEndpoint("PUT", path, self.create, "Make a database; sending it again is safe.",
                        CreateDatabaseResponse, role=Role.ADMIN, statuses=(200, 201),
                        about=one, refusals=(*KEPT, QuotaExceeded), bounds=named),
            ApiEndpoint("DELETE", path, self.drop, "Delete a database and the records of its keys.",
                        DropDatabaseResponse, role=Role.ADMIN, **kept),
        ]  # fmt: skip

    def contract(self) -> AppContract:
        """What is published about it."""
        # A record and what its statements wrote commit together, in the tenant's own file or one transaction.
        promised = replace(self._profile, guarantee="atomic", transactional=True)
        return AppContract(GROUP, self.endpoints(), promised, self._dialect.published(self._limits))

    def _bounds(self) -> dict[str, dict[str, Any]]:
        limits = self._limits
        params = [
            {"type": "array", "items": {}, "maxItems": limits.parameters},
            {"type": "object", "maxProperties": limits.parameters},
            {"type": "null"},
        ]
        return {
            "QueryRequest.sql": {"maxLength": limits.sql_bytes},
            "QueryRequest.params": {"anyOf": params},
            "BatchRequest.statements": {"minItems": 1, "maxItems": limits.statements},
        }

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return build_application(self.endpoints(), self._authenticator, profile=self._profile)

    # --- endpoints ---

    async def query(self, call: ApiCall) -> EndpointResponse:
        """One statement."""
        namespace, database = self._database_of(call)
        identity = self._identity(call, database)
        readonly = call.caller.role == Role.READ

        def run(replay_only: bool, growth: int | None) -> Awaitable[SqlResult]:
            return self._engine.query(
                namespace,
                database,
                call.body.sql,
                call.body.params,
                identity=identity,
                readonly=readonly,
                replay_only=replay_only,
                account=call.account,
                growth=growth,
            )

        return await self._once(call, identity, [call.body.sql], run)

    async def batch(self, call: ApiCall) -> EndpointResponse:
        """Several statements."""
        namespace, database = self._database_of(call)
        identity = self._identity(call, database)
        statements = [SqlStatement(one.sql, one.params) for one in call.body.statements]
        readonly = call.caller.role == Role.READ

        def run(replay_only: bool, growth: int | None) -> Awaitable[SqlBatchResult]:
            return self._engine.batch(
                namespace,
                database,
                statements,
                identity=identity,
                readonly=readonly,
                replay_only=replay_only,
                account=call.account,
                growth=growth,
            )

        return await self._once(call, identity, [one.sql for one in statements], run)

    async def tables(self, call: ApiCall) -> EndpointResponse:
        """The tables of a database."""
        namespace, database = self._database_of(call)
        try:
            found = await self._engine.tables(namespace, database, account=call.account)
        except DatabaseUnknown:
            await self._refuse_other_environment(call)
            raise
        shown = [
            TableResponse(one.name, one.kind, [ColumnResponse(*column) for column in one.columns], one.rows, one.exact)
            for one in found
        ]
        return EndpointResponse(TablesResponse(shown))

    async def databases(self, call: ApiCall) -> EndpointResponse:
        """The databases of a namespace."""
        namespace = self._namespace(call)
        allowed = call.caller.databases
        found = [one.database for one in await self._engine.databases(namespace)]
        return EndpointResponse(DatabasesResponse([name for name in found if allowed is None or name in allowed]))

    async def create(self, call: ApiCall) -> EndpointResponse:
        """A new database."""
        namespace, database = self._database_of(call)
        tenant, account = call.caller.tenant, call.account

        async def listed() -> list[DatabaseName]:
            found = [await self._engine.databases(namespace_of(one, tenant)) for one in ENVIRONMENTS]
            return [name for some in found for name in some]

        created = await self._metering.created(
            tenant,
            DatabaseName(namespace, database),
            listed,
            lambda: self._engine.create(namespace, database, account=account),
        )
        return EndpointResponse(
            CreateDatabaseResponse(call.path("namespace"), database, created), 201 if created else 200
        )

    async def drop(self, call: ApiCall) -> EndpointResponse:
        """No more database."""
        namespace, database = self._database_of(call)
        dropped = await self._engine.drop(namespace, database, account=call.account)
        return EndpointResponse(DropDatabaseResponse(call.path("namespace"), database, dropped))

    # --- the tenant, the database, the key, the price ---

    def _namespace(self, call: ApiCall) -> str:
        """The engine's namespace: the caller's own tenant (`EndpointResource` sees to it), in its environment."""
        return namespace_of(call.caller.environment, call.caller.tenant)

    def _database_of(self, call: ApiCall) -> tuple[str, str]:
        database = call.path("database")
        return self._namespace(call), check_name(database, "database")

    def _identity(self, call: ApiCall, database: str) -> Identity | None:
        found = call.identity(self._profile)
        if found is None:
            return None
        scope = call.caller.scope_for(database)
        return Keyed(scope, found.key) if found.plan is None else Step(scope, found.plan, found.key)

    async def _once(self, call: ApiCall, identity: Identity | None, sqls: list[str], run: Run) -> EndpointResponse:
        """Run, or respond as the profile says while the first request with this key runs."""
        # Who may only read is told of nobody else's keys, not even that they are in flight.
        reader = call.caller.role == Role.READ
        held = None if identity is None else (call.caller.environment, call.path("database"), reader, identity)
        try:
            async with self._running.hold(held):
                response = self._respond(await self._within_quota(call, identity, sqls, run), identity)
            if identity is None and all(map(self._dialect.only_reads, sqls)):
                call.note_read()
            return response
        except SqlError as error:
            raise with_limit(error, self._limits) from None
        except InFlight as first:
            return pending_or_refused(first, self._profile)
        except DatabaseUnknown:
            await self._refuse_other_environment(call)
            raise

    def _respond(self, result: SqlResult | SqlBatchResult, identity: Identity | None) -> EndpointResponse:
        # JSON text of a worker's goes on as it is.
        given = msgspec.Raw(result.given) if isinstance(result.given, bytes) else result.given
        if not result.replayed:
            return EndpointResponse(given)
        header = self._profile.plan_replay_header if isinstance(identity, Step) else self._profile.replay_header
        return EndpointResponse(given, headers=((header, "true"),))

    async def _within_quota(self, call: ApiCall, identity: Identity | None, sqls: list[str], run: Run) -> Any:
        """Run within what the tenant may hold and has paid for."""
        if call.caller.role == Role.READ:
            refuse_writes(sqls, batch=isinstance(call.body, BatchRequest))
        return await self._metering.metered(
            call.caller,
            call.usage,
            identity,
            sqls,
            run,
            operation=lambda: self._operation(call, identity),
        )

    async def _operation(self, call: ApiCall, identity: Identity | None) -> str | None:
        """What a charge notes, to find the record by if whoever asks dies."""
        return None if identity is None else await self._engine.operation(*self._database_of(call), identity)

    async def _refuse_other_environment(self, call: ApiCall) -> None:
        """`Forbidden`, if a database that is unknown here is in the tenant's other environment."""
        caller = call.caller
        other = "test" if caller.environment == "live" else "live"
        names = {one.database for one in await self._engine.databases(namespace_of(other, caller.tenant))}
        if call.path("database") in names:
            raise Forbidden(
                f"this is a {caller.environment} token, and the database is {other}; use a {other} token"
            ) from None
