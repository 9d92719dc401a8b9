"""
The engine: tenants' SQLite databases, written by one process each, read by several, and keys kept in the same file.

    engine.query --> JobQueue --> WorkerSupervisor ---> writer process    one per database, by the hash of its name:
                 |                                                        what has queued up shares one transaction
                 +-> JobQueue --> WorkerSupervisors --> reader processes  statements that only read
                 +-> JobQueue --> WorkerSupervisors --> slow processes    what takes long, of both kinds (`Lanes`)

It is for asyncio, because the service is. `LocalDatabase` is the same without processes, for blocking callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from onceward._core.errors import OncewardError
from onceward.gate import Gate
from onceward.protocol.errors import EngineClosed, SqlError, SqlKind
from onceward.protocol.sql_values import json_text
from onceward.runtime.environment import REAL, Environment
from onceward.service.access.accounts import Account, Resource
from onceward.service.sql.asked_database import AskedDatabase
from onceward.service.sql.costs import NO_COST, SqlCost, cost_of, note_cost
from onceward.service.sql.database_files import DatabaseFolder, DatabaseName
from onceward.service.sql.job_queue import WorkerJob
from onceward.service.sql.key_terms import KeyTerms, key_options
from onceward.service.sql.lanes import Lanes
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.moved_keys import replay_or_refuse
from onceward.service.sql.ran_operations import operation_name
from onceward.service.sql.requests import (
    ColumnInfo,
    Identity,
    Params,
    SqlBatchResult,
    SqlRequest,
    SqlResult,
    SqlStatement,
    TableInfo,
    as_sent,
    build_request,
)
from onceward.service.sql.sqlite_version import check_sqlite_version
from onceward.service.sql.worker_sandbox import AUTO, SandboxOptions, SandboxReport, WorkerSandbox
from onceward.service.sql.worker_supervisor import COMMAND, WorkerSupervisor

WRITERS = 2
READERS = 2
SLOW = 2
"""Processes of each kind: SQLite's work is short, and most of a write is waiting for the disk."""
READ_AT_ONCE_CHARACTERS = 20_000
"""SQL that is read on the event loop's own thread: a few milliseconds' worth."""
CLOSE_SECONDS = 10.0
"""How long closing waits for what is under way."""


class SqlEngine(Protocol):
    """
    What the service needs of an engine, whatever database is behind it.

    `account` pays: places in the line, running statements and processor time are its own, whatever the outcome; None is
    for SQL that is one's own. `growth` is how many bytes the request may add to what its database uses (`SqlError` of
    kind `full` past that, and nothing was written); None is as many as a database may have.
    """

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

    async def tables(self, namespace: str, database: str, *, account: Account | None = None) -> list[TableInfo]:
        """The tables and views of a database, without the service's own."""

    async def create(
        self, namespace: str, database: str, *, account: Account | None = None, growth: int | None = None
    ) -> bool:
        """Make a database; whether it is new."""

    async def drop(self, namespace: str, database: str, *, account: Account | None = None) -> bool:
        """Delete a database and the records of its keys; whether there was one."""

    async def databases(self, namespace: str | None = None) -> list[DatabaseName]:
        """The databases there are."""

    async def operation(self, namespace: str, database: str, identity: Identity) -> str | None:
        """What a charge notes of an operation, to find its record by; None if there can be none."""

    async def close(self) -> None:
        """Take no more work, finish what is under way, and let go of everything."""


