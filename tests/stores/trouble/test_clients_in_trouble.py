"""Clients of PostgreSQL and Redis that are killed at every boundary, or sleep past their lease."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nursery import LEASE_SECONDS, send

from onceward import Gate, InDoubt
from servers import postgres, redis

pytestmark = pytest.mark.dose(1, of="place")

HERE = Path(__file__).parent
SECONDS_MAX = 60

BOUNDARIES = [
    *(("claim.before", 0), ("claim.after", 0), ("call.before", 0), ("test.effect.after", 0), ("call.after", 0)),
    *(("settle.before", 0), ("settle.after", 0)),
]
"""Of an operation; those of the store come with it, each for the claim and for the settle."""
SLEEPS = ("call.before", "test.effect.after", "call.after", "settle.before")
"""Where a holder has the claim and has not settled it."""


class Place:
    """A server's URL, and the failpoints of its store."""

    def __init__(self, name: str, url: str, *failpoints: str) -> None:
        self.name = name
        self.url = url
        self.boundaries = [*BOUNDARIES, *((one, skip) for one in failpoints for skip in (0, 1))]


def _places() -> Iterator[str]:
    if postgres.wanted():
        yield "postgres"
    if redis.wanted():
        yield "redis"


@pytest.fixture(params=list(_places()))
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "redis":
        return Place("redis", redis.running().url(), "redis.put.before", "redis.put.after", "batch.before_answer")
    server = postgres.running()
    server.execute("DROP TABLE IF EXISTS onceward_records, onceward_meta", "onceward")
    url = server.url("onceward")
    with Gate(url, scope="test:trouble") as gate:
        gate.records.get("nothing")  # The tables are there: what dies is a claim or a settle.
    return Place("postgres", url, "postgres.put.before", "postgres.put.after", "batch.before_answer")


class Nursery:
    """The process whose children die; see `nursery.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def raise_(self, plan: list[list[Any]]) -> dict[str, Any]:
        """What became of the children."""
        return self._told(json.dumps(plan))

    def wake(self) -> dict[str, Any]:
        """What became of those that slept."""
        return self._told("wake")

    def _told(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told


@contextmanager
def nursery(url: str, folder: Path) -> Iterator[Nursery]:
    """The nursery, ended afterwards."""
    for name in ("effects", "told"):
        (folder / name).touch()
    command = [sys.executable, str(HERE / "nursery.py"), url, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Nursery(process)
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)


def _effects(folder: Path, guarantee: str) -> Counter[str]:
    """Effects by key: a downstream that honours keys has one for each key it was passed."""
    lines = (folder / "effects").read_text().splitlines()
    return Counter(line.split()[0] for line in (set(lines) if guarantee == "keyed" else lines))


def _told(folder: Path) -> dict[str, str]:
    """What callers were told, by key."""
    return dict(line.split(" ", 1) for line in (folder / "told").read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["blind", "keyed"])
def test_killed_at_any_boundary_the_effect_happens_once_or_is_in_doubt(
    place: Place, guarantee: str, tmp_path: Path
) -> None:
    """
    kill -9 wherever it hurts, then a retry by another process: never two effects; a keyed one always ends with one; a
    blind one that may have happened is not run again.
    """
    keys = {f"{failpoint}-{skip}": (failpoint, skip) for failpoint, skip in place.boundaries}
    with nursery(place.url, tmp_path) as home:
        became = home.raise_([[key, guarantee, failpoint, "kill", skip] for key, (failpoint, skip) in keys.items()])
        before = _effects(tmp_path, guarantee)
        time.sleep(LEASE_SECONDS + 0.1)
        answers: dict[str, object] = {}
        with Gate(place.url, scope="test:trouble", wait=0) as gate:
            for key in keys:
                try:
                    answers[key] = send(gate, tmp_path, key, guarantee)
                except InDoubt:
                    answers[key] = InDoubt
            again = {key: send(gate, tmp_path, key, guarantee) for key in answers if answers[key] is not InDoubt}
    effects = _effects(tmp_path, guarantee)
    acknowledged = [key for key in answers if answers[key] is not InDoubt]
    lost = sum(again[key] != answers[key] for key in acknowledged)
    doubled = sum(count > 1 for count in effects.values())
    print(
        f"{place.name}, {guarantee}: killed {len(keys)}, acknowledged {len(acknowledged)}, in doubt "
        f"{len(keys) - len(acknowledged)}, lost {lost}, doubled {doubled}"
    )

    assert {-signal.SIGKILL} == set(became.values()), became
    assert (lost, doubled) == (0, 0)
    if guarantee == "keyed":
        assert list(keys) == acknowledged
        assert dict.fromkeys(keys, 1) == effects
    for key in set(keys) - set(acknowledged):
        assert before[key] == effects[key], f"{key} was in doubt, and somebody ran it"


@pytest.mark.slow
def test_a_holder_that_slept_past_its_lease_changes_nothing_and_learns_the_answer(place: Place, tmp_path: Path) -> None:
    """
    SIGSTOP with the claim in hand; another caller takes over and settles; SIGCONT: the sleeper is told so, and what
    the other was told still stands.
    """
    with nursery(place.url, tmp_path) as home:
        became = home.raise_([[where, "keyed", where, "stop", 0] for where in SLEEPS])
        time.sleep(LEASE_SECONDS + 0.1)
        with Gate(place.url, scope="test:trouble", wait=0) as gate:
            answers = {key: send(gate, tmp_path, key, "keyed") for key in SLEEPS}
            fences = {key: gate.records.get(key).fence for key in SLEEPS}  # type: ignore[union-attr]
            ended = home.wake()
            after = {key: send(gate, tmp_path, key, "keyed") for key in SLEEPS}
            stands = {key: gate.records.get(key).fence for key in SLEEPS}  # type: ignore[union-attr]
    effects, told = _effects(tmp_path, "keyed"), _told(tmp_path)
    lost = sum(after[key] != answers[key] for key in SLEEPS)
    doubled = sum(count > 1 for count in effects.values())
    print(f"{place.name}: slept {len(SLEEPS)}, acknowledged {len(answers)}, lost {lost}, doubled {doubled}")

    assert set(became.values()) == {"stopped"}, became
    assert set(ended.values()) == {0}
    assert (lost, doubled) == (0, 0)
    assert {key: f"overtaken done {key}" for key in SLEEPS} == told
    assert fences == stands
