"""
Writes the table of speed into README.md, between its markers, from docs/reference/benchmarks.json: `make bench-page`.

    python tools/readme_speed.py          write it
    python tools/readme_speed.py --check  say whether it is up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import table  # noqa: E402

README = ROOT / "README.md"
MEASURED = ROOT / "docs" / "reference" / "benchmarks.json"
BEGIN, END = "<!-- speed: begin -->\n", "<!-- speed: end -->\n"
SHOWN = {
    "SQLite FULL fresh, 1 caller": "SQLite, a new key",
    "SQLite replay, 1 caller": "SQLite, a replay",
    "PostgreSQL fresh, 1 caller": "PostgreSQL, a new key",
    "PostgreSQL replay, 1 caller": "PostgreSQL, a replay",
}
"""The rows of the bench that the first page has, in words for whoever does not know the bench."""
HEAD = (
    "Measured: what a call costs against the same durable writes by hand, which promise nothing "
    "(1 = as fast; [the rest, and how](docs/reference/benchmarks.md)):"
)
COLUMNS = "| one caller, speed | by hand = 1 | Onceward (least to greatest) |"


def speed_table(groups: Mapping[str, Any]) -> str:
    """The table of what was measured; a row that was not measured is left out."""
    by_case = {row.case: row for row in table.ROWS}
    judged = {words: table.judge(by_case[case], groups) for case, words in SHOWN.items()}
    rows = [
        f"| {words} | {one.row.reference} | {_figures(one.ours)} |"
        for words, one in judged.items()
        if one.ours is not None
    ]
    return "\n".join([HEAD, "", COLUMNS, "|---|---|---|", *rows, ""]) if rows else ""


def _figures(ours: Mapping[str, float]) -> str:
    return f"**{ours['ratio']:.2f}** ({ours['least']:.2f} to {ours['greatest']:.2f})"


def with_table(page: str, text: str) -> str:
    """A page with this between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md has no {BEGIN.strip()} or no {END.strip()}")
    return f"{before}{begin}{text}{end}{after}"


def main() -> int:
    """Write it, or compare."""
    page = README.read_text(encoding="utf-8")
    made = with_table(page, speed_table(json.loads(MEASURED.read_text(encoding="utf-8"))))
    if sys.argv[1:] == ["--check"]:
        print("up to date" if made == page else "out of date: run make bench-page")
        return 0 if made == page else 1
    README.write_text(made, encoding="utf-8")
    print("wrote the table of speed into README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
