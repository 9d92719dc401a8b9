"""
Fixing: the edits of the findings that have one, made in one pass, and each file replaced whole.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from onceward._core.errors import ConfigurationError
from onceward.lint.findings import Edit, Finding
from onceward.lint.source_file import SourceFile


def fixed_text(source: SourceFile, edits: Iterable[Edit]) -> str:
    """The text with the edits made. Of two that overlap, the first is made: the next run finds the other."""
    starts = [0]
    for line in source.text.splitlines(keepends=True) if _plain_lines(source) else ():
        starts.append(starts[-1] + len(line))
    text, made_until, parts = source.text, 0, []
    for edit in sorted(edits, key=lambda one: (one.line, one.column)):
        if max(edit.line, edit.end_line) > len(starts):
            continue
        begin, end = starts[edit.line - 1] + edit.column - 1, starts[edit.end_line - 1] + edit.end_column - 1
        if begin >= made_until:
            parts += [text[made_until:begin], edit.text]
            made_until = end
    return "".join([*parts, text[made_until:]])


def fix_files(findings: Iterable[Finding], sources: dict[str, SourceFile]) -> list[Finding]:
    """Make the edits of these findings; those findings that remain. A file is replaced whole or not at all."""
    remaining: list[Finding] = []
    edits: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.fix is None or finding.path not in sources or not _plain_lines(sources[finding.path]):
            remaining.append(finding)
        else:
            edits.setdefault(finding.path, []).append(finding)
    for path, of_file in edits.items():
        _replace(Path(path), fixed_text(sources[path], [one.fix for one in of_file if one.fix]), sources[path].text)
    return remaining


def _plain_lines(source: SourceFile) -> bool:
    """Whether Python's idea of lines is the parsers': there is no form feed and the like in the text."""
    return len(source.text.splitlines()) in (len(source.lines), len(source.lines) - 1)


def _replace(path: Path, text: str, expected: str) -> None:
    """Write beside the file and move over it, if it still has the text that was looked at and is plain UTF-8."""
    try:
        target = Path(os.path.realpath(path))
        if target.read_bytes() != expected.encode():
            raise ConfigurationError(f"{path}: not fixed: it has just changed, or is not UTF-8. Run the command again")
        handle, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
            os.chmod(scratch, target.stat().st_mode & 0o777)  # noqa: PTH101 - a name from mkstemp
            os.replace(scratch, target)  # noqa: PTH105
        except BaseException:
            os.unlink(scratch)  # noqa: PTH108
            raise
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be fixed: {error.strerror or error}") from None
