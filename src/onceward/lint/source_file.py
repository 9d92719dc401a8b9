"""
A file as the linter reads it: its text and lines, read once, within limits.

What cannot be read is a finding and not an exception: one odd file does not hide the hazards of the others.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from onceward.lint.findings import CANNOT_READ, TOO_LARGE, Finding

BYTES_MAX: Final = 2_000_000
"""Of one file. The largest file that people wrote by hand, in the code bases we looked at, has a quarter of this."""

_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


@dataclass(frozen=True)
class SourceFile:
    """A text with its path, as it is shown in findings."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends, as parsers count them: \\x0c and the like end none."""
        return re.split(r"\r\n|\r|\n", self.text)

    def finding(self, code: str, line: int, column: int, end_column: int, message: str) -> Finding:
        """A finding in this file. Lines and columns count from 1, in characters."""
        return Finding(code, self.path, line, column, max(end_column, column + 1), message)

    def line(self, number: int) -> str:
        """One line, or nothing if there is no such line."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""


def read_source(path: Path, shown: str) -> SourceFile | Finding:
    """Read one file, or say why it cannot be read."""
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            what = "a folder that cannot be read" if path.is_dir() else "a pipe or a device, not a file"
            return Finding(CANNOT_READ, shown, 1, 1, 2, f"is {what}; nothing in it was checked")
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        return Finding(CANNOT_READ, shown, 1, 1, 2, f"cannot be read: {error.strerror or error}")
    if len(content) > BYTES_MAX:
        return Finding(
            TOO_LARGE,
            shown,
            1,
            1,
            2,
            f"has more than {BYTES_MAX:,} bytes; nothing in it was checked. Exclude it if it is generated",
        )
    try:
        text = _decode(content, declares_coding=path.suffix == ".py")
    except (UnicodeDecodeError, LookupError) as error:
        reason = f"unknown encoding: {error}" if isinstance(error, LookupError) else f"is not {error.encoding}"
        return Finding(CANNOT_READ, shown, 1, 1, 2, f"{reason}. Save it as UTF-8, or exclude it")
    if "\0" in text:
        return Finding(CANNOT_READ, shown, 1, 1, 2, "has a null byte, so it is not text. Exclude it")
    return SourceFile(shown, text)


def _decode(content: bytes, *, declares_coding: bool) -> str:
    """The text of a file: UTF-8, with or without a mark, or for Python what one of its first two lines says."""
    if content.startswith(codecs.BOM_UTF8):
        return content.decode("utf-8-sig")
    for line in content.split(b"\n", 2)[:2] if declares_coding else ():
        if found := _CODING.match(line):
            coding = codecs.lookup(found[1].decode("ascii"))
            if not getattr(coding, "_is_text_encoding", True):
                raise LookupError(f"{coding.name} is not a text encoding")
            return content.decode(coding.name)
    return content.decode("utf-8")
