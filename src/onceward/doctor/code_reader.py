"""
Reads the Python files of a project through the linter: its findings, and beside them what the code shows.

The only file here that knows the linter's settings and its sources. Nothing that is read is run or imported.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from onceward.doctor.box import CodePlace
from onceward.doctor.breaker_facts import breaker_facts, effect_facts, fallbacks
from onceward.doctor.code_facts import CodeFacts, KeyedTable
from onceward.doctor.key_facts import key_facts
from onceward.doctor.operations import atomic_places, operation_facts
from onceward.doctor.retry_facts import retry_facts
from onceward.lint.findings import CANNOT_PARSE, CANNOT_READ, TOO_LARGE, Finding
from onceward.lint.lint_run import lint_files
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.python.effects import effect_of
from onceward.lint.python.names import PythonFile
from onceward.lint.settings import LintSettings, find_settings, read_settings
from onceward.lint.source_file import SourceFile
from onceward.runtime.progress import Progress, silent

ChosenFiles: TypeAlias = LintSettings
"""Which files are looked at, and which findings are wanted: the linter's settings, for the other files here."""

_UNREAD: Final = (CANNOT_PARSE, CANNOT_READ, TOO_LARGE)
_KEY_COLUMN: Final = re.compile(r"\s*\w*(?:idem|dedup)\w* ")
_TEXT_MAX: Final = 20_000


def lint_settings(config: Path | None, start: Path) -> LintSettings:
    """
    The linter's settings, of this file or of the nearest pyproject.toml: which files are left out, and nothing else.

    A rule that is switched off for the linter is not evidence for the doctor.
    """
    settings = find_settings(start) if config is None else read_settings(config)
    return replace(settings, codes=None, per_file_ignores={})


def read_code(
    paths: Iterable[Path], settings: LintSettings, progress: Progress = silent, *, tests: bool = False
) -> CodeFacts:
    """What the Python files below some paths show."""
    facts = CodeFacts()

    def check(source: SourceFile) -> list[Finding]:
        findings = list(check_python(source))
        if not any(one.code in _UNREAD for one in findings):
            _collect(source, facts)
        return findings

    report = lint_files(paths, settings, suffixes=(".py",), check=check, codes=CODES, tests=tests, progress=progress)
    facts.files = report.files
    for finding in report.findings:
        place = CodePlace(finding.path, finding.line)
        facts.findings.setdefault(finding.code, []).append(place)
        if finding.code in _UNREAD:
            facts.unread.append(place)
        elif report.cut and finding is report.findings[-1]:
            facts.unread.append(place)  # The linter stopped here: what comes after it was not read.
    return facts


def _collect(source: SourceFile, facts: CodeFacts) -> None:
    """Add what one file shows. The linter has parsed it before, so it can be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = PythonFile(source, ast.parse(source.text))
    facts.keys += key_facts(file)
    facts.retries += retry_facts(file)
    facts.breakers += breaker_facts(file)
    facts.effects += effect_facts(file)
    guarded = {file.function_of(node) for node in file.nodes if isinstance(node, ast.Call) and _is_guard(file, node)}
    facts.bare_inserts += [
        CodePlace(source.path, node.lineno)
        for node in file.nodes
        if isinstance(node, ast.Call) and effect_of(file, node) == "INSERT" and file.function_of(node) not in guarded
    ]
    facts.fallbacks += fallbacks(file)
    facts.operations += operation_facts(file)
    facts.atomic += atomic_places(file)
    for node in file.nodes:
        if isinstance(node, ast.Call) and file.dotted(node.func).endswith(("insert_once", "insert_once_async")):
            facts.guards.append(CodePlace(source.path, node.lineno))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _TEXT_MAX:
            _collect_sql(node, source.path, facts)


def _is_guard(file: PythonFile, call: ast.Call) -> bool:
    """Whether a call lets a constraint or a record of ours decide, for the rows of its function."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else file.dotted(call.func).rpartition(".")[2]
    return name in ("insert_once", "insert_once_async", "settle_inside", "atomic")


def _collect_sql(node: ast.Constant, path: str, facts: CodeFacts) -> None:
    """SQL in a text of the code: a table with a key, an INSERT that a constraint decides, a MERGE."""
    text, place = " ".join(str(node.value).lower().split()), CodePlace(path, node.lineno)
    if text.startswith("insert") and ("on conflict" in text or "on duplicate key" in text or "or ignore" in text):
        facts.guards.append(place)
    elif text.startswith("merge ") and " using " in text:
        facts.merges.append(place)
    elif text.startswith("create table"):
        columns = [one for one in text.partition("(")[2].split(",") if _KEY_COLUMN.match(one)]
        if columns:
            own = columns[0]
            is_unique = "unique" in own or "primary key" in own or "unique" in text.partition(own)[2]
            is_required = "not null" in own or "primary key" in own
            facts.tables.append(KeyedTable(place, is_unique or (None if "{" in text else False), is_required))
