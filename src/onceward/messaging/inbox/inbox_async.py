# blocking half: inbox.py
"""
`AsyncInbox`: stores webhooks when they arrive, and processes each event once.

    inbox = AsyncInbox("sqlite:///shop.db", scope="live:acme")
    inbox.add(Source("stripe", Stripe(), [secret], paid))

    async with inbox.working():  # in one process or in many
        reply = await inbox.answer("stripe", headers, raw_body)  # status, headers and body for the sender

Receiving and processing may be in different processes, with one database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property, partial
from types import TracebackType
from typing import Self

from onceward._core.errors import OncewardError
from onceward._core.reply import Reply
from onceward.messaging.inbox import event_receiver, stored_sources
from onceward.messaging.inbox.event_receiver import ReceivedEvent
from onceward.messaging.inbox.inbox_base import STOP_SECONDS, Headers, InboxBase
from onceward.messaging.inbox.stored_sources import SourceView, StoredSource
from onceward.messaging.inbox.workers import THREADS, Workers
from onceward.stores.tables import AsyncTablesRunner, read_tables, transact


class AsyncInbox(InboxBase):
    """
    Webhooks received once and processed once, beside the records of a store. Safe for threads.

    Handlers are plain functions, run in the threads of `working`.
    """

    @cached_property
    def _runner(self) -> AsyncTablesRunner:
        return AsyncTablesRunner.over(self._tables, "inbox")

    async def source_scope(self, source: str) -> str:
        """Whose events those of a source are: its scope. `SourceUnknown`, if there is no such source."""
        return await self._runner.run(self._scope_of(source))

    async def receive(self, source: str, headers: Headers, body: bytes) -> ReceivedEvent:
        """
        Verify and store an event: it is durable when this returns, and has not been processed.

        `headers` and `body` as they came, byte for byte. `SignatureInvalid`, `EventInvalid`, `SourceUnknown`,
        `BodyTooLarge`: nothing was written.
        """
        received = await self._runner.run(self._receive(source, headers, body))
        self._ring()
        return received

    async def answer(self, source: str, headers: Headers, body: bytes) -> Reply:
        """Receive an event, and make the response for its sender, also for one that is refused."""
        try:
            return event_receiver.accepted_response(await self.receive(source, headers, body))
        except OncewardError as error:
            return event_receiver.refused_response(error)

    @asynccontextmanager
    async def working(self, threads: int = THREADS, *, stop_seconds: float = STOP_SECONDS) -> AsyncIterator[Workers]:
        """Process events in threads for the length of the block; handlers under way are waited for at its end."""
        workers = self._begin_work(threads)
        try:
            yield workers
        except GeneratorExit:
            self._leave_work(workers)  # Thrown away, perhaps by the garbage collector: nothing can be waited for.
            raise
        except BaseException:
            await asyncio.to_thread(self._end_work, workers, stop_seconds)
            raise
        await asyncio.to_thread(self._end_work, workers, stop_seconds)

    async def drain(self) -> dict[str, int]:
        """Process what is due, without workers; how many were done, retried, given up, put off."""
        return await asyncio.to_thread(self._drain)

    async def requeue(self, source: str, id: str) -> None:
        """Process an event again that was given up. Refused while its record is in doubt: reconcile that first."""
        await asyncio.to_thread(self._requeue, source, id)

    async def sources(self) -> list[SourceView]:
        """Every source that has events or was stored, with its counts."""
        return await self._runner.run(read_tables(stored_sources.source_views))

    async def store_source(self, source: StoredSource) -> bool:
        """Write a source for the service; whether it is new (otherwise it is replaced)."""
        return await self._runner.run(transact("inbox.source", partial(stored_sources.put_source, source)))

    async def stored_source(self, name: str) -> StoredSource | None:
        """One that was written."""
        return await self._runner.run(read_tables(partial(stored_sources.get_source, name)))

    async def close(self) -> None:
        """Close files and connections."""
        await self._runner.close()
        await asyncio.to_thread(self._gate.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
