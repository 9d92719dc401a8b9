"""Every rule has a page with a bad and a good example, and both are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.lint.lint_run import lint_files
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.rule_table import all_rules
from onceward.lint.settings import LintSettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "reference" / "lint").glob("OW*.md"))
BLOCK = re.compile(r"^```python no-run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON_PAGES = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
INDEX = (ROOT / "docs" / "reference" / "lint.md").read_text(encoding="utf-8")


def found_in(example: str, folder: Path) -> set[str]:
    """The codes that the linter finds in an example, as a file."""
    file = folder / "example.py"
    file.write_text(example, encoding="utf-8")
    report = lint_files([file], LintSettings(), suffixes=(".py",), check=check_python, codes=CODES)
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.stem)
def test_the_bad_example_has_this_finding_and_the_good_one_has_none(page: Path, tmp_path: Path) -> None:
    """
    Exactly the page's code in the first block, and nothing in the second.
    """
    bad, good = BLOCK.findall(page.read_text(encoding="utf-8"))

    assert found_in(bad, tmp_path) == {page.stem}
    assert found_in(good, tmp_path) == set()


def test_the_pages_are_what_the_rules_say() -> None:
    """
    The words are written once, in the rule; `python tools/lint_pages.py` writes the pages from them.
    """
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "lint_pages.py", "--check"], capture_output=True, text=True, check=False
    )

    assert done.stdout == ""
    assert done.returncode == 0


def test_the_index_lists_every_rule() -> None:
    """
    One row for each code, with a link to its page and the summary of the rule.
    """
    rows = re.findall(r"^\| \[(OW\d+)\]\(lint/(OW\d+)\.md\) \| (.+?) \| (\w+) \|$", INDEX, re.MULTILINE)

    assert rows == [(rule.code, rule.code, rule.summary, rule.severity.value) for rule in all_rules().values()]
    assert [page.stem for page in PAGES] == list(all_rules())
