"""Linting a text, as if it were a file."""

from __future__ import annotations

from textwrap import dedent

from onceward.lint.findings import Finding
from onceward.lint.lint_run import select_findings
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.settings import LintSettings
from onceward.lint.source_file import SourceFile


def findings_in(text: str, settings: LintSettings | None = None) -> list[Finding]:
    """What the Python rules say about a text, ignores and settings applied."""
    source = SourceFile("example.py", dedent(text))
    return select_findings(source, check_python(source), settings or LintSettings(), CODES)


def codes_in(text: str) -> list[str]:
    """The codes of what is found, in order."""
    return [finding.code for finding in findings_in(text)]
