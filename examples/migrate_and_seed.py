"""
A plan: create the tables, seed them, switch over. It breaks in the middle and is simply run again.

What was done replays, what failed or was never reached runs. No step needs to be written so that it can be repeated:
`CREATE TABLE` stands here without IF NOT EXISTS.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from onceward import Gate, Operation


def migrate(gate: Gate, folder: Path) -> list[str]:
    """Run the plan; which of its steps ran now, and which were done before."""
    plan = gate.plan("migrate-42")
    told = []

    def create_tables(operation: Operation) -> list[str]:
        with closing(sqlite3.connect(folder / "shop.db")) as shop, operation.effect(), shop:
            shop.execute("CREATE TABLE plans (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
        return ["plans"]

    def seed(operation: Operation) -> int:
        # Before the effect: if this raises, nothing happened, and the step may run again.
        plans = json.loads((folder / "plans.json").read_text())
        with closing(sqlite3.connect(folder / "shop.db")) as shop, operation.effect(), shop:
            shop.executemany("INSERT INTO plans VALUES (?, ?)", plans.items())
        return len(plans)

    def switch_over(operation: Operation) -> str:
        with operation.effect():
            (folder / "current").write_text("shop.db")
        return "shop.db"

    for step, work in (("create-tables", create_tables), ("seed", seed), ("switch-over", switch_over)):
        outcome = plan.call(step, work)
        told.append(f"{step} {'replayed' if outcome.replayed else 'ran'}: {outcome.value}")
        print(f"  {told[-1]}")
    return told


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Gate(f"sqlite:///{folder / 'onceward.db'}", scope="test:migrations") as gate:
            print("1st run:")
            try:
                migrate(gate, folder)
            except FileNotFoundError:
                print("  seed failed: plans.json is missing")
            (folder / "plans.json").write_text(json.dumps({"free": 0, "team": 900}))
            print("2nd run, after the file was put there:")
            migrate(gate, folder)
            print("3rd run:")
            told = migrate(gate, folder)
    print(f"replayed in the last run: {sum('replayed' in line for line in told)} of {len(told)}")


if __name__ == "__main__":
    main()