class SqliteEngine:
    """
    Tenants' SQLite databases in a folder. `async with SqliteEngine("databases") as engine:`

    `retain`, `tombstone` and `after_expiry` say for how long keys are remembered, as for a `Gate`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        limits: Limits = DEFAULT_LIMITS,
        writers: int = WRITERS,
        readers: int = READERS,
        slow: int = SLOW,
        environment: Environment = REAL,
        worker_command: Sequence[str] = COMMAND,
        sandbox: SandboxOptions = AUTO,
        seal: TenantKeys | None = None,
        sealed_only: bool = False,
        **terms: Unpack[KeyTerms],
    ) -> None:
        options = key_options(terms)
        Gate("memory://", scope="terms", **options).close()  # Refuses here what every request would be refused for.
        check_sqlite_version()
        self._folder = DatabaseFolder(Path(folder))
        held = WorkerSandbox(self._folder.root, sandbox)
        held.prepare()
        self._limits = limits
        self._environment = environment
        self._closed = False
        self._seal, self._sealed_only = seal, sealed_only
        settings = {"limits": limits.document(), "options": options, "sealed": seal is not None}
        self._lanes = lanes = Lanes(limits, environment, writers)
        kinds = [(queue, "writer") for queue in lanes.writes]
        kinds += [(lanes.reads, "reader")] * readers + [(lanes.slow, "slow")] * slow
        self._supervisors = [
            WorkerSupervisor(
                queue, lanes, limits, {**settings, "role": role}, environment, command=worker_command, sandbox=held
            )
            for queue, role in kinds
        ]
        self._tasks: list[asyncio.Task[None]] = []

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
        """
        Run one statement, once per identity; a retry gets the first result.

        With an identity the record of it commits together with what the statement writes, in the same file. The same
        identity again replays; with another statement or other parameters it is `KeyReused`. A statement that fails
        frees the key. `readonly` is for callers who may not write; `about` is compared like the statement; with
        `replay_only` nothing new is run: `NotReplayed`, if there is no first result.
        """
        asked = AskedDatabase(namespace, database, account)
        options = {
            "identity": identity, "readonly": readonly, "about": about, "replay_only": replay_only, "growth": growth,
        }  # fmt: skip
        return SqlResult(*await self._answer(asked, [(sql, params)], options))

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
        asked = AskedDatabase(namespace, database, account)
        options = {
            "identity": identity, "readonly": readonly, "about": about, "replay_only": replay_only, "growth": growth,
            "batch": True,
        }  # fmt: skip
        return SqlBatchResult(*await self._answer(asked, list(statements), options))

    async def tables(self, namespace: str, database: str, *, account: Account | None = None) -> list[TableInfo]:
        """The tables and views of a database, without the service's own; rows are counted up to 10,000."""
        found, _ = await self._ask(AskedDatabase(namespace, database, account), "tables", mode="read")
        return [
            TableInfo(name, kind, [ColumnInfo(*column) for column in columns], rows, exact)
            for name, kind, columns, rows, exact in found
        ]

    async def create(
        self, namespace: str, database: str, *, account: Account | None = None, growth: int | None = None
    ) -> bool:
        """Make a database; whether it is new. Asking again is harmless."""
        made, _ = await self._ask(AskedDatabase(namespace, database, account), "create", growth=growth)
        return bool(made)

    async def drop(self, namespace: str, database: str, *, account: Account | None = None) -> bool:
        """Delete a database, and the records of its keys with it; whether there was one."""
        dropped, _ = await self._ask(AskedDatabase(namespace, database, account), "drop")
        return bool(dropped)

    async def databases(self, namespace: str | None = None) -> list[DatabaseName]:
        """The databases there are, by name."""
        return await asyncio.get_running_loop().run_in_executor(None, self._folder.databases, namespace)

    async def operation(self, namespace: str, database: str, identity: Identity) -> str | None:
        """What a charge notes of an operation, to find its record by."""
        return operation_name(namespace, database, identity)

    async def start(self) -> SandboxReport:
        """
        Start a worker now, and say what holds it in; `ConfigurationError` if that is less than required.

        Without this, workers start with the first request.
        """
        await self._ask(AskedDatabase("onceward", "ping", None), "ping", mode="read")
        return next(one.confined for one in self._supervisors if one.confined is not None)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """
        Take no more work, finish what is under way, and let go of everything.

        What is not done after so many seconds fails: `EngineClosed` if it may be sent again as it is,
        `OutcomeUnknown` for a write without a key that a worker had begun.
        """
        self._closed = True
        waited = 0.0
        queues = self._lanes.queues
        while waited < seconds and (any(map(len, queues)) or any(one.is_busy for one in self._supervisors)):
            await self._environment.asleep(0.01)
            waited += 0.01
        for queue in queues:
            for job in queue.clear():
                job.fail(EngineClosed())
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Where requests go.

    async def _answer(
        self,
        asked: AskedDatabase,
        statements: list[SqlStatement | tuple[str, Params] | str],
        options: dict[str, Any],
    ) -> tuple[bytes, bool, SqlCost]:
        """Check a request and perform it; if it cannot be one here, its key may have come from elsewhere."""
        try:
            if sum(map(_characters, statements)) <= READ_AT_ONCE_CHARACTERS:
                request = build_request(statements, self._limits, **options)
            else:  # In a thread, so that the others are not held up.
                work = partial(build_request, statements, self._limits, **options)
                request = await asyncio.get_running_loop().run_in_executor(None, work)
        except SqlError as refusal:
            unchecked = partial(build_request, statements, self._limits, dialect=as_sent, **options)
            perform = partial(self._perform, asked)
            identity, readonly = options["identity"], options["readonly"]
            return await replay_or_refuse(refusal, identity, unchecked, perform, readonly=readonly)
        return await self._perform(asked, request)

    async def _perform(self, asked: AskedDatabase, request: SqlRequest) -> tuple[bytes, bool, SqlCost]:
        """The document as JSON, whether it is a replay, and what it has cost."""
        tried = NO_COST
        if request.identity is None and (request.readonly or request.reads):
            try:
                done, cost = await self._ask(asked, "group", request, mode="read")
            except SqlError as error:
                # What looks like a read may be none: PRAGMA user_version = 7.
                if error.kind is not SqlKind.READONLY or request.readonly:
                    raise
                tried = cost_of(error)
            else:
                return done.text, done.replayed, cost
        done, cost = await self._ask(asked, "group", request, tried=tried)
        return done.text, done.replayed, cost

    async def _keys_for(self, seal: TenantKeys, request: SqlRequest | None) -> str:
        """What a worker has to know to seal the record of a request, as JSON; nothing if there will be no record."""
        if request is None or request.identity is None:
            return ""
        keys = seal.remembered_keys(request.identity.scope)
        if keys is None:
            loop = asyncio.get_running_loop()
            keys = await loop.run_in_executor(None, seal.keys_for, request.identity.scope)
        return json_text({"keys": list(keys), "only": self._sealed_only})

    async def _ask(
        self,
        asked: AskedDatabase,
        what: str,
        request: SqlRequest | None = None,
        *,
        mode: str = "write",
        growth: int | None = None,
        tried: SqlCost = NO_COST,
    ) -> tuple[Any, SqlCost]:
        """What came of it, and what it has cost; an error carries that, too."""
        path = self._folder.path(asked.namespace, asked.database)
        if self._closed:
            raise EngineClosed
        if not self._tasks:
            self._tasks = [asyncio.create_task(supervisor.run()) for supervisor in self._supervisors]
        seal = "" if self._seal is None else await self._keys_for(self._seal, request)
        job = WorkerJob(
            path,
            what,
            asyncio.get_running_loop().create_future(),
            self._environment.monotonic(),
            request,
            json_text(request) if request is not None else "",
            tenant=asked.tenant,
            account=asked.account,
            mode=mode,
            growth=growth,
            cost=tried,
            seal=seal,
        )
        try:
            with nullcontext() if asked.account is None else asked.account.hold(Resource.WAITING):
                self._lanes.put(job)
                return await job.future, job.cost
        except OncewardError as error:
            note_cost(error, job.cost)
            raise


class TenantKeys(Protocol):
    """Where the keys of a tenant come from, by a scope of the tenant's."""

    def remembered_keys(self, scope: str) -> tuple[str, ...] | None:
        """The keys, if they are at hand."""

    def keys_for(self, scope: str) -> tuple[str, ...]:
        """The keys, asked for if need be. It may block."""


def _characters(statement: SqlStatement | tuple[str, Params] | str) -> int:
    """About how much there is to look at: the statement, and its parameters."""
    if isinstance(statement, str):
        return len(statement)
    sql, params = statement
    values: Iterable[Any] = ()
    if isinstance(params, list | tuple):
        values = params
    elif isinstance(params, Mapping):  # Anything else is refused by `build_request`.
        values = params.values()
    return len(str(sql)) + sum([len(one) if isinstance(one, str | bytes) else 1 for one in values])
