"""
`InboxBase`: what the blocking and the async inbox share: sources, workers, and operators' actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from onceward._core.advice import in_doubt
from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError, IllegalMove, SourceUnknown
from onceward._core.keys import check_scope
from onceward._core.sealing import Seal, make_sealer
from onceward.gate.gate import Gate
from onceward.messaging.inbox import event_receiver, event_table
from onceward.messaging.inbox.event_processor import (
    DEAD,
    DONE,
    LEASE_SECONDS,
    PUT_OFF,
    RETRIED,
    EventProcessor,
    key_of,
    scope_of,
)
from onceward.messaging.inbox.event_receiver import ReceivedEvent
from onceward.messaging.inbox.event_table import SCHEMA
from onceward.messaging.inbox.handlers import inspect_handler
from onceward.messaging.inbox.source import Source, warn_of_short_secret
from onceward.messaging.inbox.stored_sources import StoredSources
from onceward.messaging.inbox.workers import Workers
from onceward.runtime.environment import REAL, Environment
from onceward.stores.tables import Flow, TablesRunner, open_tables, read_tables, transact

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

STOP_SECONDS = 20.0


class InboxBase:
    """Sources, workers and operators' actions; `Inbox` and `AsyncInbox` receive."""

    def __init__(
        self,
        store: str,
        *,
        scope: str | None = None,
        stored_sources: bool = False,
        lease: float = LEASE_SECONDS,
        environment: Environment | None = None,
        seal: Seal | None = None,
        sealed_only: bool = False,
    ) -> None:
        if scope is None and not stored_sources:
            raise ConfigurationError('the inbox needs a scope, which says whose events these are: scope="live:acme"')
        self._scope = None if scope is None else check_scope(scope)
        self._environment = environment or REAL
        self._sources: dict[str, Source] = {}
        self._sealer = make_sealer(seal, sealed_only=sealed_only)
        lease_us = microseconds(lease, "lease")  # Before anything is opened, like all that can be refused.
        self._tables = TablesRunner(open_tables(store, SCHEMA, self._environment, create=True))
        try:
            self._gate = Gate(
                store,
                scope=self._scope or "live:hooks",
                environment=self._environment,
                seal=seal,
                sealed_only=sealed_only,
            )
        except BaseException:
            self._tables.close()
            raise
        self._shelf = StoredSources(self._environment) if stored_sources else None
        self._processor = EventProcessor(self._gate, self._tables, self._source, lease_us, self._sealer)
        self._workers: list[Workers] = []

    def add(self, source: Source) -> None:
        """Receive from a source, and process its events with its handler."""
        if source.name in self._sources:
            raise ConfigurationError(f"there is already a source {source.name}; give this one another name")
        placed = replace(source, scope=source.scope or self._scope or "")
        check_scope(scope_of(placed.scope, placed.name))
        if not isinstance(source.handler, str):
            inspect_handler(source.handler)
        if placed.has_short_secret:
            warn_of_short_secret(placed.name)
        self._sources[source.name] = placed

    def usage(self) -> list[tuple[str, int, int]]:
        """What each scope holds: (scope, events, bytes)."""
        return self._tables.run(read_tables(event_table.count_events))

    def _begin_work(self, threads: int) -> Workers:
        workers = Workers(self._processor, self._tables, self._known, self._environment, threads)
        self._workers.append(workers)
        workers.start()
        return workers

    def _end_work(self, workers: Workers, stop_seconds: float) -> None:
        workers.stop(stop_seconds)
        self._workers.remove(workers)

    def _leave_work(self, workers: Workers) -> None:
        workers.leave()
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
        steps = partial(event_table.requeue_event, source.scope, name, id)
        if not self._tables.run(transact("inbox.requeue", steps)):
            raise IllegalMove("no event with this id was given up: it is done, still waiting, or never arrived")
        self._ring()

    def _receive(self, name: str, headers: Headers, body: bytes) -> Flow[ReceivedEvent]:
        source = yield from self._found(name)
        return (yield from event_receiver.receive(source, headers, body, self._environment, self._sealer))

    def _scope_of(self, name: str) -> Flow[str]:
        return (yield from self._found(name)).scope

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
            workers.notify()
