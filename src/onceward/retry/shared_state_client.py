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

    def __init__(self, store: Any, errand: BatchFlow, environment: Environment, patience: float) -> None:
        self._store, self._errand, self._environment, self._patience = store, errand, environment, patience
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._questions: queue.SimpleQueue[tuple[Any, Future[Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self, question: Any, patience: float | None = None) -> Any:
        """The result; `SharedStateUnavailable` if it does not come in time."""
        try:
            return self._send(question).result(self._patience if patience is None else patience)
        except (FutureTimeout, Exception) as error:
            raise SharedStateUnavailable from error

    async def aask(self, question: Any, patience: float | None = None) -> Any:
        """Await the result; `SharedStateUnavailable` if it does not come in time."""
        seconds = self._patience if patience is None else patience
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._send(question)), seconds)
        except Exception as error:
            raise SharedStateUnavailable from error

    def tell(self, question: Any) -> Any:
        """Send a report, and wait for its result. It reaches the store even if the caller gives up."""
        return self.ask(question)

    async def atell(self, question: Any) -> Any:
        """Send a report, and await its result. It reaches the store even if the caller is cancelled."""
        answer = self._send(question)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(answer)), self._patience)
        except Exception as error:
            raise SharedStateUnavailable from error

    def caught_up(self) -> None:
        """Nothing to do: `tell` has waited for every report."""

    async def acaught_up(self) -> None:
        """Nothing to do: `atell` has waited for every report."""

    def _send(self, question: Any) -> Future[Any]:
        if self._pid != os.getpid():
            self._begin()  # A fork takes no threads along.
        answer: Future[Any] = Future()
        self._questions.put((question, answer))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="onceward-courier", daemon=True)
                self._thread.start()
        return answer

    def _work(self) -> None:
        while True:
            batch = self._waiting()
            if not batch:
                return
            try:
                answers = run(self._errand([question for question, _ in batch]), self._perform)
            except BaseException as error:
                for _, answer in batch:
                    if answer.set_running_or_notify_cancel():
                        answer.set_exception(error)
                continue
            for (_, answer), value in zip(batch, answers, strict=True):
                if answer.set_running_or_notify_cancel():
                    answer.set_result(value)

    def _waiting(self) -> list[tuple[Any, Future[Any]]]:
        try:
            batch = [self._questions.get(timeout=IDLE_SECONDS)]
        except queue.Empty:
            with self._lock:
                if self._questions.empty():
                    self._thread = None
                    return []
            batch = [self._questions.get()]
        while len(batch) < BATCH_MAX and not self._questions.empty():
            batch.append(self._questions.get())
        # Nobody waits for these any more: what they asked for would be taken and never used.
        return [(question, answer) for question, answer in batch if not answer.cancelled()] or self._waiting()

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Put():
                return self._store.put(effect.write, effect.expect)
            case Load():
                return self._store.load(effect.id)
        return _instant(self._environment, effect)


class AsyncSharedStateClient:
    """
    Same, for awaiting stores: a task on the loop of whoever asks.

    Who cannot await (a block's end, a coroutine that is being closed) gets no answers, but can still tell something.
    """

    def __init__(self, store: Any, errand: BatchFlow, environment: Environment, patience: float) -> None:
        self._store, self._errand, self._environment, self._patience = store, errand, environment, patience
        self._questions: list[tuple[Any, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None
        self._told: asyncio.Future[Any] | None = None

    def ask(self, question: Any, patience: float | None = None) -> Any:
        """A blocking caller cannot wait for an awaiting store."""
        raise SharedStateUnavailable

    async def aask(self, question: Any, patience: float | None = None) -> Any:
        """The result; `SharedStateUnavailable` if it does not come in time."""
        try:
            return await asyncio.wait_for(self._send(question), self._patience if patience is None else patience)
        except Exception as error:
            raise SharedStateUnavailable from error

    def tell(self, question: Any) -> Any:
        """
        Carry news to the store, on the loop that is running here; `SharedStateUnavailable`, because nobody waits for
        an answer.
        """
        try:
            self._told = self._send(question)
        except RuntimeError:
            raise SharedStateUnavailable from None  # There is no loop that could carry it.
        self._told.add_done_callback(_ignore)
        raise SharedStateUnavailable

    async def atell(self, question: Any) -> Any:
        """Send a report, and await its result. It reaches the store even if the caller is cancelled."""
        answer = self._send(question)
        answer.add_done_callback(_ignore)
        try:
            return await asyncio.wait_for(asyncio.shield(answer), self._patience)
        except Exception as error:
            raise SharedStateUnavailable from error

    def caught_up(self) -> None:
        """A blocking caller cannot wait for an awaiting store."""

    async def acaught_up(self) -> None:
        """Wait for the last report to arrive, for `patience` seconds at most."""
        told, self._told = self._told, None
        if told is not None and told.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({told}, timeout=self._patience)

    def _send(self, question: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._questions = []
            self._task = loop.create_task(self._work())
        answer: asyncio.Future[Any] = loop.create_future()
        self._questions.append((question, answer))
        return answer

    async def _work(self) -> None:
        await self._environment.asleep(0)  # Let everybody ask who is about to.
        while self._questions:
            batch, self._questions = self._questions[:BATCH_MAX], self._questions[BATCH_MAX:]
            batch = [(question, answer) for question, answer in batch if not answer.done()]
            try:
                answers = await arun(self._errand([question for question, _ in batch]), self._now, self._perform)
            except Exception as error:
                _deliver(batch, [error] * len(batch))
                continue
            _deliver(batch, answers)

    def _now(self, effect: Effect) -> Any:
        return _instant(self._environment, effect)

    def _perform(self, effect: Effect) -> Awaitable[Any]:
        match effect:
            case Put():
                return self._store.put(effect.write, effect.expect)  # type: ignore[no-any-return]
            case Load():
                return self._store.load(effect.id)  # type: ignore[no-any-return]
        raise ConfigurationError(f"a shared budget or breaker cannot perform {type(effect).__name__}")


def _ignore(answer: asyncio.Future[Any]) -> None:
    """Nobody may be waiting for this result, so an error in it is not reported as unhandled."""
    if not answer.cancelled():
        answer.exception()


def _deliver(batch: Sequence[tuple[Any, asyncio.Future[Any]]], answers: Sequence[Any]) -> None:
    for (_, answer), value in zip(batch, answers, strict=True):
        if answer.done():
            continue
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set_result(value)


def _instant(environment: Environment, effect: Effect) -> Any:
    match effect:
        case RandomBytes():
            return environment.random(48)
        case Monotonic():
            return environment.monotonic()
    raise ConfigurationError(f"a shared budget or breaker cannot perform {type(effect).__name__}")
