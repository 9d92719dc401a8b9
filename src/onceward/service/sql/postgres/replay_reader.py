"""
Reads the first results of keys that were settled lately: those that are asked for at the same time in one round trip.

Whoever repeats a request needs no session of a tenant's, no transaction and no lock: only a row of ours, which never
changes while it is replayed. It is a quick look as the core knows it: what it shows is replayed, and anything else
(another request, a result that has expired or is large, a server that is away) is left to the usual way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from onceward._core.errors import OncewardError
from onceward._core.record_types import PeekResult
from onceward.runtime.flow_driver import BegunCoroutine
from onceward.service.sql.postgres.session import PipelineStep, TenantSession
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_wire import ids_value, numbered_statement

TOGETHER_MAX: Final = 32
RESULT_BYTES_MAX: Final = 65_536
"""Larger ones would keep the others of a round trip waiting."""


class ReplayReader:
    """One connection of the service's own, opened when it is needed."""

    def __init__(self, open_session: Callable[[], Coroutine[Any, Any, TenantSession]]) -> None:
        self._open = open_session
        self._session: TenantSession | None = None
        self._waiting: dict[bytes, asyncio.Future[PeekResult | None]] = {}
        self._reading: BegunCoroutine[None] | None = None

    async def read(self, records: str, id: bytes) -> PeekResult | None:
        """What stands under an id, if it is a result of usual size; `records` is the schema of the records."""
        answer = self._waiting.get(id)
        if answer is None:
            answer = self._waiting[id] = asyncio.get_running_loop().create_future()
            if self._reading is None or self._reading.done():
                self._reading = BegunCoroutine(self._read_all(records))
        return await asyncio.shield(answer) if not answer.done() else answer.result()

    def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            self._session.close()

    async def _read_all(self, records: str) -> None:
        """Until nobody waits."""
        while self._waiting:
            asked = {id: self._waiting.pop(id) for id in list(self._waiting)[:TOGETHER_MAX]}
            found: dict[bytes, PeekResult] = {}
            try:
                found = await self._look(records, list(asked))
            except OncewardError:
                pass  # The usual way says what is wrong.
            finally:
                for id, answer in asked.items():
                    if not answer.done():
                        answer.set_result(found.get(id))

    async def _look(self, records: str, ids: list[bytes]) -> dict[bytes, PeekResult]:
        session = self._session
        if session is None or not session.is_at_rest:
            self.close()
            self._session = session = None
            session = self._session = await asyncio.ensure_future(self._open())  # Connecting wants a task of its own.
        [answer] = await session.execute(_looking(records, ids))
        return {row[0]: PeekResult(*row[1:]) for row in session.rows_of(answer)}


def _looking(records: str, ids: list[bytes]) -> PipelineStep:
    sql = rows.qualified(records, rows.peek_statement(RESULT_BYTES_MAX))
    name, text, _ = numbered_statement("replays", sql, ("ids",))
    return PipelineStep(text, ids_value(ids), name, binary=True)
