"""
The fenced blocks of README and docs: found, chained and made into scripts, for whoever runs or checks them.

The words after the language:

    python continued     goes on from the block before it: same script, same folder
    console continued    runs in the folder that the blocks before it left behind
    python no-run        is not run; its first line says why, as `# not run: ...`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Spellings under which an example would escape being run: write `python` or `console`.
ESCAPES = frozenset({"py", "py3", "python3", "pycon", "bash", "sh", "shell", "shell-session", "zsh"})

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block: the words after its fence, the line its body begins on, and its body."""

    words: tuple[str, ...]
    line: int
    body: str

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def continues(self) -> bool:
        return "continued" in self.words

    @property
    def is_run(self) -> bool:
        return self.language in ("python", "console") and "no-run" not in self.words


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [
        Block(
            tuple(fence["info"].split()),
            page.count("\n", 0, fence.start("body")) + 1,
            re.sub(rf"^{fence['indent']}", "", fence["body"], flags=re.MULTILINE),
        )
        for fence in FENCE.finditer(page)
    ]


def loose_fences(page: str) -> list[str]:
    """Fences that open and never close, and languages that would escape being run."""
    found = blocks(page)
    inside = {line for block in found for line in range(block.line - 1, block.line + block.body.count("\n") + 1)}
    lines = enumerate(page.splitlines(), start=1)
    loose = [f"line {number}: not closed" for number, line in lines if "```" in line[:12] and number not in inside]
    return loose + [f"line {block.line - 1}: {block.language}" for block in found if block.language in ESCAPES]


def chain(all_blocks: list[Block], block: Block) -> list[Block]:
    """A block with those that it continues, first to last."""
    run = [one for one in all_blocks if one.is_run]
    end = run.index(block)
    start = end
    while run[start].continues:
        if start == 0:
            raise ValueError(f"line {run[start].line}: nothing to continue")
        start -= 1
    return run[start : end + 1]


def scripts(linked: list[Block]) -> Iterator[tuple[str, str]]:
    """What to run for a chain: neighbouring python blocks are one script, with the page's line numbers."""
    script = ""
    for block in linked:
        if block.language == "python":
            script += "\n" * (block.line - 1 - script.count("\n")) + block.body
        else:
            if script:
                yield "python", script
                script = ""
            yield "console", block.body
    if script:
        yield "python", script


def chains(all_blocks: list[Block]) -> Iterator[list[Block]]:
    """Every chain of a page, each with all of its blocks; a block that is not run is a chain of its own."""
    linked: list[Block] = []
    for block in all_blocks:
        if block.language not in ("python", "console"):
            continue
        if not block.is_run:
            yield [block]
        elif block.continues:
            linked.append(block)
        else:
            if linked:
                yield linked
            linked = [block]
    if linked:
        yield linked
