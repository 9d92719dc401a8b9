"""The four layers that keep tenants apart, each of which a test can take away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from hostile_probes import Probe
from psycopg.pq import ExecStatus
from tenant_support import DATABASE, NAMESPACE

from onceward._core.errors import OncewardError
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.preparation import ROLE
from onceward.service.sql.postgres.session import Answer, PipelineStep, RowCounter, TenantSession
from onceward.service.sql.postgres.statement_checker import CheckedStatement
from onceward.service.sql.postgres.tenant_transaction import SchemaGone, TenantTransaction
from onceward.service.sql.requests import build_request

OTHER = "other"
SHORT = Limits(statement_seconds=1.0)
"""A deadline that a bomb reaches soon."""


class Layers(NamedTuple):
    """Which of the layers are there."""

    grants: bool = True
    parser: bool = True
    protocol: bool = True
    limits: bool = True


class AnyStatement:
    """No parser: whatever is sent is taken."""

    def check(self, sql: str) -> CheckedStatement:
        return CheckedStatement(sql.split(maxsplit=1)[0].upper(), reads=False)


class _SimpleSession(TenantSession):
    """The protocol in which a text may be several statements."""

    async def exchange(
        self,
        steps: Sequence[PipelineStep],
        *,
        counted: range = range(0),
        counter: RowCounter | None = None,
        commits: bool = False,
    ) -> list[Answer]:
        if not any(not step.name and number in counted for number, step in enumerate(steps)):
            return await super().exchange(steps, counted=counted, counter=counter, commits=commits)
        answers = [Answer() for _ in steps]
        # Without a pipeline, what stands before BEGIN would be a transaction by itself.
        for answer, step in sorted(zip(answers, steps, strict=True), key=lambda one: one[1].sql != b"BEGIN"):
            pgconn: Any = self.connection.pgconn
            result = pgconn.exec_params(step.sql, list(step.values)) if step.values else pgconn.exec_(step.sql)
            answer.result = result
            if result.status == ExecStatus.FATAL_ERROR:
                answer.error = result
                break
        return answers


class Prober:
    """Tries probes as one tenant, with another one beside it. Whatever gets through is undone."""

    def __init__(self, engine: PostgresEngine, administrator: str, layers: Layers) -> None:
        self._engine = engine
        self._administrator = administrator
        self._layers = layers
        self._names: dict[str, str] = {}

    async def prepare(self) -> None:
        """Two tenants: one has a table of its own, the other a secret."""
        engine = self._engine
        for database in (DATABASE, OTHER):
            await engine.drop(NAMESPACE, database)
            await engine.create(NAMESPACE, database)
        await engine.batch(NAMESPACE, DATABASE, ["CREATE TABLE own (id int PRIMARY KEY, text text)"])
        await engine.query(NAMESPACE, DATABASE, "INSERT INTO own SELECT n, 'x' FROM generate_series(1, 1000) AS n")
        await engine.query(NAMESPACE, OTHER, "CREATE TABLE secret (text text PRIMARY KEY)")
        await engine.query(NAMESPACE, OTHER, "CREATE SEQUENCE numbers")
        await engine.query(NAMESPACE, OTHER, "INSERT INTO secret VALUES ('the secret')")
        self._names = {"other": await engine._schema(NAMESPACE, OTHER), "records": ROLE}
        self._names["own"] = await engine._schema(NAMESPACE, DATABASE)
        if not self._layers.grants:
            self._alter("SUPERUSER")
        if not self._layers.parser:
            engine._checker = AnyStatement()  # type: ignore[assignment]

    def restore(self) -> None:
        """Take away what no tenant has."""
        if not self._layers.grants:
            self._alter("NOSUPERUSER")

    def _alter(self, attribute: str) -> None:
        with psycopg.connect(self._administrator, autocommit=True) as connection:
            connection.execute(f"ALTER ROLE {self._names['own']} {attribute}")  # type: ignore[call-overload]

    async def is_answered(self, probe: Probe) -> bool:
        """Whether a probe gets through."""
        engine = self._engine
        sql = probe.sql.format(**self._names)
        try:
            request = build_request([sql], SHORT, dialect=lambda _sql, _params: [])
            bound = await engine._bound(request, await engine._schema(NAMESPACE, DATABASE))
        except OncewardError:
            return False
        if not self._layers.limits:
            bound = bound._replace(lock_milliseconds=0, statement_milliseconds=0)
        async with engine._pool.lend(NAMESPACE) as session:
            if not self._layers.protocol:
                session.__class__ = _SimpleSession
            joined = TenantTransaction(session, bound, engine._records, engine._store.target.lock_timeout, engine._seen)
            try:
                await joined.work()
            except (OncewardError, SchemaGone):
                return False
            finally:
                session.spoilt = session.spoilt or not self._layers.parser  # It may have left something behind.
                if not session.spoilt:
                    await joined.rollback()
        return True

    async def answered(self, probes: Sequence[Probe]) -> list[str]:
        """The probes that get through."""
        return [probe.sql for probe in probes if await self.is_answered(probe)]

    async def secret(self) -> list[Any]:
        """What the other tenant still has."""
        return (await self._engine.query(NAMESPACE, OTHER, "SELECT text FROM secret")).rows

    async def sequence(self) -> int:
        """The next number of the other tenant's sequence."""
        return int((await self._engine.query(NAMESPACE, OTHER, "SELECT nextval('numbers')")).rows[0][0])  # type: ignore[arg-type]


def probing(url: str, administrator: str, layers: Layers, story: Any) -> Any:
    """Tell a story to a prober."""

    async def run() -> Any:
        limits = SHORT if layers.limits else Limits(statement_seconds=600.0)
        async with PostgresEngine(url, limits=limits) as engine:
            prober = Prober(engine, administrator, layers)
            await prober.prepare()
            try:
                return await story(prober)
            finally:
                prober.restore()

    return asyncio.run(run())
