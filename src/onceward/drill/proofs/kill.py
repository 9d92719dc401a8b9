"""
kill -9 of a real process at every boundary of an operation; a retry by another process ends with one effect.

Keyed operations on every store, whose outside world honours keys; and, where the store can share a transaction, atomic
ones, whose rows are beside the record.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from onceward._core.capabilities import capabilities_of
from onceward.drill.bench import Bench
from onceward.drill.database import DrillTable, connect
from onceward.drill.drill_gate import LEASE_SECONDS
from onceward.drill.proof import FORK, ONE_EFFECT, PROCESSES, Claim, Numbers, Proof
from onceward.drill.sender import EFFECT
from onceward.gate.gate import Gate

KEYED = (
    "claim.before", "claim.after", "call.before", EFFECT, "call.after", "settle.before", "settle.after",
)  # fmt: skip
ATOMIC = (
    "begin.before", "begin.after", "claim.before", "claim.after", EFFECT, "settle.before", "settle.after",
    "commit.before", "commit.after",
)  # fmt: skip


def _run(bench: Bench) -> Numbers:
    gate = bench.gate(guarantee="keyed")
    places = list(KEYED) if bench.guarded else [EFFECT]  # Past the gate there is only this one.
    bench.random.shuffle(places)
    keyed = [(bench.key(place), place) for place in places]
    tasks = [bench.task("send", key, at=place, lease=LEASE_SECONDS) for key, place in keyed]
    ends = bench.nursery.run(tasks)
    killed = sum(end.was_killed for end in ends)
    retried = [bench.send(gate, key, _charge(bench, key), request=tasks[0]["request"])[0] for key, _ in keyed]
    atomic = _atomic(bench, gate) if bench.guarded and capabilities_of(gate.store).joins is not None else []
    return {
        "operations": len(keyed) + len(atomic),
        "effects": sum(bench.book.count(key) for key, _ in keyed) + sum(rows for rows, _ in atomic),
        "boundaries": len(keyed) + len(atomic),
        "killed": killed + sum(died for _, died in atomic),
        "answers": len([one for one in retried if one]) + len(atomic),
        "effectsByBoundary": {
            **{place: bench.book.count(key) for key, place in keyed},
            **{f"atomic {place}": rows for place, (rows, _) in zip(ATOMIC, atomic, strict=False)},
        },
    }


def _charge(bench: Bench, key: str) -> Any:
    def charge(operation: Any) -> dict[str, str]:
        bench.book.happen(key, None if operation is None else operation.downstream_key())
        return {"charged": key}

    return charge


def _atomic(bench: Bench, gate: Gate) -> list[tuple[int, bool]]:
    """For each boundary: how many rows there are after a retry, and whether the first process was killed."""
    with bench.table(constrained=False) as (made, url):
        if url != bench.url:
            return []
        keys = [bench.key(f"atomic-{place}") for place in ATOMIC]
        tasks = [
            bench.task("send_atomic", key, at=place, table=made.name) for key, place in zip(keys, ATOMIC, strict=True)
        ]
        ends = [bench.nursery.run([task])[0] for task in tasks]
        with closing(connect(url)) as connection:
            table = DrillTable(connection, made.name, constrained=False)
            for key, task in zip(keys, tasks, strict=True):
                row = {"worker_id": "drill", "idempotency_key": key, "amount": "12.50"}

                def book(row: dict[str, str] = row) -> None:
                    table.add(row)

                gate.atomic(connection, key, book, request=task["request"])
        return [(made.count(key), end.was_killed) for key, end in zip(keys, ends, strict=True)]


KILL = Proof(
    name="kill",
    shows="kill -9 at each boundary, from before the claim to after the settle: a retry ends with one effect",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("a process was killed at every boundary", lambda n: n["killed"] == n["boundaries"] >= len(KEYED)),
        Claim("every retry has an answer", lambda n: n["answers"] == n["boundaries"]),
        Claim(
            "at each boundary one effect",
            lambda n: set(n["effectsByBoundary"].values()) == {1} and len(n["effectsByBoundary"]) == n["boundaries"],
        ),
    ),
    needs=frozenset({PROCESSES, FORK}),
    table=lambda n: (
        ("KILLED AT", "EFFECTS AFTER A RETRY"),
        [(place, effects) for place, effects in n["effectsByBoundary"].items()],
    ),
)
