"""
Time slices over an adapter, in every shape: one caller, one async caller, threads, tasks.

Runs in the worker's process. Threads and the event loop live as long as the process, so that connections per thread
are made once.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.work import SETTLED, TASKS, THREADS, Adapter, Request, Result, Work
from bench.worker import Broken, mark

CHECKED = 3
"""How often a key is asked for again before anything is timed."""


class Enough:
    """When to stop: at a time, or after so many operations (shared by threads and tasks)."""

    def __init__(self, seconds: float | None, operations: int | None) -> None:
        self._until = None if seconds is None else time.perf_counter() + seconds
        self._left = operations or 0
        self._first = True

    def more(self) -> bool:
        """Whether to do another one."""
        if self._until is not None:
            if self._first:  # However late we are: a slice without an operation says nothing.
                self._first = False
                return True
            return time.perf_counter() < self._until
        self._left -= 1
        return self._left >= 0


class Slices:
    """
    An adapter with its pool of threads and its event loop. What follows `separate` is for the adapter.

    `separate` adapters have a file for each colour, and another pair of them for threads and tasks: whoever is fast
    there would else have the longest table when one caller is measured.
    """

    def __init__(self, folder: Path, place: str, separate: str, *arguments: str) -> None:
        module, _, name = place.partition(":")
        self._work = Work()
        self._loop = asyncio.new_event_loop()
        make = getattr(importlib.import_module(module), name)
        self._adapter: Adapter = make(folder, self._work, *arguments)
        self._separate = separate == "separate"
        self._crowd = self._adapter
        if self._separate:
            (folder / "crowd").mkdir()
            self._crowd = make(folder / "crowd", self._work, *arguments)
        self._pool = ThreadPoolExecutor(THREADS)
        self._settled: list[tuple[str, Request]] = []

    def check(self) -> None:
        """One effect per key, the same answer ever after, blocking and awaiting; and settle the keys to replay."""
        work, adapter = self._work, self._adapter
        if not getattr(adapter, "keyed", True):  # A reference without a key: nothing is replayed.
            adapter.fresh(*_named(work))
            return
        self._settled = [_named(work) for _ in range(SETTLED)]
        if self._separate:
            for one in (adapter, self._crowd):
                self._check("blocking", one.fresh, one.replay)
                self._check("awaiting", self._awaited(one.afresh), self._awaited(one.areplay))
            return
        self._check("blocking", adapter.fresh, adapter.replay)
        self._check_one("awaiting", self._awaited(adapter.afresh), self._awaited(adapter.areplay))
        if adapter.replay(*self._settled[0]) != self._awaited(adapter.areplay)(*self._settled[0]):
            raise Broken("awaiting: a replay gave another answer than the blocking one")

    def _check(self, colour: str, fresh: Callable[..., Result], replay: Callable[..., Result]) -> None:
        self._check_one(colour, fresh, replay)
        first = [fresh(key, request) for key, request in self._settled]
        effects = self._work.effects
        if first != [replay(key, request) for key, request in self._settled]:
            raise Broken(f"{colour}: a replay gave another answer")
        if self._work.effects != effects:
            raise Broken(f"{colour}: {self._work.effects - effects} effects in {SETTLED} replays")

    def _check_one(self, colour: str, fresh: Callable[..., Result], replay: Callable[..., Result]) -> None:
        key, before = self._work.key(), self._work.effects
        request = self._work.request(key)
        answers = [fresh(key, request)] + [replay(key, request) for _ in range(CHECKED)]
        if self._work.effects != before + 1:
            raise Broken(f"{colour}: {self._work.effects - before} effects for one key asked {CHECKED + 1} times")
        if any(answer != answers[0] for answer in answers):
            raise Broken(f"{colour}: a replay gave another answer")

    def _awaited(self, method: Callable[..., Any]) -> Callable[..., Result]:
        def call(key: str, request: Request) -> Result:
            result: Result = self._loop.run_until_complete(method(key, request))
            return result

        return call

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Do as many operations as fit, and tell how many effects there were."""
        effects, cpu, begin = self._work.effects, time.process_time(), time.perf_counter()
        operations = self._run(case, Enough(seconds, None))
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        self._check_effects(case, operations, self._work.effects - effects)
        return {"operations": operations, "seconds": elapsed, "cpu": cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Do so many, between marks."""
        mark()
        done = self._run(case, Enough(None, operations))
        mark()
        return {"operations": done}

    def _check_effects(self, case: str, operations: int, effects: int) -> None:
        if effects != (operations if case.startswith("fresh") else 0):
            raise Broken(f"{effects} effects in {operations} operations")

    def _run(self, case: str, enough: Enough) -> int:
        kind, shape = case.split("_")
        if shape == "seq":
            return self._blocking(self._adapter, kind, enough)
        if shape == "thr":
            return sum(self._pool.map(lambda _: self._blocking(self._crowd, kind, enough), range(THREADS)))
        if shape == "aseq":
            return self._loop.run_until_complete(self._awaiting(self._adapter, kind, enough))
        return sum(self._loop.run_until_complete(self._tasks(kind, enough)))

    def _blocking(self, adapter: Adapter, kind: str, enough: Enough) -> int:
        done, more = 0, enough.more
        if kind == "fresh":
            work, fresh = self._work, adapter.fresh
            while more():
                key = work.key()
                fresh(key, work.request(key))
                done += 1
        else:
            settled, replay = self._settled, adapter.replay
            while more():
                key, request = settled[done % SETTLED]
                replay(key, request)
                done += 1
        return done

    async def _awaiting(self, adapter: Adapter, kind: str, enough: Enough) -> int:
        done, more = 0, enough.more
        if kind == "fresh":
            work, fresh = self._work, adapter.afresh
            while more():
                key = work.key()
                await fresh(key, work.request(key))
                done += 1
        else:
            settled, replay = self._settled, adapter.areplay
            while more():
                key, request = settled[done % SETTLED]
                await replay(key, request)
                done += 1
        return done

    async def _tasks(self, kind: str, enough: Enough) -> list[int]:
        return await asyncio.gather(*(self._awaiting(self._crowd, kind, enough) for _ in range(TASKS)))

    def close(self) -> None:
        """Let go."""
        self._pool.shutdown()
        self._adapter.close()
        if self._crowd is not self._adapter:
            self._crowd.close()
        self._loop.close()


def _named(work: Work) -> tuple[str, Request]:
    key = work.key()
    return key, work.request(key)
