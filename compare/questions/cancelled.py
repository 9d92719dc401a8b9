"""An awaited call is cancelled after its effect."""

from __future__ import annotations

from compare.questions import Data, Question, effects, got
from compare.stage import Stage


def ask(stage: Stage) -> Data:
    """Cancel the task where it awaits after its effect; then call again."""
    outcomes = stage.answers(("order-1", {}), then="hold", how="cancelled")
    return {"effects": stage.effects()["order-1"], "second": outcomes[-1]}


QUESTION = Question(
    name="cancelled",
    title="An awaited call is cancelled after its effect, and made again.",
    how="`task.cancel()` while the function awaits something after its effect. One effect is right.",
    ask=ask,
    say=lambda data: f"{effects(data['effects'])}; the second call got {got(data['second'])}",
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1,
    order=20,
    only=("Onceward", "idemkit", "agent-once", "exactly-once", "dbos"),
)
