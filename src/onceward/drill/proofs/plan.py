"""A plan whose second step fails: run again, it goes on where it failed, and the first step is not repeated."""

from __future__ import annotations

from onceward._core.errors import NothingHappened
from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof

STEPS = ("charge", "ship", "mail")


def _run(bench: Bench) -> Numbers:
    name, gate = bench.key("plan"), bench.gate()
    plan = gate.plan(name)
    closed = True

    def perform(step: str) -> str:
        if step == "ship" and closed:
            raise NothingHappened("the warehouse is closed")
        bench.book.happen(f"{name}/{step}")
        return step

    def run_plan() -> int:
        """Every step in order, until one fails; how many were done."""
        for done, step in enumerate(STEPS):
            try:
                if bench.guarded:
                    plan.step(step, lambda step=step: perform(step))
                else:
                    perform(step)
            except NothingHappened:
                return done
        return len(STEPS)

    before = run_plan()
    closed = False
    after = run_plan()
    effects = [bench.book.count(f"{name}/{step}") for step in STEPS]
    return {
        "operations": len(STEPS),
        "effects": sum(effects),
        "effectsByStep": effects,
        "doneFirst": before,
        "doneThen": after,
    }


PLAN = Proof(
    name="plan",
    shows="a plan whose second step fails continues from there when it is run again; the first step is not repeated",
    without="the plan",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("each step has one effect", lambda n: n["effectsByStep"] == [1, 1, 1]),
        Claim("the plan failed, and was then finished", lambda n: (n["doneFirst"], n["doneThen"]) == (1, 3)),
    ),
)
