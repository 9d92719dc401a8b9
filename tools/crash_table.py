"""
Write the table of crashes into the docs: what `make test-agents` saw when it killed an agent of each framework.

    python tools/crash_table.py build/crashes.jsonl

Each line of the file is one crash (`tests/agents/crash_runs.py` writes it): which framework, at which point, with the
gate or without, and how often each effect took place.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "agent-crashes.md"
BEGIN, END = "<!-- begin: made by make test-agents -->", "<!-- end -->"
POINTS = ("before", "effect", "answer", "saved")
BLIND = "blind"


def main(path: str) -> int:
    """Read the crashes, write the table."""
    seen = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    text = PAGE.read_text(encoding="utf-8")
    made = re.sub(
        f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n{table(seen)}\n{END}", text, flags=re.DOTALL
    )
    PAGE.write_text(made, encoding="utf-8")
    print(f"{len(seen)} crashes are in {PAGE.relative_to(PAGE.parents[2])}")
    return 0


def table(seen: list[dict[str, Any]]) -> str:
    """A row for each framework: effects of `charge` without us and with us, at each point."""
    found: dict[str, dict[tuple[str, bool], list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for one in seen:
        if one["kind"] == BLIND:
            found[one["scenario"]][one["point"], one["gated"]].append(one)
    stores = ", ".join(sorted({one["store"] for one in seen}))
    rows = [
        f"Stores: {stores}. Each cell: charges without the gate, and with it; `?` where the model hears that it "
        "may have happened.",
        "",
        "| agent | " + " | ".join(POINTS) + " | the other call of the same answer | seconds until it continues |",
        "|---|" + "---|" * (len(POINTS) + 2),
    ]
    for scenario, cases in sorted(found.items()):
        cells = [_cell(cases, point) for point in POINTS]
        siblings = _worst(cases, "notify", False), _worst(cases, "notify", True)
        gated = [one["seconds"] for (_, on), several in cases.items() if on for one in several]
        seconds = f"{statistics.median(gated):.1f}" if gated else ""
        sibling = " -> ".join(siblings) if siblings[1] != "0" else "none"
        rows.append(f"| {scenario} | {' | '.join(cells)} | {sibling} | {seconds} |")
    return "\n".join(rows)


def _cell(cases: dict[tuple[str, bool], list[dict[str, Any]]], point: str) -> str:
    without, ours = cases.get((point, False), []), cases.get((point, True), [])
    counted = [_counts(several, "charge") for several in (without, ours)]
    doubt = " ?" if any(one["told_doubt"] for one in ours) else ""
    return f"{counted[0]} -> {counted[1]}{doubt}"


def _counts(several: list[dict[str, Any]], effect: str) -> str:
    found = sorted({one["effects"].get(effect, 0) for one in several})
    return "not run" if not found else "-".join(map(str, (found[0], found[-1]) if len(found) > 1 else found))


def _worst(cases: dict[tuple[str, bool], list[dict[str, Any]]], effect: str, gated: bool) -> str:
    return str(max((one["effects"].get(effect, 0) for (_, on), all in cases.items() if on == gated for one in all),
                   default=0))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
