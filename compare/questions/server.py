"""Whether it works without a server."""

from __future__ import annotations

from compare.questions import Data, Question, effects
from compare.stage import Stage

NAMES = {"sqlite": "a file (SQLite)", "postgres": "PostgreSQL", "redis": "Redis", "temporal": "Temporal's own server"}


def ask(stage: Stage) -> Data:
    """Two calls on the simplest store that its adapter has."""
    outcomes = stage.answers(*[("order-1", {})] * 2)
    return {
        "store": stage.peer.stores[0],
        "effects": stage.effects()["order-1"],
        "same": outcomes[0] == outcomes[1] and "returned" in outcomes[0],
    }


def say(data: Data) -> str:
    """Where it ran, and that it worked there."""
    worked = f"{effects(data['effects'])} for two calls, {'the same result' if data['same'] else 'not the same result'}"
    return f"{'none' if data['store'] == 'sqlite' else NAMES[data['store']]}; {worked}"


QUESTION = Question(
    name="server",
    title="Does it need a server?",
    how="Two calls with one key on the simplest store that works here.",
    ask=ask,
    row="Needs a server",
    say=say,
    cell=lambda data: "no" if data["store"] == "sqlite" else NAMES[data["store"]],
    right=lambda data: data == {"store": "sqlite", "effects": 1, "same": True},
    order=43,
)
