"""
The store of docs/how-to/write-a-store.md, as a reader of that page has it: its blocks, put into one module.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-store.md"
FENCE = re.compile(r"^```(?P<words>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    """What stands under a heading of the page."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}")
    if not found:
        raise LookupError(f"{PAGE.name} has no section {heading!r}")
    return rest.partition("\n## ")[0]


def blocks(heading: str, language: str) -> str:
    """The fenced blocks of a language under a heading."""
    found = [fence["body"] for fence in FENCE.finditer(section(heading)) if fence["words"].startswith(language)]
    if not found:
        raise LookupError(f"{PAGE.name} has no {language} under {heading!r}")
    return "\n\n".join(found)


SOURCE = "\n\n".join(blocks(heading, "python") for heading in ("1. ", "2. ", "3. ", "4. ", "5. ", "Open it from a URL"))
TEST = blocks("Test it with the suite", "python")
PROJECT = blocks("Open it from a URL", "toml")

exec(compile(SOURCE, str(PAGE), "exec"), globals())
