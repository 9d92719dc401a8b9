"""
A tenant database without a server: one SQLite file, in this process.

    with LocalDatabase("shop.db") as database:
        database.query("INSERT INTO orders VALUES (?)", ["o-17"], identity=Keyed("test:me", "order:o-17"))

The rules are those of the workers, because it is their code. What a process of its own adds is missing: a statement
that no deadline can interrupt, or that takes all memory, does so here. It is for tests and small agents, and for SQL
that is your own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from onceward._core.errors import OncewardError
from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.key_terms import KeyTerms, key_options
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.requests import (
    Identity,
    Params,
    SqlBatchResult,
    SqlRequest,
    SqlResult,
    SqlStatement,
    TableInfo,
    build_request,
)
from onceward.service.sql.schema_inspector import read_tables
from onceward.service.sql.tenant_database import RequestResult, WritableDatabase


class LocalDatabase:
    """A SQLite file with the engine's keys, errors and limits, in this process. Threads may share it."""

    def __init__(
        self,
        path: str | Path,
        *,
        limits: Limits = DEFAULT_LIMITS,
        environment: Environment = REAL,
        **terms: Unpack[KeyTerms],
    ) -> None:
        self._limits = limits
        self._database = WritableDatabase(Path(path), limits, key_options(terms), environment=environment)
        self._turn = threading.Lock()

    def query(
        self,
        sql: str,
        params: Params = None,
        *,
        identity: Identity | None = None,
        readonly: bool = False,
        about: Any = None,
    ) -> SqlResult:
        """Run one statement, once per identity; a retry gets the first result."""
        request = build_request([(sql, params)], self._limits, identity=identity, readonly=readonly, about=about)
        return SqlResult(*self._run(request)[:2])

    def batch(
        self,
        statements: Iterable[SqlStatement | tuple[str, Params] | str],
        *,
        identity: Identity | None = None,
        readonly: bool = False,
        about: Any = None,
    ) -> SqlBatchResult:
        """Run statements in one transaction, all or none of them, once per identity."""
        request = build_request(statements, self._limits, identity=identity, readonly=readonly, batch=True, about=about)
        return SqlBatchResult(*self._run(request)[:2])

    def tables(self) -> list[TableInfo]:
        """The tables and views of the database."""
        with self._turn:
            return self._database.session.look(read_tables)

    def close(self) -> None:
        """Let go of the file."""
        with self._turn:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, request: SqlRequest) -> RequestResult:
        with self._turn:
            outcome = self._database.group([request])[0]
        if isinstance(outcome, OncewardError):
            raise outcome
        return outcome
