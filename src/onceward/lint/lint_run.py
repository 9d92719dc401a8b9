"""
From paths to findings: read each file, check it, leave out what is not wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from onceward.lint.file_search import find_files
from onceward.lint.findings import Finding
from onceward.lint.ignores import HASH, apply_ignores, find_ignores
from onceward.lint.settings import LintSettings
from onceward.lint.source_file import SourceFile, read_source
from onceward.runtime.progress import Progress, part_of, silent

Check: TypeAlias = Callable[[SourceFile], Iterable[Finding]]

FINDINGS_MAX: Final = 10_000
"""Of one run: nobody reads more, and GitHub and editors take fewer."""


@dataclass(frozen=True, slots=True)
class LintReport:
    """What came of a run."""

    findings: tuple[Finding, ...]
    files: int
    """How many were looked at."""
    sources: dict[str, SourceFile]
    """Those that have findings, by path: for showing their lines, and for fixing."""
    cut: bool = False
    """Whether there were more findings than FINDINGS_MAX."""


def lint_files(
    paths: Iterable[Path],
    settings: LintSettings,
    *,
    suffixes: Sequence[str],
    check: Check,
    codes: frozenset[str],
    tests: bool = True,
    progress: Progress = silent,
) -> LintReport:
    """Look at every file with a check that looks for these codes, each file by itself; at tests only if wanted."""
    told: list[Finding] = []
    sources: dict[str, SourceFile] = {}
    files = 0
    chosen = list(find_files(paths, suffixes, settings.is_excluded, tests=tests))
    for path in chosen:
        part_of(progress, files, len(chosen), "files")
        files += 1
        source = read_source(path, path.as_posix())
        if isinstance(source, Finding):
            found = [source] if settings.tells(source.code, path) else []
        else:
            found = select_findings(source, check(source), settings, codes)
            if found:
                sources[source.path] = source
        told += found
        if len(told) > FINDINGS_MAX:
            return LintReport(tuple(told[:FINDINGS_MAX]), files, sources, cut=True)
    return LintReport(tuple(told), files, sources)


def select_findings(
    source: SourceFile, findings: Iterable[Finding], settings: LintSettings, codes: frozenset[str], comment: str = HASH
) -> list[Finding]:
    """
    The findings of one file that are wanted and not ignored, in order.

    `codes` are those that the check looked for. An ignore of a code that is not wanted in this file is left alone.
    """
    path = Path(source.path)
    checked = frozenset(code for code in codes if settings.tells(code, path))
    told = apply_ignores(source, list(findings), find_ignores(source, comment), checked)
    return sorted((one for one in told if settings.tells(one.code, path)), key=lambda one: one.place)
