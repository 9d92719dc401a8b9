"""
Ignores: a comment that says that somebody looked, and why it may stay.

    key = f"{run}:{started_at}"  # onceward: ignore[OW101] started_at is read from the row
    INSERT INTO log ...;         -- onceward: ignore[OW201] a log may have doubles

It holds for its own line; one that stands alone on a line holds for the next line that is no comment. The reason is
required. What ignores nothing is a finding, because it would hide the next hazard on its line.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onceward.lint.findings import BAD_IGNORE, LINTER_RULES, UNUSED_IGNORE, Edit, Finding
from onceward.lint.rule_table import all_rules
from onceward.lint.source_file import SourceFile

HASH: Final = "#"
DASHES: Final = "--"

_IGNORE = re.compile(r"(?:#|--)[ \t]*onceward:[ \t]*ignore\b[ \t]*(?:\[(?P<codes>[^\]]{0,200})\])?(?P<reason>[^\n]*)")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment: where it stands, which line it is about, and what it ignores there."""

    line: int
    column: int
    end_column: int
    about: int
    codes: tuple[str, ...]
    problem: str = ""
    """What is wrong with it: it is not obeyed then."""


def find_ignores(source: SourceFile, comment: str = HASH) -> list[Ignore]:
    """The ignores of a file. In Python they are comments to the tokenizer: text in a string is none."""
    if "onceward:" not in source.text:
        return []
    places = _python_comments(source) if comment == HASH else _sql_comments(source)
    return [
        _read(source, line, column + found.start(), column + found.end(), found, comment)
        for line, column, text in places
        if (found := _IGNORE.search(text))
    ]


def apply_ignores(
    source: SourceFile, findings: Sequence[Finding], ignores: Sequence[Ignore], checked: frozenset[str]
) -> list[Finding]:
    """
    The findings that are not ignored, and those about the ignores themselves.

    `checked` are the codes that were looked for: an ignore of another is neither used nor unused.
    """
    own = {rule.code for rule in LINTER_RULES}
    used: set[tuple[int, str]] = set()
    by_line: dict[tuple[int, str], Ignore] = {
        (ignore.about, code): ignore for ignore in ignores if not ignore.problem for code in ignore.codes
    }
    told = []
    for finding in findings:
        if (finding.line, finding.code) in by_line and finding.code not in own:
            used.add((finding.line, finding.code))
        else:
            told.append(finding)
    for ignore in ignores:
        if ignore.problem:
            told.append(
                source.finding(BAD_IGNORE, ignore.line, ignore.column + 1, ignore.end_column + 1, ignore.problem)
            )
            continue
        unused = [code for code in ignore.codes if code in checked and (ignore.about, code) not in used]
        if unused:
            told.append(_unused(source, ignore, unused))
    return told


def _unused(source: SourceFile, ignore: Ignore, unused: list[str]) -> Finding:
    finding = source.finding(
        UNUSED_IGNORE,
        ignore.line,
        ignore.column + 1,
        ignore.end_column + 1,
        f"ignores nothing: {', '.join(unused)} is not found on line {ignore.about}. Remove it",
    )
    if len(unused) < len(ignore.codes):
        return finding
    line = source.line(ignore.line)
    if line[: ignore.column].strip():
        start = len(line[: ignore.column].rstrip())
        return replace(finding, fix=Edit(ignore.line, start + 1, ignore.line, ignore.end_column + 1, ""))
    return replace(finding, fix=Edit(ignore.line, 1, ignore.line + 1, 1, ""))


def _read(source: SourceFile, line: int, column: int, end: int, found: re.Match[str], comment: str) -> Ignore:
    codes = tuple(code.strip() for code in (found["codes"] or "").split(",") if code.strip())
    example = f"{comment} onceward: ignore[OW101] why it may stay"
    if not codes:
        problem = f"names no code. Write `{example}`"
    elif unknown := [code for code in codes if code not in all_rules()]:
        problem = f"there is no rule {unknown[0]!r}. `onceward lint rules` lists the codes"
    elif not any(character.isalnum() for character in found["reason"]):
        problem = f"gives no reason, so it has no effect. Write `{example}`"
    else:
        problem = ""
    alone = not source.line(line)[:column].strip()
    return Ignore(line, column, end, _next_line(source, line, comment) if alone else line, codes, problem)


def _next_line(source: SourceFile, line: int, comment: str) -> int:
    for number in range(line + 1, len(source.lines) + 1):
        text = source.line(number).strip()
        if text and not text.startswith(comment):
            return number
    return line


def _python_comments(source: SourceFile) -> Iterator[tuple[int, int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT and "onceward:" in token.string:
                yield token.start[0], token.start[1], token.string
    except (tokenize.TokenError, SyntaxError):
        return  # The file cannot be parsed either, and that is the finding.


def _sql_comments(source: SourceFile) -> Iterator[tuple[int, int, str]]:
    """Comments by their look: a line whose string holds such a text is not worth a lexer for every dialect."""
    for number, line in enumerate(source.lines, start=1):
        column = line.find("--")
        if column >= 0 and "onceward:" in line:
            yield number, column, line[column:]
