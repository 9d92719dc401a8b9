"""
Many callers, one key and a handful of keys: one effect for each, and every caller learns the same answer.

A small crowd in every run; the whole (32 processes, 64 threads, 1,000 tasks) with `make racers`, or RACERS=all.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from json import loads
from pathlib import Path

import pytest

from onceward import AsyncGate, Gate
from servers import postgres, redis

HERE = Path(__file__).parent
ALL = os.environ.get("RACERS") == "all"
PROCESSES, THREADS, TASKS = (32, 64, 1_000) if ALL else (4, 16, 200)
WAIT_SECONDS = 120
KEYS = {"one key": ["k0"], "a handful of keys": [f"k{n}" for n in range(5)]}


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder}/racers.db"


def _postgres(_: Path) -> str:
    # Two connections each: all the processes together stay below what the server allows.
    return postgres.running().url("onceward", options="onceward_pool=2&onceward_lock_timeout=60")


def _redis(_: Path) -> str:
    return redis.running().url()


def _stores() -> Iterator[Callable[[Path], str]]:
    yield _sqlite
    if postgres.wanted():
        yield _postgres
    if redis.wanted():
        yield _redis


@pytest.fixture(params=list(_stores()), ids=lambda one: one.__name__.strip("_"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param is _postgres:
        server = postgres.running()
        server.execute("DROP TABLE IF EXISTS onceward_records, onceward_meta", "onceward")
    return str(request.param(tmp_path))


@pytest.fixture(params=list(KEYS))
def keys(request: pytest.FixtureRequest) -> list[str]:
    return KEYS[request.param]


class Race:
    """What happened, and what everybody was told."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.told: list[tuple[str, str]] = []
        self._begun = time.monotonic()

    def effect(self, key: str, name: str) -> str:
        """Have the effect of a key; its answer names whoever had it."""
        self.effects[key] += 1
        return name

    def figures(self, story: str) -> tuple[set[int], set[int]]:
        """The numbers of effects per key, and of different answers per key: {1} and {1} if all is well."""
        answers = {key: {answer for one, answer in self.told if one == key} for key in self.effects}
        effects, different = set(self.effects.values()), {len(one) for one in answers.values()}
        seconds = time.monotonic() - self._begun
        print(
            f"{story}: {len(self.told)} calls, {len(self.effects)} keys, {sum(self.effects.values())} effects, "
            f"answers per key {sorted(different)}, {seconds:.1f} s"
        )
        return effects, different


@pytest.mark.slow
def test_processes(url: str, tmp_path: Path) -> None:
    """
    Each with a gate of its own, all let go at the same moment: first for one key, then for a handful.
    """
    keys = ["alone", *KEYS["a handful of keys"]]
    log, command = tmp_path / "effects", [sys.executable, str(HERE / "racer.py"), url]
    log.touch()
    _opened(url)
    racers = [
        subprocess.Popen(
            [*command, str(log), f"process {n}", *keys], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(PROCESSES)
    ]
    try:
        for racer in racers:
            assert racer.stdout.readline() == "ready\n"  # type: ignore[union-attr]
        race = Race()
        for racer in racers:
            racer.stdin.write("go\n")  # type: ignore[union-attr]
            racer.stdin.flush()  # type: ignore[union-attr]
        for racer in racers:
            race.told += loads(racer.communicate(timeout=WAIT_SECONDS)[0]).items()
    finally:
        for racer in racers:
            with suppress(ProcessLookupError):
                racer.kill()
            racer.communicate()
    race.effects.update(log.read_text().split())

    assert race.figures(f"{PROCESSES} processes on {_kind(url)}") == ({1}, {1})
    assert (PROCESSES * len(keys), len(keys)) == (len(race.told), len(race.effects))


@pytest.mark.slow
def test_threads(url: str, keys: list[str]) -> None:
    """
    One gate, and a thread for each caller.
    """
    _opened(url)
    with Gate(url, scope="test:racers", wait=WAIT_SECONDS) as gate:
        race = _threads_race(keys, lambda _: gate)

    assert race.figures(f"{THREADS} threads on {_kind(url)}") == ({1}, {1})
    assert (THREADS * len(keys), len(keys)) == (len(race.told), len(race.effects))


@pytest.mark.slow
def test_tasks(url: str, keys: list[str]) -> None:
    """
    One gate, and a task for each caller.
    """
    _opened(url)
    race = Race()

    async def crowd() -> None:
        async with AsyncGate(url, scope="test:racers", wait=WAIT_SECONDS) as gate:

            async def call(number: int) -> None:
                for key in keys:

                    async def effect(key: str = key) -> str:
                        return race.effect(key, f"task {number}")

                    race.told.append((key, await gate.run(key, effect)))

            await asyncio.gather(*(call(n) for n in range(TASKS)))

    asyncio.run(crowd())

    assert race.figures(f"{TASKS} tasks on {_kind(url)}") == ({1}, {1})
    assert (TASKS * len(keys), len(keys)) == (len(race.told), len(race.effects))


def test_the_count_can_fail(keys: list[str]) -> None:
    """
    Callers whose gates do not share a store have an effect each, and hear different answers.
    """
    gates = [Gate("memory://", scope="test:racers") for _ in range(THREADS)]
    race = _threads_race(keys, lambda number: gates[number])
    for gate in gates:
        gate.close()

    assert race.figures("gates of their own") == ({THREADS}, {THREADS})


def _threads_race(keys: list[str], gate_of: Callable[[int], Gate]) -> Race:
    race, start = Race(), threading.Barrier(THREADS)

    def call(number: int) -> None:
        start.wait()
        for key in keys:
            answer = gate_of(number).run(key, lambda key=key: race.effect(key, f"thread {number}"))
            race.told.append((key, answer))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return race


def _opened(url: str) -> None:
    """The tables or files are there before the race, which is about claiming."""
    with Gate(url, scope="test:racers") as gate:
        gate.records.get("nothing")


def _kind(url: str) -> str:
    return url.partition(":")[0]
