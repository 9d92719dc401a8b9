"""
kill -9 of a real process at every boundary of an operation; a retry by another process ends with one effect.

Which boundaries there are is found out first, by a run that is left alone: they differ from store to store. Keyed
operations on every store, whose outside world honours keys; and, where the store can share a transaction, atomic ones,
whose rows are beside the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from onceward._core.capabilities import capabilities_of
from onceward.drill.bench import Bench
from onceward.drill.drill_gate import LEASE_SECONDS
from onceward.drill.nursery import DrillBroken
from onceward.drill.proof import FORK, ONE_EFFECT, PROCESSES, Claim, Numbers, Proof
from onceward.drill.sender import EFFECT
from onceward.gate.gate import Gate

LEAST = 7
"""Boundaries that there are on every store: both sides of claim, call and settle, and the effect's own."""


class Boundary(NamedTuple):
    """A place to be killed at: a failpoint, and how often it is passed before."""

    at: str
    skip: int = 0

    def __str__(self) -> str:
        return self.at + (f" #{self.skip + 1}" if self.skip else "")


class Killed(NamedTuple):
    """What became of one operation whose first sender was killed."""

    boundary: str
    died: bool
    answered: bool
    effects: int


def _run(bench: Bench) -> Numbers:
    gate = bench.gate(guarantee="keyed")
    found = _keyed(bench, gate)
    if bench.guarded and capabilities_of(gate.store).joins is not None:
        found += _atomic(bench, gate)
    return {
        "operations": len(found),
        "effects": sum(one.effects for one in found),
        "killed": sum(one.died for one in found),
        "answers": sum(one.answered for one in found),
        "effectsByBoundary": {one.boundary: one.effects for one in found},
    }


def _keyed(bench: Bench, gate: Gate) -> list[Killed]:
    def task(key: str, **more: Any) -> dict[str, Any]:
        return bench.task("send", key, lease=LEASE_SECONDS, **more)

    def retry(key: str) -> bool:
        def charge(operation: Any) -> dict[str, str]:
            bench.book.happen(key, None if operation is None else operation.downstream_key())
            return {"charged": key}

        return bool(bench.send(gate, key, charge, request=task(key)["request"])[0])

    # Past the gate there is one boundary only.
    places = _boundaries(bench, task(bench.key("whole"), hits=[])) if bench.guarded else [Boundary(EFFECT)]
    return _each_killed(bench, "", places, task, retry, bench.book.count)


def _atomic(bench: Bench, gate: Gate) -> list[Killed]:
    with bench.table(constrained=False) as (table, url):
        if url != bench.url:
            return []

        def task(key: str, **more: Any) -> dict[str, Any]:
            return bench.task("send_atomic", key, table=table.name, **more)

        def retry(key: str) -> bool:
            row = {"worker_id": "drill", "idempotency_key": key, "amount": "12.50"}
            request = task(key)["request"]

            def book() -> dict[str, str]:
                table.add(row)
                return {"booked": key}

            return bool(gate.atomic(table.connection, key, book, request=request))

        places = _boundaries(bench, task(bench.key("whole-atomic"), hits=[]))
        return _each_killed(bench, "atomic ", places, task, retry, table.count)


def _boundaries(bench: Bench, task: dict[str, Any]) -> list[Boundary]:
    """The boundaries that a run goes through which is left alone, in an order that the seed chooses."""
    [end] = bench.nursery.run([task])
    if not end.report or "hits" not in end.report:
        raise DrillBroken(f"a sender that was not killed ended without a result: {end.report or end.output}")
    seen: Counter[str] = Counter()
    places = []
    for name in end.report["hits"]:
        places.append(Boundary(name, seen[name]))
        seen[name] += 1
    return bench.random.sample(places, len(places))


def _each_killed(
    bench: Bench,
    prefix: str,
    places: list[Boundary],
    task: Callable[..., dict[str, Any]],
    retry: Callable[[str], bool],
    count: Callable[[str], int],
) -> list[Killed]:
    """A sender killed at each of these places, and another one that tries again."""
    keys = [bench.key(f"{prefix.strip()}{place.at}") for place in places]
    ends = [
        bench.nursery.run([task(key, at=place.at, skip=place.skip)])[0] for key, place in zip(keys, places, strict=True)
    ]
    return [
        Killed(f"{prefix}{place}", end.was_killed, retry(key), count(key))
        for key, place, end in zip(keys, places, ends, strict=True)
    ]


KILL = Proof(
    name="kill",
    shows="kill -9 at each boundary, from before the claim to after the settle: a retry ends with one effect",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("a process was killed at every boundary", lambda n: n["killed"] == n["operations"] >= LEAST),
        Claim("every retry gets a result", lambda n: n["answers"] == n["operations"]),
        Claim(
            "one effect at each boundary",
            lambda n: set(n["effectsByBoundary"].values()) == {1} and len(n["effectsByBoundary"]) == n["operations"],
        ),
    ),
    needs=frozenset({PROCESSES, FORK}),
    table=lambda n: (("KILLED AT", "EFFECTS AFTER A RETRY"), [*n["effectsByBoundary"].items()]),
)
