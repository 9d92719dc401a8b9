"""A function that is called once calls itself under another key."""

from __future__ import annotations

from compare.questions import Data, Question, effects
from compare.stage import Stage


def ask(stage: Stage) -> Data:
    """The outer call makes an inner one; then both are called again."""
    outcomes = stage.answers(("outer", {}), ("inner", {}), ("outer", {}), how="nested")
    counted = stage.effects()
    return {"outer": counted["outer"], "inner": counted["inner"], "inner_got": outcomes[1], "outer_got": outcomes[2]}


def own(data: Data) -> bool:
    """Whether each key has its own result."""
    return all(data[f"{key}_got"] == {"returned": {"charge": f"{key} by first"}} for key in ("inner", "outer"))


def say(data: Data) -> str:
    """Whether each key got its own result back."""
    if data["outer"] == data["inner"] == 1 and own(data):
        return "each key got its own result"
    seen = [
        f"`{key}` got {data[f'{key}_got'].get('returned', data[f'{key}_got'].get('raised'))}"
        for key in ("inner", "outer")
    ]
    return f"{effects(data['outer'])} of the outer key, {effects(data['inner'])} of the inner; afterwards " + ", ".join(
        seen
    )


QUESTION = Question(
    name="nested",
    title="A protected call makes another protected call.",
    how=(
        "Keys `outer` and `inner` on one store, each called again afterwards. One effect each, and its own "
        "result, are right."
    ),
    ask=ask,
    say=say,
    cell=lambda data: "own results" if own(data) else "wrong result",
    right=lambda data: data["outer"] == data["inner"] == 1 and own(data),
    order=19,
    # A workflow of dbos cannot be called from a step, which it says.
    only=(
        "Onceward",
        "idemkit",
        "agent-once",
        "exactly-once",
        "aws-lambda-powertools",
        "temporalio",
        "idempotent-tools",
        "idemkey",
    ),
)
