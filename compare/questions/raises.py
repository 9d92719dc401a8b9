"""The function raises after its effect, as a lost response does."""

from __future__ import annotations

from compare.questions import Data, Question, effects, got
from compare.stage import Stage

CALLS = 3


def ask(stage: Stage) -> Data:
    """Three calls; each run has its effect, and then a timeout is raised."""
    outcomes = stage.answers(*[("order-1", {"amount": 5})] * CALLS, then="raise")
    return {"effects": stage.effects()["order-1"], "last": outcomes[-1]}


QUESTION = Question(
    name="raises",
    title="The function raises after its effect: a response was lost. The caller tries three times.",
    how="A subclass of `TimeoutError`, raised after the effect, three calls. One effect is right.",
    ask=ask,
    row="Raises after the effect, three calls",
    say=lambda data: f"{effects(data['effects'])} for three calls; the last caller got {got(data['last'])}",
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1,
    order=14,
)
