"""
The same SQL without a server: one file, in this process.

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

from onceward import OncewardError
from onceward.environment import REAL, Environment
from onceward.service.sql.hosting import HostedDatabase, Performed
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.listing import tables_of
from onceward.service.sql.requests import Answer, BatchAnswer, Identity, Params, Request, Statement, Table, checked
from onceward.service.sql.terms import KeyTerms, agreed


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
        self._database = HostedDatabase(Path(path), limits, agreed(terms), environment=environment)
        self._turn = threading.Lock()

    def query(
        self,
        sql: str,
        params: Params = None,
        *,
        identity: Identity | None = None,
        readonly: bool = False,
        about: Any = None,
    ) -> Answer:
        """See `Engine.query`."""
        request = checked([(sql, params)], self._limits, identity=identity, readonly=readonly, about=about)
        return Answer(*self._run(request))

    def batch(
        self,
        statements: Iterable[Statement | tuple[str, Params] | str],
        *,
        identity: Identity | None = None,
        readonly: bool = False,
        about: Any = None,
    ) -> BatchAnswer:
        """See `Engine.batch`."""
        request = checked(statements, self._limits, identity=identity, readonly=readonly, batch=True, about=about)
        return BatchAnswer(*self._run(request))

    def tables(self) -> list[Table]:
        """See `Engine.tables`."""
        with self._turn:
            return tables_of(self._database.connection)

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

    def _run(self, request: Request) -> Performed:
        with self._turn:
            outcome = self._database.group([request])[0]
        if isinstance(outcome, OncewardError):
            raise outcome
        return outcome
