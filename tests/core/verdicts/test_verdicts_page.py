"""The page about verdicts shows the tables that the code has, row by row."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from onceward._core.classifier import TABLE
from onceward._core.verdict_tables.databases import SQLSTATE_CLASSES, SQLSTATES
from onceward._core.verdict_tables.http_statuses import STATUSES
from onceward._core.verdict_tables.onceward_errors import CODES
from onceward.verdicts import Certainty, Verdict

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "verdicts.md").read_text(encoding="utf-8")


def cells(verdict: Verdict) -> str:
    """Certainty, kind and action, as the page shows them."""
    return " | ".join(verdict[:3])


def grouped(rows: list[tuple[str, str]]) -> list[str]:
    """One row for each verdict, with everything that has it, in the order of the code."""
    order = list(dict.fromkeys(shown for _, shown in rows))
    return [f"| {', '.join(name for name, shown in rows if shown == one)} | {one} |" for one in order]


def status_rows() -> list[str]:
    return grouped([(str(status), cells(verdict)) for status, verdict in STATUSES.items()])


def code_rows() -> list[str]:
    return grouped([(f"`{code}`", cells(verdict)) for code, verdict in CODES.items()])


def sqlstate_rows() -> list[str]:
    named = [(f"`{state}`", cells(verdict)) for state, verdict in SQLSTATES.items()]
    return grouped([*named, *((f"`{state}...`", cells(verdict)) for state, verdict in SQLSTATE_CLASSES.items())])


def type_rows() -> list[str]:
    """By module; a rule that looks closer is shown as such."""
    found = []
    names = [(name.rpartition("."), rule) for name, rule in TABLE.items()]
    for module, members in groupby(names, key=lambda one: one[0][0]):
        rows = [
            (f"`{parts[2]}`", cells(rule) if isinstance(rule, Verdict) else "looked into | | ")
            for parts, rule in members
        ]
        found += [f"| `{module}` {row}" for row in grouped(rows)]
    return found


TABLES = {"Statuses": status_rows, "Codes": code_rows, "Exceptions": type_rows, "SQLSTATEs": sqlstate_rows}


def shown(heading: str) -> list[str]:
    """The rows of the first table under a heading of the page."""
    section = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("heading", TABLES)
def test_the_page_shows_the_table_that_the_code_has(heading: str) -> None:
    """
    No row more, no row less, none changed.
    """
    expected = TABLES[heading]()

    assert len(expected) > 3
    assert shown(heading) == expected


def test_the_page_names_every_certainty() -> None:
    """
    A verdict's words are explained.
    """
    assert [one for one in Certainty if f"`{one.name}`" not in PAGE] == []
