"""A holder is stopped for longer than its lease, is overtaken, and finishes late."""

from __future__ import annotations

import signal
from typing import Any

from compare.questions import Data, Question, effects, got
from compare.stage import Stage

LEASE_SECONDS = 1.5
PATIENCE_SECONDS = 15.0
KEY = ("order-1", {"amount": 5})


def ask(stage: Stage) -> Data:
    """SIGSTOP the first during its call, let a second take over, SIGCONT; then a third asks."""
    options: dict[str, Any] = {"lease": LEASE_SECONDS, "repeatable": True}
    first = stage.ask(KEY, then="hold", **options)
    first.held()
    first.signal(signal.SIGSTOP)
    (second,) = stage.answers(KEY, name="second", how="patiently", seconds=PATIENCE_SECONDS, **options)
    stage.go()
    first.signal(signal.SIGCONT)
    (late,) = first.answers()
    (third,) = stage.answers(KEY, name="third", **options)
    return {"effects": stage.effects()["order-1"], "second": second, "late": late, "third": third}


def overtook(data: Data) -> bool:
    """Whether the second caller ran it while the first was stopped."""
    return data["effects"] > 1 and "returned" in data["second"]


def agreed(data: Data) -> bool:
    """Whether nobody was given a result that differs from the others'."""
    results = [str(data[who]["returned"]) for who in ("second", "late", "third") if "returned" in data[who]]
    return len(set(results)) <= 1


def say(data: Data) -> str:
    """Who got what."""
    if not overtook(data):
        second, first = got(data["second"]), got(data["late"])
        return f"{effects(data['effects'])}; it was not overtaken: the second caller got {second}, the first {first}"
    said = f"{effects(data['effects'])}; the late one got {got(data['late'])}"
    if data["third"] == data["late"] and data["third"] != data["second"]:
        return f"{said}, and its result replaced the one that was already given out"
    if agreed(data):
        return f"{said}, and nobody got a result that differs"
    return f"{said}, which is not what the others got"


QUESTION = Question(
    name="overtaken",
    title="A holder is stopped for longer than its lease, another takes over, and the first finishes late.",
    how=(
        "SIGSTOP during the call, a second caller, SIGCONT, a third. Repeating is declared harmless. Right is that "
        "nobody gets a result that differs from the others'."
    ),
    ask=ask,
    say=say,
    cell=lambda data: ("agreed" if agreed(data) else "two results") if overtook(data) else "not overtaken",
    right=agreed,
    order=15,
)
