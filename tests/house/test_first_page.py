"""The first page: one screen with the two commands and one example, which can be run again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import ROOT, Block, blocks
from test_docs import run_block

README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")

SCREEN = 48
"""Lines that a window shows."""


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
    assert len(lines) <= 1.5 * SCREEN


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
