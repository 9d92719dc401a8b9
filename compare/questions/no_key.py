"""No key is given."""

from __future__ import annotations

from compare.questions import Data, Question, effects, got
from compare.stage import Stage


def ask(stage: Stage) -> Data:
    """Two calls with None as the key."""
    outcomes = stage.answers((None, {}), (None, {}))
    return {"effects": stage.effects().total(), "last": outcomes[-1]}


QUESTION = Question(
    name="no-key",
    title="The key is `None`, because a field was missing. Two calls.",
    how=(
        "No effect: it was refused, which is right. One: a key was made from the arguments. Two: it ran unprotected, "
        "each time."
    ),
    ask=ask,
    say=lambda data: f"{effects(data['effects'])}; the second caller got {got(data['last'])}",
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 0,
    order=22,
    # With temporalio a caller always makes an id.
    only=(
        "Onceward",
        "idemkit",
        "agent-once",
        "exactly-once",
        "aws-lambda-powertools",
        "dbos",
        "idempotent-tools",
        "idemkey",
    ),
)
