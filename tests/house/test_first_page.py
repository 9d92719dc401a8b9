"""The first page: one screen with the two commands and one example, which can be run again."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from doc_pages import ROOT, Block, blocks
from test_docs import run_block

README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")

SCREEN = 48
"""Lines that a window shows."""
PROSE_MAX = 60
"""Lines that are neither code nor empty: one more screen, with pictures and tables."""


def first_example(page: str) -> Block:
    """The first python block of a page."""
    return next(block for block in blocks(page) if block.language == "python")


def test_the_first_screen_has_the_two_commands_and_the_example() -> None:
    """
    How to run it, how to test it, and what it is for; the whole page is not much longer.
    """
    lines = README.splitlines()
    shown = "\n".join(lines[:SCREEN])

    assert re.search(r"^\$ make serve\b", shown, re.MULTILINE)
    assert re.search(r"^\$ make test\b", shown, re.MULTILINE)
    assert first_example(README).body in shown + "\n"
    assert len([line for line in first_example(README).body.splitlines() if line]) <= 12
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    assert len([line for line in prose.splitlines() if line]) <= PROSE_MAX


def test_it_begins_with_two_sentences_and_has_two_pictures() -> None:
    """
    What it is, before anything else; one call, drawn, and the dashboard, each with words for who cannot see it.
    """
    first = README.split("\n\n")[1]
    pictures = re.findall(r"!\[([^\]]{20,})\]\(([^)]+)\)", README)
    pictures += re.findall(r'<img alt="([^"]{20,})" src="([^"]+)"', README)

    assert first.rstrip().endswith(".") and first.count(". ") + first.count(".\n") == 1
    assert [place for _, place in pictures] == ["docs/images/one-call.svg", "docs/images/dashboard-now.png"]
    assert [place for _, place in pictures if not (ROOT / place).is_file()] == []


def test_promise_and_limits_have_five_lines_each() -> None:
    """
    Side by side, each limit as plain as the promise beside it.
    """
    head, _, *rows = re.search(r"^\| \[What it promises\].*?(?=\n\n)", README, re.MULTILINE | re.DOTALL)[0].splitlines()

    assert "What it cannot do" in head
    assert [row.count(" | ") for row in rows] == [1] * 5


@pytest.mark.fault("the-first-page-shows-other-figures")
def test_the_figures_are_those_that_were_measured() -> None:
    """
    The table of speed is made from docs/reference/benchmarks.json; `make bench-page` writes it.
    """
    tool = runpy.run_path(str(ROOT / "tools" / "readme_speed.py"))
    measured = json.loads((ROOT / "docs" / "reference" / "benchmarks.json").read_text(encoding="utf-8"))
    table = tool["speed_table"](measured)

    assert tool["with_table"](README, table) == README, "out of date: run make bench-page"
    assert table.count("\n|") >= 4
    assert tool["speed_table"]({}) == ""


def test_the_comparison_has_its_place() -> None:
    """
    Two markers, between which the table of the comparison with other packages is put, and then the page with all of it.
    """
    assert README.count("<!-- comparison: begin -->\n") == README.count("<!-- comparison: end -->\n") == 1
    assert README.index("comparison: begin") < README.index("comparison: end") < README.index("compared-with-peers.md")


@pytest.mark.fault("a-drawing-of-what-does-not-happen")
def test_the_drawing_is_of_what_happens() -> None:
    """
    A gate is called twice, and what it tells of is drawn: the file is that drawing, and it has colours for the dark.
    """
    tool = runpy.run_path(str(ROOT / "tools" / "drawings" / "one_call.py"))
    kept = (ROOT / "docs" / "images" / "one-call.svg").read_text(encoding="utf-8")

    assert tool["steps"]() == [
        "called", "claimed", "ran", "settled", "lost", "called again", "replayed", "returned",
    ]  # fmt: skip
    assert tool["draw"]() == kept, "out of date: run make pictures"
    assert "prefers-color-scheme: dark" in kept
    assert ElementTree.fromstring(kept).attrib["aria-label"]


def test_readme_and_tutorial_begin_with_the_same_example() -> None:
    """
    One text, three concepts: a gate, a key, a request that must be equal.
    """
    assert first_example(README).body == first_example(TUTORIAL).body


@pytest.mark.fault("a-first-example-that-works-once")
def test_the_first_example_can_be_run_again_and_nothing_is_charged(tmp_path: Path) -> None:
    """
    It says so, it checks it by itself, and what stands for the provider has one charge after two runs.
    """
    wrong = run_block(blocks(README), first_example(README), tmp_path)

    assert (wrong, (tmp_path / "charges.txt").read_text()) == ([], "o-17 12.50\n")
    assert "Run it again: nothing is charged" in README and "nothing is charged" in TUTORIAL
    assert "read_text()" in first_example(README).body.splitlines()[-1]


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["README", "tutorial"])
def test_pip_is_shown_inside_of_a_virtual_environment(page: str) -> None:
    """
    A system's Python refuses it outside of one.
    """
    shown = [block.body for block in blocks(page) if "pip install" in block.body]

    assert shown != []
    assert [body for body in shown if body.find("-m venv") not in range(body.index("pip install"))] == []
