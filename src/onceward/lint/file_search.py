"""
Which files are looked at: those that are named, and those below the folders that are named.

Links to folders are not followed, so that a loop of them ends; a file that is reached twice is read once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from onceward._core.errors import ConfigurationError

FOLDERS_LEFT_OUT: Final = frozenset(
    {
        "__pycache__",
        "node_modules",
        "site-packages",
        "venv",
        "build",
        "dist",
    }
)
"""Not looked into, unless named: what others wrote, or a machine did. So are folders that begin with a dot."""


def find_files(
    paths: Iterable[Path], suffixes: Sequence[str], is_excluded: Callable[[Path], bool] = lambda path: False
) -> Iterator[Path]:
    """
    The files to look at, each once, in order. A file that is named itself is looked at whatever its ending.

    Raises ConfigurationError for a path that is not there: a typing mistake must not look like a clean result.
    """
    seen: set[str] = set()
    for path in paths:
        if not os.path.lexists(path):
            raise ConfigurationError(f"there is no file or folder {str(path)!r}. Check the path")
        for file in _below(path, suffixes) if path.is_dir() else (path,):
            identity = os.path.realpath(file)
            if identity not in seen and not is_excluded(file):
                seen.add(identity)
                yield file


def _below(folder: Path, suffixes: Sequence[str]) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in FOLDERS_LEFT_OUT)
        for name in sorted(files):
            if name.endswith(tuple(suffixes)):
                yield Path(root, name)
