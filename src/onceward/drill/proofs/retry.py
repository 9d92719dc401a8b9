"""The same insert, again and again: the table's own constraint says 1, 0, 0, and the count stays at 1."""

from __future__ import annotations

from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof


def _run(bench: Bench) -> Numbers:
    row = {"worker_id": "drill", "idempotency_key": bench.key("row"), "amount": "12.50"}
    affected, counts = [], []
    with bench.table(constrained=bench.guarded) as (table, _):
        for _ in range(bench.setting.times):
            affected.append(table.insert(row))
            counts.append(table.count())
    return {"operations": 1, "effects": counts[-1], "affected": affected, "counts": counts}


def _one_then_none(numbers: Numbers) -> bool:
    first, *rest = numbers["affected"]
    return first == 1 and len(rest) > 0 and set(rest) == {0}


def _stays_at_one(numbers: Numbers) -> bool:
    return set(numbers["counts"]) == {1} and len(numbers["counts"]) == len(numbers["affected"])


def _table(numbers: Numbers) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    rows = zip(numbers["affected"], numbers["counts"], strict=True)
    return ("ATTEMPT", "AFFECTED", "COUNT"), [(number, *row) for number, row in enumerate(rows, 1)]


RETRY = Proof(
    name="retry",
    shows="the same insert several times: it affects one row, then none, and the count stays at 1",
    without="the unique constraint",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("the first insert affects one row and the others none", _one_then_none),
        Claim("the count is 1 after each insert", _stays_at_one),
    ),
    table=_table,
)
