"""
Checking one Python file: parse it within limits, and ask every check.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from onceward.lint.findings import CANNOT_PARSE, TOO_LARGE, Finding
from onceward.lint.python.rules import RULES
from onceward.lint.source_file import Source

CODES = frozenset(rule.code for rule in RULES)


def check_python(source: Source) -> Iterator[Finding]:
    """What is wrong in one file; a file that cannot be parsed is one finding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of the file's own escapes and comparisons: not our subject.
            ast.parse(source.text)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        yield source.finding(CANNOT_PARSE, line, column, column + 1, f"cannot be parsed: {error.msg}")
    except (RecursionError, MemoryError):
        yield source.finding(TOO_LARGE, 1, 1, 2, "nests too deeply to be parsed. Exclude it if it is generated")
