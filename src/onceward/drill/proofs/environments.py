"""The same key in two environments: two operations, each with its own answer, and neither reads the other's."""

from __future__ import annotations

from typing import Any

from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof


def live_twin(scope: str) -> str:
    """The scope of the other environment, as random as the drill's own."""
    return f"live:{scope.partition(':')[2]}"


def _run(bench: Bench) -> Numbers:
    key, scopes = bench.key("same"), (bench.scope, live_twin(bench.scope))
    own, replayed = 0, 0
    for _ in range(2):
        for scope in scopes:

            def charge(_: Any, scope: str = scope) -> str:
                bench.book.happen(key)
                return scope

            answer, again = bench.send(bench.gate(scope=scope), key, charge)
            own += answer == scope
            replayed += again
    return {"operations": 2, "effects": bench.book.count(key), "ownAnswers": own, "replayed": replayed}


ENVIRONMENTS_APART = Proof(
    name="environments",
    shows="the same key in test and live is two operations, and neither gets the other's result",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("each environment gets its own result", lambda n: n["ownAnswers"] == 4),
        Claim("each retry is replayed", lambda n: n["replayed"] == 2),
    ),
)
