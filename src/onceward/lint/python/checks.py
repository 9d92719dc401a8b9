"""
Checking one Python file: parse it within limits, and ask every check.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Final

from onceward.lint.findings import CANNOT_PARSE, TOO_LARGE, Finding
from onceward.lint.python.gate_checks import check_gates
from onceward.lint.python.handler_checks import check_handlers
from onceward.lint.python.key_checks import check_keys
from onceward.lint.python.names import PythonFile
from onceward.lint.python.pace_checks import check_pace
from onceward.lint.python.retry_checks import check_unkeyed_retries
from onceward.lint.python.rules import RULES
from onceward.lint.python.status_checks import check_statuses
from onceward.lint.source_file import SourceFile

CODES: Final = frozenset(rule.code for rule in RULES)
CHECKS: Final[tuple[Callable[[PythonFile], Iterator[Finding]], ...]] = (
    check_keys,
    check_unkeyed_retries,
    check_statuses,
    check_pace,
    check_gates,
    check_handlers,
)
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""A file may need a later one than the linter runs on."""
LINES_MAX: Final = 50_000
"""Of one file: nobody wrote more by hand, and a tree of so many takes hundreds of megabytes."""


def check_python(source: SourceFile) -> Iterator[Finding]:
    """What is wrong in one file, each place once for each code; a file that cannot be parsed is one finding."""
    if len(source.lines) > LINES_MAX:
        message = f"has more than {LINES_MAX:,} lines; nothing in it was checked. Exclude it if it is generated"
        yield source.finding(TOO_LARGE, 1, 1, 2, message)
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of the file's own escapes and comparisons: not our subject.
            tree = ast.parse(source.text)
        file = PythonFile(source, tree)
        found = [finding for check in CHECKS for finding in check(file)]
    except SyntaxError as error:
        line, column = max(1, error.lineno or 1), max(1, error.offset or 1)
        if "too many" in error.msg or "nested" in error.msg:
            yield source.finding(TOO_LARGE, line, column, column + 1, f"nests too deeply to be parsed: {error.msg}")
        else:
            yield source.finding(
                CANNOT_PARSE, line, column, column + 1, f"cannot be parsed by Python {_VERSION}: {error.msg}"
            )
        return
    except (RecursionError, MemoryError):
        yield source.finding(TOO_LARGE, 1, 1, 2, "nests too deeply to be checked. Exclude it if it is generated")
        return
    yield from {(one.code, one.line, one.column): one for one in reversed(found)}.values()
