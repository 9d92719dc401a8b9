"""A process is killed after it claimed the key, before the effect."""

from __future__ import annotations

from compare.place import patience
from compare.questions import Data, Question, effects, got
from compare.questions.killed_after import LEASE_SECONDS, PATIENCE_SECONDS
from compare.stage import Stage


def ask(stage: Stage) -> Data:
    """Kill it there; then another process calls until it has a result or no more patience."""
    first = stage.ask(("order-1", {"amount": 5}), then="before", lease=LEASE_SECONDS)
    first.held()
    first.kill()
    stage.go()
    (second,) = stage.answers(
        ("order-1", {"amount": 5}),
        name="second",
        lease=LEASE_SECONDS,
        how="patiently",
        seconds=patience(PATIENCE_SECONDS),
    )
    return {"effects": stage.effects()["order-1"], "second": second}


def better(ours: Data, theirs: Data) -> str | None:
    """It was done without anybody's help."""
    if theirs["effects"] == 1 and "returned" in theirs["second"] and "raised" in ours["second"]:
        return ""
    return None


QUESTION = Question(
    name="killed-before",
    title="A process is killed before the effect. Another calls again.",
    how=(
        "The same, a moment earlier. One effect and a result is best; no effect and an error asks a person to look "
        "first. From outside the two cases look alike: a package that runs it again here runs it twice there."
    ),
    ask=ask,
    say=lambda data: f"{effects(data['effects'])}; the second caller got {got(data['second'])}",
    cell=lambda data: f"{effects(data['effects'])}, {got(data['second'])}",
    right=lambda data: data["effects"] <= 1,
    better=better,
    best=lambda ours: "Finish automatically what was killed before its effect; Onceward asks first",
    order=11,
)
