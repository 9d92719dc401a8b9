"""
What the engine on PostgreSQL could cost at best: the same statements by hand, in one round trip, and nothing else.

Server, sessions, their settings and the record are the engine's. But nothing is parsed, limited, charged or looked up,
tenants take no turns, and a retry would be an error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from hashlib import sha256
from typing import Any

from psycopg.pq import ExecStatus

from bench.worker import Broken
from onceward._core.codec import encode
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.engine import SESSIONS
from onceward.service.sql.postgres.prepared_inserts import check_statement
from onceward.service.sql.postgres.record_first import record_first
from onceward.service.sql.postgres.session import PipelineStep, TenantSession, document_of_writes
from onceward.service.sql.postgres.statement_checker import InsertTarget

INSERT = b"INSERT INTO rows (id, body) VALUES ($1, $2)"
BEGIN = PipelineStep(b"BEGIN", name=b"begin")
TARGET = InsertTarget("rows", ("id", "body"))
CONSTRAINTS = PipelineStep(b"SET CONSTRAINTS ALL IMMEDIATE", name=b"constraints")
COMMIT = PipelineStep(b"COMMIT", name=b"commit")
ID, KEY, FINGERPRINT = 0, 3, 9
"""Of a record's values."""
FINE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


class ByHand:
    """libpq's pipeline on one event loop, over as many sessions as the engine has."""

    def __init__(self, url: str, tenants: list[str], create: str) -> None:
        self._url = url
        self._tenants = tenants
        self._create = create
        self._records: list[list[Any]] = []
        self._schemas: list[bytes] = []
        self._checks: list[PipelineStep] = []
        self._open: list[TenantSession] = []
        self._free: list[tuple[Any, set[bytes]]] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def prepare(self) -> None:
        """A database for each tenant, and the sessions."""
        self._engine = PostgresEngine(self._url)
        kept = encode({**document_of_writes(1), "meta": {"durationMs": None}})
        for name in self._tenants:
            await self._engine.create(name, "bench")
            await self._engine.query(name, "bench", self._create)
            schema = await self._engine._schema(name, "bench")
            scope = self._engine._scope(f"live:{name}:db:bench", schema)
            self._records.append(scope.certain(scope.call("key", bytes(33)), kept, bytes(48)))
            self._schemas.append(schema.encode())
            self._checks.append(PipelineStep(check_statement(schema, TARGET), name=f"check_{schema}".encode()))
        for _ in range(SESSIONS):
            session = await TenantSession.open(self._engine._store.target, DEFAULT_LIMITS, 0.0)
            self._open.append(session)
            self._free.append((session.connection.pgconn, set()))

    async def insert(self, caller: int, key: str, body: str = "") -> bool:
        """One durable row, with its record."""
        while not self._free:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        pgconn, prepared = self._free.pop()
        tenant = caller % len(self._tenants)
        id, record = sha256(f"{tenant}/{key}".encode()).digest(), self._records[tenant].copy()
        record[ID], record[KEY], record[FINGERPRINT] = id, key.encode(), b"\x01" + id
        first = record_first(self._engine._records, record, id, [self._schemas[tenant], b"5000", b"5000"])
        work = PipelineStep(INSERT, [key.encode(), body.encode()], b"insert_" + self._schemas[tenant])
        await _send(pgconn, prepared, (first, BEGIN, work, CONSTRAINTS, self._checks[tenant], COMMIT))
        self._free.append((pgconn, prepared))
        if self._waiting:
            self._waiting.popleft().set_result(None)
        return False

    async def rows(self) -> int:
        """How many there are, of all tenants."""
        answers = [await self._engine.query(name, "bench", "SELECT count(*) FROM rows") for name in self._tenants]
        return sum(int(str(one.rows[0][0])) for one in answers)

    async def close(self) -> None:
        """Let go."""
        for session in self._open:
            session.close()
        await self._engine.close()


async def _send(pgconn: Any, prepared: set[bytes], steps: tuple[PipelineStep, ...]) -> None:
    loop = asyncio.get_running_loop()
    pgconn.enter_pipeline_mode()
    for sql, values, name, binary in steps:
        if not name:
            pgconn.send_query_params(sql, values)
            continue
        if name not in prepared:
            prepared.add(name)
            pgconn.send_prepare(name, sql)
        pgconn.send_query_prepared(name, values or None, [1] * len(values) if binary else None, int(binary))
    pgconn.pipeline_sync()
    pgconn.flush()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(pgconn.socket, wake)
    try:
        while True:
            while pgconn.is_busy():
                await ready
                ready = loop.create_future()
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            if result.status not in FINE:
                raise Broken(str(result.error_message))
    finally:
        loop.remove_reader(pgconn.socket)
        pgconn.exit_pipeline_mode()
