"""The store's server is killed and started again while a call is under way."""

from __future__ import annotations

from compare.questions import Data, Question, effects, got
from compare.stage import Stage

LEASE_SECONDS = 20.0
KEY = ("order-1", {"amount": 5})


def ask(stage: Stage) -> Data:
    """Kill the server after the effect and start it again; then the function returns; then another process calls."""
    first = stage.ask(KEY, then="hold", lease=LEASE_SECONDS)
    first.held()
    stage.server.kill()
    stage.server.start()
    stage.go()
    (answered,) = first.answers()
    (second,) = stage.answers(KEY, name="second", lease=LEASE_SECONDS, how="patiently", seconds=LEASE_SECONDS + 10)
    return {"effects": stage.effects()["order-1"], "first": answered, "second": second}


QUESTION = Question(
    name="store-restarts",
    title="The database server is killed and started again during a call.",
    how=(
        "PostgreSQL (or Redis, where a peer has only that) is killed after the effect. One effect is right; and "
        "best is that both callers get the result."
    ),
    ask=ask,
    say=lambda data: (
        f"{effects(data['effects'])}; the first caller got {got(data['first'])}, the second {got(data['second'])}"
    ),
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1,
    server=True,
    order=21,
    only=("Onceward", "idemkit", "agent-once", "exactly-once", "aws-lambda-powertools", "dbos"),
)
