"""Several processes call with the same keys at the same moment."""

from __future__ import annotations

from compare.questions import Data, Question
from compare.stage import Stage

PROCESSES = 4
KEYS = 100


def ask(stage: Stage) -> Data:
    """One call first; then four processes wait for each other, and call with the same keys in the same order."""
    stage.answers(("before", {}), name="before")  # Its tables are made: a deployment does that before.
    calls = [(f"order-{key}", {"amount": key}) for key in range(KEYS)]
    asked = [stage.ask(*calls, name=f"p{one}", together=PROCESSES) for one in range(PROCESSES)]
    outcomes = [outcome for one in asked for outcome in one.answers()]
    counted = stage.effects()
    del counted["before"]
    return {
        "keys": KEYS,
        "effects": counted.total(),
        "most": max(counted.values(), default=0),
        "refused": sum("raised" in outcome for outcome in outcomes),
        "errors": sorted({outcome["raised"] for outcome in outcomes if "raised" in outcome}),
    }


def say(data: Data) -> str:
    """Effects for so many keys, and what callers were refused with."""
    said = f"{data['effects']} effects for {data['keys']} keys"
    if data["most"] > 1:
        said += f", up to {data['most']} for one key"
    if data["refused"]:
        errors = ", ".join(f"`{name}`" for name in data["errors"])
        said += f"; {data['refused']} of {PROCESSES * data['keys']} callers got {errors}"
    return said


QUESTION = Question(
    name="at-once",
    title="Four processes call with the same keys at the same moment.",
    how="Each calls 100 keys in the same order, after waiting for the others. 100 effects are right.",
    ask=ask,
    row="Four processes at once",
    say=say,
    cell=lambda data: f"{data['effects']} for {data['keys']} keys",
    right=lambda data: data["effects"] == data["keys"] and not data["refused"],
    order=12,
)
