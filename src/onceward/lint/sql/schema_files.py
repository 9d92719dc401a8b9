"""
The schema from migration files, applied in their order: by the numbers in their names, as the tools do it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from onceward._core.errors import ConfigurationError
from onceward.lint.file_search import find_files
from onceward.lint.findings import Finding
from onceward.lint.source_file import SourceFile, read_source

_DOWN_FILE: Final = re.compile(r"(?:^|[._-])down\.sql$|^U\d[\w.]*__", re.IGNORECASE)
_MARK: Final = re.compile(
    r"^--[ \t]*(?:\+goose[ \t]+|\+migrate[ \t]+|migrate:|@)?(?P<way>up|down|undo|rollback)\b"
    r"[ \t]*(?:[ \t]transaction:\w+)?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)


def ordered_files(paths: Iterable[Path], *, needed: bool = False) -> list[Path]:
    """
    The .sql files to read, in order: 2_b.sql before 10_a.sql. Those that take a migration back are left out.

    Raises ConfigurationError for a path that is not there, and for a folder without such files if they are needed.
    """
    found: list[Path] = []
    for path in paths:
        below = list(find_files([path], (".sql",)))
        if path.is_dir():
            below = sorted((one for one in below if not is_downward(one)), key=_natural)
            if not below and needed:
                raise ConfigurationError(
                    f"there are no .sql files in {str(path)!r}. Print what your tool would run: `alembic upgrade head "
                    "--sql`, or `manage.py sqlmigrate APP NAME`"
                )
        found += [one for one in below if one not in found]
    return found


def is_downward(path: Path) -> bool:
    """Whether a file takes a migration back, by its name."""
    return _DOWN_FILE.search(path.name) is not None


def read_migration(path: Path) -> SourceFile | Finding:
    """A file with what takes it back blanked out: what stands below `-- +goose Down` or `-- migrate:down`."""
    source = read_source(path, path.as_posix())
    return source if isinstance(source, Finding) else SourceFile(source.path, without_down(source.text))


def without_down(text: str) -> str:
    """The same text, with blanks for what takes a migration back. Lines stay where they are."""
    parts, done = [], 0
    marks = list(_MARK.finditer(text))
    for number, mark in enumerate(marks):
        if mark["way"].lower() == "up":
            continue
        end = next((one.start() for one in marks[number + 1 :] if one["way"].lower() == "up"), len(text))
        if mark.start() >= done:
            parts += [text[done : mark.start()], re.sub(r"[^\n]", " ", text[mark.start() : end])]
            done = end
    return "".join(parts) + text[done:]


def _natural(path: Path) -> list[Any]:
    """A key to sort by, in which numbers count as numbers."""
    parts = re.findall(r"\d{1,30}|\D+", path.as_posix().lower())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
