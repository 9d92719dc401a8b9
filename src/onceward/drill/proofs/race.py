"""Fifty racers for one key, in several processes and many threads: one effect, and all hear the same answer."""

from __future__ import annotations

from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof
from onceward.drill.sender import race_here
from onceward.stores._store_kinds import kind_of

PROCESSES_MAX = 5


def _run(bench: Bench) -> Numbers:
    key, racers = bench.key("race"), bench.setting.racers
    processes = min(PROCESSES_MAX, racers) if kind_of(bench.url).processes else 1
    tasks = [
        bench.task("race", key, name=str(n), threads=racers // processes + (n < racers % processes))
        for n in range(processes)
    ]
    if processes == 1:
        reports = [race_here(tasks[0], lambda: None)]
        bench.said.append("threads of one process: no other process can open this store")
    else:
        reports = [end.report or {} for end in bench.nursery.run(tasks)]
    answered = [report for report in reports if "answers" in report]
    return {
        "operations": 1,
        "effects": bench.book.count(key),
        "racers": racers,
        "answered": sum(report["answered"] for report in answered),
        "answers": len({answer for report in answered for answer in report["answers"]}),
        "replayed": sum(report["replayed"] for report in answered),
    }


RACE = Proof(
    name="race",
    shows="fifty callers send the same operation at once: one effect, and every caller gets the same result",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("every caller gets a result", lambda n: n["answered"] == n["racers"] >= 2),
        Claim("all results are equal", lambda n: n["answers"] == 1),
        Claim("one caller ran it, and the others got its result", lambda n: n["replayed"] == n["racers"] - 1),
    ),
)
