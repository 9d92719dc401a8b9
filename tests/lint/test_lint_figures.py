"""What the docs say about how good the linter is, held to the list of alarms and to the planted hazards."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from test_planted_hazards import FILES, found_in, planted_in, read

from onceward.lint.lint_run import select_findings
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.settings import LintSettings
from onceward.lint.source_file import SourceFile

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "lint_codebases.py"))
PAGE = (ROOT / "docs" / "reference" / "lint-alarms.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "lint.md").read_text(encoding="utf-8")
FALSE_MAX = 0.10
SHOWN_ON_PURPOSE = {
    ("deduplicate-for-a-while.md", "OW122"): "shows that the window is refused",
    ("handle-dead-letters.md", "OW901"): "goes on inside the block before it",
    ("lint.md", "OW101"): "is the linter's own example",
    ("require-a-key.md", "OW120"): "its send_invoice is a stand-in that sends nothing",
    ("test-your-code.md", "OW107"): "is a test, with a key of its own; in a test_*.py it is not looked at",
}
"""Page and code -> why it may stay."""
PARTS = 6
"""Reading all of our code takes many seconds."""


def test_at_most_one_alarm_in_ten_is_false() -> None:
    """
    Of the alarms in the code bases that the rules were put right by, all of which were read; the page has those of the
    tool's lists, and no others. What is held out is published as it is.
    """
    verdicts = TOOL["read_verdicts"](PAGE)
    read_ones = [verdict for name in TOOL["CODE_BASES"] for verdict, _ in verdicts[name].values()]

    assert list(verdicts) == [*TOOL["CODE_BASES"], *TOOL["HELD_OUT"]]
    assert len(TOOL["CODE_BASES"]) >= 12
    assert len(TOOL["HELD_OUT"]) >= 48
    assert not {*TOOL["CODE_BASES"]} & {*TOOL["HELD_OUT"]}
    assert len(read_ones) >= 60
    assert read_ones.count("false") / len(read_ones) <= FALSE_MAX


def test_the_published_figures_are_those_of_the_list() -> None:
    """
    Row by row, the held-out ones included: lines as in the heading, alarms and false ones as counted.
    """
    headings = dict(re.findall(r"^### (\S+): ([\d,]+) lines", PAGE, re.MULTILINE))
    counted = {
        (name, headings[name], str(len(rows)), str(sum(verdict == "false" for verdict, _ in rows.values())))
        for name, rows in TOOL["read_verdicts"](PAGE).items()
        if rows
    }
    published = re.findall(r"^\| (\S+==\S+) \| ([\d,]+) \| (\d+) \| (\d+) \|$", REFERENCE, re.MULTILINE)
    sums = re.findall(r"^\| \*\*all\*\* \| ([\d,]+) \| (\d+) \| (\d+) \|$", REFERENCE, re.MULTILINE)

    assert set(published) == counted
    assert sums == [_sums(TOOL["HELD_OUT"], headings, counted), _sums(TOOL["CODE_BASES"], headings, counted)]
    for lines, alarms, false in sums:
        share = f"{100 * int(false) / int(alarms):.0f} in 100"
        assert f"{alarms} alarms in {lines} lines, of which {false} are false ({share})" in REFERENCE


def _sums(
    names: tuple[str, ...], headings: dict[str, str], counted: set[tuple[str, str, str, str]]
) -> tuple[str, str, str]:
    """Lines, alarms and false alarms of several code bases, as they are published."""
    lines = sum(int(headings[name].replace(",", "")) for name in names)
    rows = [row for row in counted if row[0] in names]
    return f"{lines:,}", str(sum(int(row[2]) for row in rows)), str(sum(int(row[3]) for row in rows))


def test_the_published_share_of_found_hazards_is_the_real_one() -> None:
    """
    At least 200 in both halves together. The SQL half holds that all of its own are found.
    """
    sources = [read(path) for path in FILES]
    planted = set().union(*(planted_in(source) for source in sources))
    found = planted & set().union(*(found_in(source) for source in sources))
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests/lint_sql/hazards").glob("*.sql")]
    sql = sum(len(re.findall(r"OW\d{3}", mark)) for text in texts for mark in re.findall("-- HAZARD(.*)", text))
    total, all_found = len(planted) + sql, len(found) + sql
    print(f"{len(found)} of {len(planted)} in Python, {sql} in SQL: {100 * all_found / total:.1f} in 100")
    missed = {f"`{file}:{line}` | {code}" for file, line, code in planted - found}

    assert total >= 200
    assert f"{total} were planted, {len(planted)} in Python and {sql} in SQL" in REFERENCE
    assert f"{all_found} of them are found ({100 * all_found / total:.1f} in 100" in REFERENCE
    assert set(re.findall(r"^\| (`\S+\.py\.txt:\d+` \| OW\d+)", REFERENCE, re.MULTILINE)) == missed


@pytest.mark.dose(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_this_project_raises_no_alarm(part: int) -> None:
    """
    Its code and its examples.
    """
    folders = ("src", "examples", "tools", "bench", "soak")
    files = sorted(path for one in folders for path in (ROOT / one).rglob("*.py"))[part::PARTS]

    assert _alarms([(path.name, path.read_text(encoding="utf-8")) for path in files]) == set()


def test_its_pages_raise_no_alarm_but_those_that_they_show_on_purpose() -> None:
    """
    The Python that they show.
    """
    texts = []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        if page.parent.name != "lint":
            blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.M)
            texts += [(page.name, block) for block in blocks]

    assert _alarms(texts) == set(SHOWN_ON_PURPOSE)


def _alarms(texts: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """What is found in these, by the names of their files; tests are left out."""
    sources = [SourceFile(name, text) for name, text in texts if not name.startswith("test_")]
    return {
        (source.path, finding.code)
        for source in sources
        for finding in select_findings(source, check_python(source), LintSettings(), CODES)
    }
