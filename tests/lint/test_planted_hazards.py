"""Hazards that were planted are found, and look-alikes are left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onceward.lint.python.checks import CODES, check_python
from onceward.lint.source_file import SourceFile

HERE = Path(__file__).resolve().parent
FILES = sorted((HERE / "hazards").glob("*.py.txt"))
LOOKALIKES = sorted((HERE / "lookalikes").glob("*.py.txt"))
FOUND_MIN = 0.95


def read(path: Path) -> SourceFile:
    return SourceFile(path.name, path.read_text(encoding="utf-8"))


def planted_in(source: SourceFile) -> set[tuple[str, int, str]]:
    """File, line and code of every hazard that is marked."""
    marks = ((number, re.findall(r"# HAZARD (OW\d+)", line)) for number, line in enumerate(source.lines, start=1))
    return {(source.path, number, code) for number, codes in marks for code in codes}


def found_in(source: SourceFile) -> set[tuple[str, int, str]]:
    return {(source.path, finding.line, finding.code) for finding in check_python(source)}


def test_planted_hazards_are_found() -> None:
    """
    At least 95 of 100, each on its own line and with its own code; there are more than 150, of every rule.
    """
    sources = [read(path) for path in FILES]
    planted = set().union(*(planted_in(source) for source in sources))
    found = set().union(*(found_in(source) for source in sources))

    assert len(planted) > 150
    assert {code for _, _, code in planted} == CODES
    assert len(planted & found) / len(planted) >= FOUND_MIN, sorted(planted - found)


def test_nothing_else_is_found_beside_the_planted_hazards() -> None:
    """
    The same files are full of code that is in order: at most one alarm in a hundred is about that.
    """
    sources = [read(path) for path in FILES]
    planted = set().union(*(planted_in(source) for source in sources))
    found = set().union(*(found_in(source) for source in sources))

    assert len(found - planted) / len(found) <= 0.01, sorted(found - planted)


@pytest.mark.parametrize("path", LOOKALIKES, ids=lambda path: path.stem)
@pytest.mark.fault("lint-fallback-is-a-hazard", "lint-questions-are-writes")
@pytest.mark.fault("lint-explained-is-told", "lint-waiting-is-a-crowd")
def test_lookalikes_are_left_alone(path: Path) -> None:
    """
    Stored times, fallback keys, reads, questions by POST, loops over items, polls: no finding.
    """
    assert found_in(read(path)) == set()
