"""
What findings look like: text with the source line and a caret, JSON, GitHub annotations, SARIF 2.1.0.

What is shown of a file was written by others: control characters are shown as escapes, never performed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from onceward._core.display_text import escape_invisible
from onceward.lint.findings import Finding, Severity
from onceward.lint.lint_run import LintReport
from onceward.lint.rule_table import all_rules
from onceward.lint.source_file import SourceFile

LINE_CHARACTERS_MAX: Final = 160
"""Of a source line, as shown: longer ones are shown around the finding."""

_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(report: LintReport) -> str:
    """For people: each finding with its line and a caret, then a line that counts."""
    parts = [_text_of(finding, report.sources.get(finding.path)) for finding in report.findings]
    return "\n".join([*parts, summary_of(report)])


def summary_of(report: LintReport) -> str:
    """One line: how many findings in how many files."""
    files = f"{report.files} file{'' if report.files == 1 else 's'}"
    if not report.findings:
        return f"no findings in {files}"
    count = len(report.findings)
    more = " (there are more)" if report.cut else ""
    return f"{count} finding{'' if count == 1 else 's'}{more} in {files}. `onceward lint explain CODE` says why"


def as_document(report: LintReport) -> dict[str, Any]:
    """For programs: names in camelCase, as every JSON of the command line has them."""
    return {
        "files": report.files,
        "cut": report.cut,
        "findings": [
            {
                "code": finding.code,
                "name": all_rules()[finding.code].name,
                "severity": all_rules()[finding.code].severity.value,
                "path": finding.path,
                "line": finding.line,
                "column": finding.column,
                "endColumn": finding.end_column,
                "message": finding.message,
                "fixable": finding.fix is not None,
            }
            for finding in report.findings
        ],
    }


def as_github(report: LintReport) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request. Notes are notices there."""
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
    return "\n".join(
        f"::{words[all_rules()[finding.code].severity]} file={_github_value(finding.path)},line={finding.line},"
        f"col={finding.column},endColumn={finding.end_column},title={finding.code}::{_github_text(finding.message)}"
        for finding in report.findings
    )


def as_sarif(report: LintReport) -> dict[str, Any]:
    """SARIF 2.1.0, which code hosts and editors read. Paths are relative to where the command ran."""
    used = sorted({finding.code for finding in report.findings})
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "onceward", "rules": [_sarif_rule(code) for code in used]}},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, used.index(finding.code)) for finding in report.findings],
            }
        ],
    }


TEXTS: Final[Mapping[str, Callable[[LintReport], str]]] = {"text": as_text, "github": as_github}
DOCUMENTS: Final[Mapping[str, Callable[[LintReport], dict[str, Any]]]] = {"json": as_document, "sarif": as_sarif}
FORMATS: Final = ("text", "json", "github", "sarif")


def _text_of(finding: Finding, source: SourceFile | None) -> str:
    head = escape_invisible(f"{finding.path}:{finding.line}:{finding.column}: {finding.code} {finding.message}")
    line = source.line(finding.line) if source else ""
    if not line.strip():
        return head + "\n"
    start, end = finding.column - 1, min(finding.end_column - 1, len(line))
    begin = 0 if len(line) <= LINE_CHARACTERS_MAX else max(0, start - LINE_CHARACTERS_MAX // 2)
    shown = line[begin : begin + LINE_CHARACTERS_MAX]
    before, marked = _visible(line[begin:start]), _visible(line[start : min(end, begin + LINE_CHARACTERS_MAX)])
    return f"{head}\n    {_visible(shown)}\n    {' ' * _width(before)}{'^' * max(1, _width(marked))}\n"


def _visible(text: str) -> str:
    return escape_invisible(text.expandtabs(4).replace("\t", " "))


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def _github_text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _github_value(text: str) -> str:
    return _github_text(text).replace(":", "%3A").replace(",", "%2C")


def _sarif_rule(code: str) -> dict[str, Any]:
    rule = all_rules()[code]
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": f"{rule.summary[0].upper()}{rule.summary[1:]}."},
        "fullDescription": {"text": rule.why},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _sarif_result(finding: Finding, rule_index: int) -> dict[str, Any]:
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": all_rules()[finding.code].severity.value,
        "message": {"text": finding.message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(finding.path)},
                    "region": {
                        "startLine": finding.line,
                        "startColumn": finding.column,
                        "endColumn": finding.end_column,
                    },
                }
            }
        ],
    }
