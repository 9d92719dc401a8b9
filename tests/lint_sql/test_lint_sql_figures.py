"""The published alarms in SQL: read one by one, counted as they are listed, and at most one in ten false."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "lint-alarms-sql.md").read_text(encoding="utf-8")
FALSE_MAX = 0.1


def test_the_published_figures_are_those_of_the_list() -> None:
    """
    Row by row: the alarms of a code base, those of them that are false, and the sums above the table.
    """
    rows = re.findall(r"^\| (.+?)(?: at \w{12})? \| \d+ \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    listed = {}
    for part in PAGE.split("\n### ")[1:]:
        verdicts = re.findall(r"^\| OW\d+ \| `[^`]+:\d+` \| (true|false) \| .+ \|$", part, re.MULTILINE)
        listed[part.split("\n")[0]] = (len(verdicts), verdicts.count("false"))
    inserts, alarms, false = (sum(int(row[number]) for row in rows) for number in (1, 2, 3))

    assert {name: (int(some), int(wrong)) for name, _, some, wrong in rows} == listed
    assert f"{inserts} INSERTs were classified, {alarms} alarms were raised, and {false} of them are false" in PAGE
    assert len(rows) >= 10
    assert alarms >= 50
    assert false / alarms <= FALSE_MAX
