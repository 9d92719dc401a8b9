"""SECURITY.md: every threat has its row, and every file and test that a row names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from doc_pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
THREATS = [f"T{number}" for number in range(1, 26)]
THREATS.insert(THREATS.index("T13") + 1, "T13b")
THREATS.insert(THREATS.index("T19") + 1, "T19b")
ROW = re.compile(r"^\| (T\d+b?) \|(.*)\|$", re.MULTILINE)
FILE = re.compile(r"`(src/[\w/.]+|pyproject\.toml)`")
TEST = re.compile(r"`(tests/[\w/.]+\.py::[\w:]+)`")
STATES = ("held", "in part", "not here")


class Threat(NamedTuple):
    """A row."""

    name: str
    what: str
    state: str
    files: list[str]
    tests: list[str]


def threats(page: str) -> list[Threat]:
    """The rows of a page."""
    found = []
    for name, row in ROW.findall(page):
        what, state, guard, test = map(str.strip, row.split("|"))
        found.append(Threat(name, what, state, FILE.findall(guard), TEST.findall(test)))
    return found


def mistakes(page: str) -> list[str]:
    """What a page does not say, or says of nothing."""
    rows, uncovered = threats(page), page.partition("## What is not covered")[2]
    wrong = [] if [one.name for one in rows] == THREATS else [f"the rows are {[one.name for one in rows]}"]
    for one in rows:
        wrong += [f"{one.name}: {one.state} is no state"] if one.state not in STATES else []
        wrong += [f"{one.name}: {file} is not there" for file in one.files if not (ROOT / file).is_file()]
        wrong += [f"{one.name}: no guard"] if not one.files else []
        wrong += [f"{one.name}: no test"] if not one.tests and one.state != "not here" else []
        if one.state != "held" and f"**{one.name}**" not in uncovered:
            wrong.append(f"{one.name} is {one.state}, and is not explained below the table")
    return wrong


def collected(ids: list[str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Whether pytest finds these tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *ids], cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_every_threat_has_a_guard_and_a_test_or_is_said_to_be_open() -> None:
    """
    T1 to T25, T13b and T19b, in order; what is not held is explained in words.
    """
    assert mistakes(PAGE) == []


def test_every_test_of_the_table_is_one_that_runs() -> None:
    """
    pytest itself collects each of them.
    """
    found = collected(sorted({test for one in threats(PAGE) for test in one.tests}))

    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]


class TestTheChecksThemselves:
    def test_what_is_missing_is_found(self) -> None:
        """
        A row too few, a file that moved, a guard without a test, a gap that nobody explains.
        """
        assert mistakes(PAGE.replace("| T7 |", "| 7 |")) != []
        assert mistakes(PAGE.replace("`src/onceward/service/logs.py`", "`src/onceward/logs.py`")) == [
            "T23: src/onceward/logs.py is not there"
        ]
        assert mistakes(PAGE.replace("- **T15**", "- T15")) == ["T15 is in part, and is not explained below the table"]
        held = next(one for one in threats(PAGE) if one.name == "T10")
        without = PAGE
        for test in held.tests:
            without = without.replace(f"`{test}`", "")
        assert mistakes(without) == ["T10: no test"]

    def test_a_test_that_was_renamed_is_found(self, tmp_path: Path) -> None:
        """
        Collecting a test that is not there fails.
        """
        (tmp_path / "test_one.py").write_text("def test_here() -> None: ...\n")

        assert collected(["test_one.py::test_here"], tmp_path).returncode == 0
        assert collected(["test_one.py::test_gone"], tmp_path).returncode != 0
