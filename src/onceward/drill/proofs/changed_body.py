"""The same key with another request: refused, and the first answer stands."""

from __future__ import annotations

from typing import Any

from onceward._core.errors import KeyReused
from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof


def _run(bench: Bench) -> Numbers:
    key, gate = bench.key("changed"), bench.gate()
    refused, answers = 0, []
    amounts = ["12.50", f"{bench.random.randrange(13, 99)}.50", "12.50"]
    for amount in amounts:

        def charge(_: Any, amount: str = amount) -> str:
            bench.book.happen(key)
            return amount

        try:
            answers.append(bench.send(gate, key, charge, request={"amount": amount})[0])
        except KeyReused:
            refused += 1
    return {
        "operations": 1,
        "effects": bench.book.count(key),
        "sent": len(amounts),
        "refused": refused,
        "firstAnswers": answers.count("12.50"),
    }


CHANGED_BODY = Proof(
    name="changed-body",
    shows="a key that is reused for another request is refused, and the first result stands",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("the changed request is refused", lambda n: n["refused"] == 1),
        Claim("the unchanged requests get the first result", lambda n: n["firstAnswers"] == n["sent"] - 1 == 2),
    ),
)
