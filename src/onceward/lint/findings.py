"""
What a rule is and what a finding is: the two words that every part of the linter shares.

A rule is a row of a table (`RULES` of `lint/python/rules.py`, of `lint/sql/rules.py`, and `LINTER_RULES` here); what
finds its hazards is a function elsewhere, which names the code. `lint/rule_table.py` has all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """How bad it is. All of them make the exit code 1: what may stay is ignored with a reason, or not selected."""

    ERROR = "error"
    """Done twice, or lost, sooner or later."""
    WARNING = "warning"
    """Harmful under load, or to others."""
    NOTE = "note"
    """About the linter itself."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its code, its words, and an example of each side. The page in the docs is made of this."""

    code: str
    name: str
    """A few words with hyphens, such as `key-from-clock`."""
    summary: str
    """What is wrong, in one line without a full stop."""
    why: str
    """What happens if it stays, and what to do instead: a paragraph or two."""
    bad: str
    """A whole file in which the linter finds this code and no other."""
    good: str
    """The same file put right: no finding."""
    severity: Severity = Severity.ERROR
    language: str = "python"
    """Of the examples: `python` or `sql`."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace what stands from one place to another. Lines count from 1, columns from 1, in characters."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One hazard in one place. Lines and columns count from 1, in characters; `end_column` is behind the last one."""

    code: str
    path: str
    line: int
    column: int
    end_column: int
    message: str
    """What was seen, and what to do instead: one line, without a full stop."""
    fix: Edit | None = None
    """What `--fix` does. Only where the result is certain to be what the finding asks for."""

    @property
    def place(self) -> tuple[str, int, int, str]:
        """What findings are sorted by."""
        return self.path, self.line, self.column, self.code


CANNOT_PARSE: Final = "OW901"
CANNOT_READ: Final = "OW902"
TOO_LARGE: Final = "OW903"
UNUSED_IGNORE: Final = "OW904"
BAD_IGNORE: Final = "OW905"

LINTER_RULES: Final = (
    Rule(
        CANNOT_PARSE,
        "cannot-parse",
        "the file cannot be parsed, so nothing in it was checked",
        "A file that cannot be parsed is not clean. Fix the syntax, or exclude the file.",
        "def charge(order_id:\n    return order_id\n",
        "def charge(order_id):\n    return order_id\n",
    ),
    Rule(
        CANNOT_READ,
        "cannot-read",
        "the file cannot be read, so nothing in it was checked",
        "The file does not exist, may not be read, or is not UTF-8 (nor the encoding that its coding line names).\n"
        "Fix that, or exclude the file.",
        "# -*- coding: no-such-coding -*-\n",
        "# -*- coding: utf-8 -*-\n",
    ),
    Rule(
        TOO_LARGE,
        "too-large",
        "the file is too large, or nested too deeply, to be checked",
        "Parsers need memory for every token, and crash on deeply nested text, so there are limits. Such files are\n"
        "nearly always generated: exclude them.",
        "depth = " + "(" * 250 + "1" + ")" * 250 + "  # fmt: skip\n",
        "depth = 1\n",
    ),
    Rule(
        UNUSED_IGNORE,
        "unused-ignore",
        "an ignore that ignores nothing",
        "It may have been right once. If it stays, it will hide the next hazard on its line. `--fix` removes it.",
        "def total(prices):\n    return sum(prices)  # onceward: ignore[OW101] the key is kept\n",
        "def total(prices):\n    return sum(prices)\n",
        Severity.NOTE,
    ),
    Rule(
        BAD_IGNORE,
        "bad-ignore",
        "an ignore without a reason, without codes, or with an unknown code",
        "An ignore says that someone has looked, so it must name the code and the reason:\n"
        "`# onceward: ignore[OW101] the key is stored before the first attempt`. Otherwise it has no effect.",
        "limit = 3  # onceward: ignore[OW101]\n",
        "limit = 3\n",
    ),
)
