"""
Which files are looked at: those that are named, and those below the folders that are named.

Links to folders are not followed, so that a loop of them ends; a file that is reached twice is read once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from onceward._core.errors import ConfigurationError

FOLDERS_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})
"""Not looked into, unless named: what others wrote, or a machine did. Nor are hidden folders and templates."""

_TEST_FILE = re.compile(r"test_.*|.*[._]test\.(py|sql)|tests?\.py|conftest\.py")


def find_files(
    paths: Iterable[Path],
    suffixes: Sequence[str],
    is_excluded: Callable[[Path], bool] = lambda path: False,
    *,
    tests: bool = True,
) -> Iterator[Path]:
    """
    The files to look at, each once, in order. A file that is named itself is looked at whatever its ending. A folder
    that cannot be read is given, too: whoever reads it finds that out, and nobody takes it for clean.

    With `tests=False`, tests below a folder that is named are left out: they make keys afresh on purpose.

    Raises ConfigurationError for a path that is not there: a typing mistake must not look like a clean result.
    """
    seen: set[str] = set()
    for path in paths:
        if not os.path.lexists(path):
            raise ConfigurationError(f"there is no file or folder {str(path)!r}. Check the path")
        for file in _below(path, suffixes, tests=tests) if path.is_dir() else (path,):
            identity = os.path.realpath(file)
            if identity not in seen and not is_excluded(file):
                seen.add(identity)
                yield file


def _below(folder: Path, suffixes: Sequence[str], *, tests: bool) -> Iterator[Path]:
    left_out = FOLDERS_LEFT_OUT if tests else FOLDERS_LEFT_OUT | {"test", "tests", "testdata"}
    closed: list[Path] = []
    for root, folders, files in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not _is_left_out(name) and name not in left_out)
        for name in sorted(files):
            if name.endswith(tuple(suffixes)) and "{{" not in name and (tests or not _TEST_FILE.fullmatch(name)):
                yield Path(root, name)
    yield from closed


def _is_left_out(name: str) -> bool:
    """Hidden folders, and templates of projects: `{{cookiecutter.name}}` is no Python yet."""
    return name.startswith(".") or "{{" in name
