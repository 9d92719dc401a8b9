"""
Batched access to a shared budget or breaker in the store, with a timeout for every caller.

Queries that are waiting go to the store together, one batch at a time, so a hundred callers at once cost one round
trip. A slow store holds up nobody: after `patience` seconds a caller gives up and decides by itself.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward._core.flow import Effect, Flow, Load, Monotonic, Put, RandomBytes
from onceward.runtime.environment import Environment
from onceward.runtime.flow_driver import arun, run

BatchFlow = Callable[[Sequence[Any]], Flow[Sequence[Any]]]
"""From the waiting queries to a flow that returns one result for each."""

IDLE_SECONDS = 10.0
"""How long the thread waits for another query before it ends."""

BATCH_MAX = 1_000


class SharedStateUnavailable(Exception):
    """The store did not respond in time, or failed."""


class SharedStateClient:
    """For blocking stores: a thread that runs while there are queries. Serves callers of both colours."""

    def __init__(self, store: Any, batch_flow: BatchFlow, environment: Environment, patience: float) -> None:
        self._store, self._batch_flow = store, batch_flow
        self._environment, self._patience = environment, patience
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._queries: queue.SimpleQueue[tuple[Any, Future[Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self, query: Any, patience: float | None = None) -> Any:
        """The result; `SharedStateUnavailable` if it does not come in time."""
        try:
            return self._send(query).result(self._patience if patience is None else patience)
        except (FutureTimeout, Exception) as error:
            raise SharedStateUnavailable from error

    async def aask(self, query: Any, patience: float | None = None) -> Any:
        """Await the result; `SharedStateUnavailable` if it does not come in time."""
        seconds = self._patience if patience is None else patience
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._send(query)), seconds)
        except Exception as error:
            raise SharedStateUnavailable from error

    def tell(self, query: Any) -> Any:
        """Send a report, and wait for its result. It reaches the store even if the caller gives up."""
        return self.ask(query)

    async def atell(self, query: Any) -> Any:
        """Send a report, and await its result. It reaches the store even if the caller is cancelled."""
        future = self._send(query)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._patience)
        except Exception as error:
            raise SharedStateUnavailable from error

    def caught_up(self) -> None:
        """Nothing to do: `tell` has waited for every report."""

    async def acaught_up(self) -> None:
        """Nothing to do: `atell` has waited for every report."""

    def _send(self, query: Any) -> Future[Any]:
        if self._pid != os.getpid():
            self._begin()  # A forked process has no threads of its parent.
        future: Future[Any] = Future()
        self._queries.put((query, future))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="onceward-courier", daemon=True)
                self._thread.start()
        return future

    def _work(self) -> None:
        while True:
            batch = self._waiting()
            if not batch:
                return
            try:
                results = run(self._batch_flow([query for query, _ in batch]), self._perform)
            except BaseException as error:
                for _, future in batch:
                    if future.set_running_or_notify_cancel():
                        future.set_exception(error)
                continue
            for (_, future), value in zip(batch, results, strict=True):
                if future.set_running_or_notify_cancel():
                    future.set_result(value)

    def _waiting(self) -> list[tuple[Any, Future[Any]]]:
        try:
            batch = [self._queries.get(timeout=IDLE_SECONDS)]
        except queue.Empty:
            with self._lock:
                if self._queries.empty():
                    self._thread = None
                    return []
            batch = [self._queries.get()]
        while len(batch) < BATCH_MAX and not self._queries.empty():
            batch.append(self._queries.get())
        # Leave out queries that nobody waits for: what they take would never be used.
        return [(query, future) for query, future in batch if not future.cancelled()] or self._waiting()

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Put():
                return self._store.put(effect.write, effect.expect)
            case Load():
                return self._store.load(effect.id)
        return _instant(self._environment, effect)


class AsyncSharedStateClient:
    """
    For awaiting stores: a task on the caller's event loop.

    A caller that cannot await (the end of a block, a coroutine that is being closed) gets no result, but can report.
    """

    def __init__(self, store: Any, batch_flow: BatchFlow, environment: Environment, patience: float) -> None:
        self._store, self._batch_flow = store, batch_flow
        self._environment, self._patience = environment, patience
        self._queries: list[tuple[Any, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None
        self._last_report: asyncio.Future[Any] | None = None

    def ask(self, query: Any, patience: float | None = None) -> Any:
        """A blocking caller cannot wait for an awaiting store."""
        raise SharedStateUnavailable

    async def aask(self, query: Any, patience: float | None = None) -> Any:
        """The result; `SharedStateUnavailable` if it does not come in time."""
        try:
            return await asyncio.wait_for(self._send(query), self._patience if patience is None else patience)
        except Exception as error:
            raise SharedStateUnavailable from error

    def tell(self, query: Any) -> Any:
        """
        Send a report from the event loop that is running here. Always raises `SharedStateUnavailable`, because nothing
        waits for the result.
        """
        try:
            self._last_report = self._send(query)
        except RuntimeError:
            raise SharedStateUnavailable from None  # There is no event loop to send it from.
        self._last_report.add_done_callback(_ignore)
        raise SharedStateUnavailable

    async def atell(self, query: Any) -> Any:
        """Send a report, and await its result. It reaches the store even if the caller is cancelled."""
        future = self._send(query)
        future.add_done_callback(_ignore)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._patience)
        except Exception as error:
            raise SharedStateUnavailable from error

    def caught_up(self) -> None:
        """A blocking caller cannot wait for an awaiting store."""

    async def acaught_up(self) -> None:
        """Wait for the last report to arrive, for `patience` seconds at most."""
        report, self._last_report = self._last_report, None
        if report is not None and report.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({report}, timeout=self._patience)

    def _send(self, query: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._queries = []
            self._task = loop.create_task(self._work())
        future: asyncio.Future[Any] = loop.create_future()
        self._queries.append((query, future))
        return future

    async def _work(self) -> None:
        await self._environment.asleep(0)  # Let other callers add their queries first.
        while self._queries:
            batch, self._queries = self._queries[:BATCH_MAX], self._queries[BATCH_MAX:]
            batch = [(query, future) for query, future in batch if not future.done()]
            try:
                results = await arun(self._batch_flow([query for query, _ in batch]), self._now, self._perform)
            except Exception as error:
                _deliver(batch, [error] * len(batch))
                continue
            _deliver(batch, results)

    def _now(self, effect: Effect) -> Any:
        return _instant(self._environment, effect)

    def _perform(self, effect: Effect) -> Awaitable[Any]:
        match effect:
            case Put():
                return self._store.put(effect.write, effect.expect)  # type: ignore[no-any-return]
            case Load():
                return self._store.load(effect.id)  # type: ignore[no-any-return]
        raise ConfigurationError(f"a shared budget or breaker cannot perform {type(effect).__name__}")


def _ignore(future: asyncio.Future[Any]) -> None:
    """Nobody may be waiting for this result, so an error in it is not reported as unhandled."""
    if not future.cancelled():
        future.exception()


def _deliver(batch: Sequence[tuple[Any, asyncio.Future[Any]]], results: Sequence[Any]) -> None:
    for (_, future), value in zip(batch, results, strict=True):
        if future.done():
            continue
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)


def _instant(environment: Environment, effect: Effect) -> Any:
    match effect:
        case RandomBytes():
            return environment.random(48)
        case Monotonic():
            return environment.monotonic()
    raise ConfigurationError(f"a shared budget or breaker cannot perform {type(effect).__name__}")
