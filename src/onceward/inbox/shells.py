"""
`Inbox` blocks, `AsyncInbox` awaits: webhooks received once, and processed once.

    inbox = Inbox("sqlite:///shop.db", scope="live:acme")
    inbox.add(Source("stripe", Stripe(), [secret], paid))

    with inbox.working():                                  # in one process or in many
        reply = inbox.answer("stripe", headers, raw_body)  # status, headers and body for the sender

`AsyncInbox` has the same methods, awaited: `async with inbox.working():`.

Whoever receives and whoever works need not be the same process: they meet in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from onceward._core.advice import in_doubt
from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError, IllegalMove, OncewardError, SourceUnknown
from onceward._core.keys import check_scope
from onceward._core.reply import Reply
from onceward.environment import REAL, Environment
from onceward.gate.blocking import Gate
from onceward.inbox import events, receiving, stored
from onceward.inbox.events import SCHEMA
from onceward.inbox.handlers import handling_of
from onceward.inbox.processing import DEAD, DONE, LEASE_SECONDS, PUT_OFF, RETRIED, Processor, key_of, scope_of
from onceward.inbox.receiving import Received
from onceward.inbox.source import Source, tell_of_short_secret
from onceward.inbox.stored import Shelf, SourceView, StoredSource
from onceward.inbox.working import THREADS, Workers
from onceward.tables import Awaiting, Blocking, Flow, looked, open_tables, transacted

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

STOP_SECONDS = 20.0


class _Shared:
    """What both colours share: sources, workers, operators."""

    def __init__(
        self,
        store: str,
        *,
        scope: str | None = None,
        stored_sources: bool = False,
        lease: float = LEASE_SECONDS,
        environment: Environment | None = None,
    ) -> None:
        if scope is None and not stored_sources:
            raise ConfigurationError('whose events are these? Give the inbox a scope, such as scope="live:acme"')
        self._scope = None if scope is None else check_scope(scope)
        self._environment = environment or REAL
        self._sources: dict[str, Source] = {}
        self._tables = Blocking(open_tables(store, SCHEMA, self._environment, create=True))
        try:
            self._gate = Gate(store, scope=self._scope or "live:hooks", environment=self._environment)
        except BaseException:
            self._tables.close()
            raise
        self._shelf = Shelf(self._environment) if stored_sources else None
        self._processor = Processor(self._gate, self._tables, self._source, microseconds(lease, "lease"))
        self._workers: list[Workers] = []

    def add(self, source: Source) -> None:
        """Receive from a source, and process its events with its handler."""
        if source.name in self._sources:
            raise ConfigurationError(f"there is a source {source.name} already; one name, one source")
        placed = replace(source, scope=source.scope or self._scope or "")
        check_scope(scope_of(placed.scope, placed.name))
        if not isinstance(source.handler, str):
            handling_of(source.handler)
        if placed.has_short_secret:
            tell_of_short_secret(placed.name)
        self._sources[source.name] = placed

    def _begin_work(self, threads: int) -> Workers:
        workers = Workers(self._processor, self._tables, self._known, self._environment, threads)
        self._workers.append(workers)
        workers.start()
        return workers

    def _end_work(self, workers: Workers, stop_seconds: float) -> None:
        workers.stop(stop_seconds)
        self._workers.remove(workers)

    def _drain(self) -> dict[str, int]:
        counts = dict.fromkeys((DONE, RETRIED, DEAD, PUT_OFF), 0)
        while (claim := self._processor.claim(self._known())) is not None:
            counts[self._processor.process(claim)] += 1
        return counts

    def _requeue(self, name: str, id: str) -> None:
        source = self._tables.run(self._found(name))
        gate = self._gate.scoped(scope_of(source.scope, name))
        seen = gate.store.load(bytes.fromhex(found.id)) if (found := gate.records.get(key_of(id))) is not None else None
        if found is not None and found.state == "in_doubt" and seen is not None:
            raise in_doubt(seen)
        steps = partial(events.requeued, source.scope, name, id)
        if not self._tables.run(transacted("inbox.requeue", steps)):
            raise IllegalMove("there is no such event that was given up: it is done, or waits, or never came")
        self._ring()

    def _receive(self, name: str, headers: Headers, body: bytes) -> Flow[Received]:
        source = yield from self._found(name)
        return (yield from receiving.receive(source, headers, body, self._environment))

    def _found(self, name: str) -> Flow[Source]:
        source = self._sources.get(name)
        if source is None and self._shelf is not None:
            source = (yield from self._shelf.sources()).get(name)
        if source is None:
            raise SourceUnknown
        return source

    def _source(self, scope: str, name: str) -> Source | None:
        try:
            source = self._tables.run(self._found(name))
        except SourceUnknown:
            return None
        return source if source.scope == scope else None

    def _known(self) -> list[tuple[str, str]]:
        mine = list(self._sources.values())
        if self._shelf is not None:
            mine += self._tables.run(self._shelf.sources()).values()
        return [(one.scope, one.name) for one in mine]

    def _ring(self) -> None:
        for workers in self._workers:
            workers.ring()

    def _close(self) -> None:
        self._tables.close()
        self._gate.close()


class Inbox(_Shared):
    """Webhooks received once and processed once, beside the records of a store. Safe for threads."""

    def receive(self, source: str, headers: Headers, body: bytes) -> Received:
        """
        Believe and keep an event: it is durable when this returns, and nothing of it has been processed.

        `headers` and `body` as they came, byte for byte. `SignatureInvalid`, `EventInvalid`, `SourceUnknown`,
        `BodyTooLarge`: nothing was written.
        """
        received = self._tables.run(self._receive(source, headers, body))
        self._ring()
        return received

    def answer(self, source: str, headers: Headers, body: bytes) -> Reply:
        """Same as `receive`, as the answer to send: status, headers and body, also where it is refused."""
        try:
            return receiving.answer(self.receive(source, headers, body))
        except OncewardError as error:
            return receiving.refusal(error)

    @contextmanager
    def working(self, threads: int = THREADS, *, stop_seconds: float = STOP_SECONDS) -> Iterator[Workers]:
        """Process events in threads for the length of a `with` block; handlers under way are waited for at its end."""
        workers = self._begin_work(threads)
        try:
            yield workers
        finally:
            self._end_work(workers, stop_seconds)

    def drain(self) -> dict[str, int]:
        """Process what is due, in this thread; how many were done, retried later, given up, put off."""
        return self._drain()

    def requeue(self, source: str, id: str) -> None:
        """Process an event again that was given up. Refused while its record is in doubt: reconcile that first."""
        self._requeue(source, id)

    def sources(self) -> list[SourceView]:
        """Every source that has events or was stored, with its counts."""
        return self._tables.run(looked(stored.views))

    def store_source(self, source: StoredSource) -> bool:
        """Write a source for the service; whether it is new (otherwise it is replaced)."""
        return self._tables.run(transacted("inbox.source", partial(stored.put, source)))

    def stored_source(self, name: str) -> StoredSource | None:
        """One that was written."""
        return self._tables.run(looked(partial(stored.get, name)))

    def close(self) -> None:
        """Let go of files and connections."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncInbox(_Shared):
    """Same as `Inbox`, but awaits. Handlers are plain functions here, too: they run in the workers' threads."""

    def __init__(
        self,
        store: str,
        *,
        scope: str | None = None,
        stored_sources: bool = False,
        lease: float = LEASE_SECONDS,
        environment: Environment | None = None,
    ) -> None:
        super().__init__(store, scope=scope, stored_sources=stored_sources, lease=lease, environment=environment)
        self._awaiting = Awaiting(self._tables, "inbox")

    async def receive(self, source: str, headers: Headers, body: bytes) -> Received:
        """Same as `Inbox.receive`, but awaits."""
        received = await self._awaiting.run(self._receive(source, headers, body))
        self._ring()
        return received

    async def answer(self, source: str, headers: Headers, body: bytes) -> Reply:
        """Same as `Inbox.answer`, but awaits."""
        try:
            return receiving.answer(await self.receive(source, headers, body))
        except OncewardError as error:
            return receiving.refusal(error)

    @asynccontextmanager
    async def working(self, threads: int = THREADS, *, stop_seconds: float = STOP_SECONDS) -> AsyncIterator[Workers]:
        """Same as `Inbox.working`, for an `async with` block: the loop goes on while handlers are waited for."""
        workers = self._begin_work(threads)
        try:
            yield workers
        finally:
            await asyncio.to_thread(self._end_work, workers, stop_seconds)

    async def drain(self) -> dict[str, int]:
        """Same as `Inbox.drain`, but awaits."""
        return await asyncio.to_thread(self._drain)

    async def requeue(self, source: str, id: str) -> None:
        """Same as `Inbox.requeue`, but awaits."""
        await asyncio.to_thread(self._requeue, source, id)

    async def sources(self) -> list[SourceView]:
        """Same as `Inbox.sources`, but awaits."""
        return await self._awaiting.run(looked(stored.views))

    async def store_source(self, source: StoredSource) -> bool:
        """Same as `Inbox.store_source`, but awaits."""
        return await self._awaiting.run(transacted("inbox.source", partial(stored.put, source)))

    async def stored_source(self, name: str) -> StoredSource | None:
        """Same as `Inbox.stored_source`, but awaits."""
        return await self._awaiting.run(looked(partial(stored.get, name)))

    async def close(self) -> None:
        """Let go of files and connections."""
        await self._awaiting.close()
        self._gate.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
