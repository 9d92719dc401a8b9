"""A process is killed between the effect and its record."""

from __future__ import annotations

from functools import partial

from compare.place import patience
from compare.questions import Data, Question, effects, got
from compare.stage import Stage

LEASE_SECONDS = 1.5
PATIENCE_SECONDS = 12.0


def killed(stage: Stage, then: str) -> Data:
    """Kill the first caller there; then another process calls until it has a result or no more patience."""
    first = stage.ask(("order-1", {"amount": 5}), then=then, lease=LEASE_SECONDS)
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


def say(data: Data) -> str:
    """How many effects there were, and what the second caller got."""
    return f"{effects(data['effects'])}; the second caller got {got(data['second'])}"


QUESTION = Question(
    name="killed-after",
    title="A process is killed after the effect, before it is recorded. Another calls again.",
    how=(
        "`kill -9` at that point, then a new process calls for twelve seconds or until it has a result. One "
        "effect is right."
    ),
    ask=partial(killed, then="hold"),
    row="Killed after the effect, called again",
    say=say,
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1,
    order=10,
)
