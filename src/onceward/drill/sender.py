"""
What a child of the drill does: send an operation, and die, stop or race as its task says.
"""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from onceward._core.errors import OwnershipLost
from onceward.drill.database import DrillTable, connect
from onceward.drill.drill_gate import open_gate
from onceward.drill.effect_book import EffectBook
from onceward.drill.nursery_process import Pistol, Work
from onceward.runtime import failpoints

EFFECT = failpoints.declare("drill.effect.after", "a drill's effect took place, and its function has not returned")


LEFT_OUT = "renew."
"""Renewals come when a machine is slow, and not when it is not: no boundary that a run can be sure to meet."""


def arm(task: dict[str, Any]) -> None:
    """Arm the failpoint that a task names, if it names one; or, to find out which there are, note every hit."""
    if task.get("at"):
        failpoints.arm(task["at"], task.get("action", "kill"), skip=task.get("skip", 0))
    elif "hits" in task:
        for name in failpoints.CATALOGUE:
            if not name.startswith(LEFT_OUT):
                failpoints.arm(name, partial(task["hits"].append, name))


def send(task: dict[str, Any], _: Pistol) -> dict[str, Any]:
    """Send a keyed operation once, through the gate or past it; the answer, or who else has it."""
    book, key = EffectBook(Path(task["book"])), task["key"]

    def charge(operation: Any) -> dict[str, str]:
        book.happen(key, None if operation is None else operation.downstream_key())
        failpoints.hit(EFFECT)
        return {"charged": key}

    if not task["guarded"]:
        arm(task)
        return {"answer": charge(None)}
    with open_gate(task["url"], task["scope"], guarantee="keyed", lease=task["lease"]) as gate:
        arm(task)
        try:
            return {"answer": gate.run(key, charge, request=task["request"]), "hits": task.get("hits")}
        except OwnershipLost as lost:
            return {"lost": lost.outcome.value if lost.outcome else None}


def send_atomic(task: dict[str, Any], _: Pistol) -> dict[str, Any]:
    """Write a row and its record in one transaction."""
    key, row = task["key"], {"worker_id": "drill", "idempotency_key": task["key"], "amount": "12.50"}
    with closing(connect(task["url"])) as connection, open_gate(task["url"], task["scope"]) as gate:
        table = DrillTable(connection, task["table"], constrained=False)

        def book() -> dict[str, str]:
            table.add(row)
            failpoints.hit(EFFECT)
            return {"booked": key}

        arm(task)
        return {"answer": gate.atomic(connection, key, book, request=task["request"]), "hits": task.get("hits")}


def race(task: dict[str, Any], pistol: Pistol) -> dict[str, Any]:
    """Many threads send the same operation as soon as all processes are ready."""
    return race_here(task, pistol.wait)


def race_here(task: dict[str, Any], wait: Any) -> dict[str, Any]:
    """The same, in this process."""
    book, key = EffectBook(Path(task["book"])), task["key"]
    answers: list[tuple[str, bool]] = []
    begin = threading.Event()

    def charge(name: str) -> str:
        book.happen(key)
        return name

    with open_gate(task["url"], task["scope"]) as gate:

        def racer(name: str) -> None:
            begin.wait()
            if task["guarded"]:
                outcome = gate.call(key, lambda: charge(name), request=task["request"])
                answers.append((outcome.value, outcome.replayed))
            else:
                answers.append((charge(name), False))

        gate.records.get(key)  # Opened in earnest, so that the race is about what it is about.
        threads = [threading.Thread(target=racer, args=(f"{task['name']}-{n}",)) for n in range(task["threads"])]
        for thread in threads:
            thread.start()
        try:
            wait()
        finally:
            begin.set()
        for thread in threads:
            thread.join()
    return {"answers": sorted({value for value, _ in answers}), "replayed": sum(replayed for _, replayed in answers),
            "answered": len(answers)}  # fmt: skip


def relay_once(task: dict[str, Any], _: Pistol) -> dict[str, Any]:
    """A relay that delivers what is due, and may be killed just after."""
    from onceward.drill.proofs.relay import step_of

    arm(task)
    return {"delivered": step_of(task["url"], task["endpoint"], Path(task["book"]), task["scope"], task["guarded"])}


WORKS: dict[str, Work] = {"send": send, "send_atomic": send_atomic, "race": race, "relay": relay_once}
"""By the word that a task has for it."""
