"""The late finisher: stopped past its lease, overtaken, woken. It changes nothing, and hears the winner's answer."""

from __future__ import annotations

from typing import Any

from onceward.drill.bench import Bench
from onceward.drill.proof import FORK, ONE_EFFECT, PROCESSES, Claim, Numbers, Proof
from onceward.drill.sender import EFFECT

LEASE_SECONDS = 0.5


def _run(bench: Bench) -> Numbers:
    key = bench.key("late")
    gate = bench.gate(guarantee="keyed", lease=LEASE_SECONDS)

    def charge(operation: Any) -> dict[str, str]:
        bench.book.happen(key, None if operation is None else operation.downstream_key())
        return {"charged": key, "by": "the winner"}

    task = bench.task("send", key, at=EFFECT, action="stop", lease=LEASE_SECONDS)
    bench.nursery.start([task])
    bench.nursery.wait_for_stop()
    answer, _ = bench.send(gate, key, charge, request=task["request"])
    fence = _fence(bench, gate, key)
    bench.nursery.wake()
    [end] = bench.nursery.finish()
    again, replayed = bench.send(gate, key, charge, request=task["request"]) if bench.guarded else (answer, False)
    return {
        "operations": 1,
        "effects": bench.book.count(key),
        "lateWasTold": int((end.report or {}).get("lost") == answer),
        "fenceMoved": _fence(bench, gate, key) - fence,
        "sameAfterwards": int(again == answer and replayed),
    }


def _fence(bench: Bench, gate: Any, key: str) -> int:
    found = gate.records.get(key) if bench.guarded else None
    return 0 if found is None else int(found.fence)


LATE_FINISHER = Proof(
    name="late-finisher",
    shows="a holder that is stopped past its lease and overtaken changes nothing when it wakes",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("the late holder gets the winner's result", lambda n: n["lateWasTold"] == 1),
        Claim("the late holder writes nothing", lambda n: n["fenceMoved"] == 0 and n["sameAfterwards"] == 1),
    ),
    needs=frozenset({PROCESSES, FORK}),
)
