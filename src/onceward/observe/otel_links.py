"""
Where the trace of a first run is remembered, so that the spans of its replays can link to it.

`MemoryTraceLinks` knows the runs of this process, `StoreTraceLinks` those of every process that uses the same store.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from opentelemetry.trace import SpanContext, TraceFlags

from onceward._core.durations import microseconds
from onceward._core.errors import OncewardError
from onceward._core.store import Store
from onceward._core.trace_marks import context_of_mark, trace_mark, trace_mark_id
from onceward.runtime.background_queue import BackgroundQueue
from onceward.runtime.environment import REAL, Environment
from onceward.stores import check_url, open_store

LINKS_MAX: Final = 10_000
"""Runs that are remembered in the process, and things that wait for the store."""
KEEP_SECONDS: Final = 86_400.0
"""A day, as long as results are replayed unless somebody says otherwise."""
BATCH: Final = 100
FLUSH_SECONDS: Final = 0.1

_CONTEXT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_log = logging.getLogger("onceward")

Found: TypeAlias = Callable[[SpanContext | None], object]
"""Takes the trace of the first run; None if it is not known."""


class FirstRun(NamedTuple):
    """What a run is remembered by."""

    scope: str
    digest: str
    fence: int


class TraceLinks(Protocol):
    """Where the trace of a first run is remembered. No method may raise, and none but `flush` may wait."""

    def put(self, run: FirstRun, first: SpanContext) -> None:
        """Remember the trace of a run."""

    def find(self, run: FirstRun, then: Found) -> None:
        """Call `then` with the trace of that run, now or later, in whichever thread."""

    def flush(self) -> None:
        """Wait until what was put is kept, and what was asked for is answered."""


class MemoryTraceLinks:
    """The latest runs of this process. Safe for threads."""

    def __init__(self, links_max: int = LINKS_MAX) -> None:
        self._links: OrderedDict[FirstRun, SpanContext] = OrderedDict()
        self._max = links_max
        self._guard = threading.RLock()

    def put(self, run: FirstRun, first: SpanContext) -> None:
        """Remember the trace of a run."""
        with self._guard:
            self._links[run] = first
            self._links.move_to_end(run)
            while len(self._links) > self._max:
                self._links.popitem(last=False)

    def get(self, run: FirstRun) -> SpanContext | None:
        """The trace of a run; None if it is not known here."""
        with self._guard:
            return self._links.get(run)

    def find(self, run: FirstRun, then: Found) -> None:
        """Call `then` with the trace of that run."""
        then(self.get(run))

    def flush(self) -> None:
        """Nothing waits."""


class StoreTraceLinks:
    """
    The runs of every process that uses a store: `Tracing(links=StoreTraceLinks("postgresql://..."))`.

    Each traced run leaves a small record of its own there for `keep` seconds, written behind the work, and a replay
    whose run is not known here is looked up behind it, too: its span is made then, with the times it had. The
    operation's own record is not touched. While the store is away, spans have no links. Safe for threads.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        keep: float = KEEP_SECONDS,
        links_max: int = LINKS_MAX,
        environment: Environment = REAL,
    ) -> None:
        if isinstance(store, str):
            check_url(store)
        self._named = store
        self._store: Store | None = None
        self._keep = microseconds(keep, "keep")
        self._environment = environment
        self._memory = MemoryTraceLinks(links_max)
        self._queue: BackgroundQueue[Callable[[], None]] = BackgroundQueue(
            self._do, environment, "onceward-traces", queue_max=links_max, batch=BATCH, wait_seconds=FLUSH_SECONDS
        )
        self._failing = False
        self.missed = 0
        """Traces that could not be kept or looked up."""

    def put(self, run: FirstRun, first: SpanContext) -> None:
        """Remember the trace of a run."""
        self._memory.put(run, first)
        if not self._queue.put([partial(self._keep_one, run, _written(first))]):
            self.missed += 1

    def find(self, run: FirstRun, then: Found) -> None:
        """Call `then` with the trace of that run: at once if it is known here, otherwise behind the work."""
        known = self._memory.get(run)
        if known is not None or not self._queue.put([partial(self._find_one, run, then)]):
            then(known)

    def flush(self) -> None:
        """Wait until what was put is kept, and what was asked for is answered."""
        self._queue.flush()

    def close(self) -> None:
        """Do what is left, and let go of the store, if it was opened here."""
        self._queue.close()
        if self._store is not None and isinstance(self._named, str):
            self._store.close()

    def _do(self, things: list[Callable[[], None]]) -> None:
        for one in things:
            one()

    def _keep_one(self, run: FirstRun, context: str) -> None:
        try:
            chance = self._environment.random(32)
            self._opened().put(trace_mark(*run, context, self._keep, chance), None)
            self._failing = False
        except OncewardError as error:
            self._fail(error)

    def _find_one(self, run: FirstRun, then: Found) -> None:
        found: SpanContext | None = None
        try:
            found = _read(context_of_mark(self._opened().load(trace_mark_id(*run))))
            self._failing = False
            if found is not None:
                self._memory.put(run, found)
        except OncewardError as error:
            self._fail(error)
        finally:
            with suppress(Exception):  # It is not ours.
                then(found)

    def _opened(self) -> Store:
        if self._store is None:
            named = self._named
            self._store = open_store(named, environment=self._environment) if isinstance(named, str) else named
        return self._store

    def _fail(self, error: OncewardError) -> None:
        self.missed += 1
        if not self._failing:
            self._failing = True
            _log.warning("onceward: traces cannot be kept or looked up (%s); spans have no links until then", error)


def _written(context: SpanContext) -> str:
    """A trace context as W3C has it in the header `traceparent`."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _read(text: str | None) -> SpanContext | None:
    found = _CONTEXT.fullmatch(text or "")
    if found is None:
        return None
    flags = TraceFlags(int(found[3], 16))
    context = SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=flags)
    return context if context.is_valid else None
