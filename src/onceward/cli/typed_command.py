"""
Commands as the person at this terminal can type them: by the name under which the program is found, with the store.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

NAME = "onceward"


def as_typed(command: str, args: argparse.Namespace) -> str:
    """A command that begins with `onceward`, as it can be typed here."""
    return f"{program()}{command.removeprefix(NAME)}{store_option(args)}"


def program() -> str:
    """How this program was called, unless its name alone finds it."""
    typed = sys.argv[0] if sys.argv else NAME
    if Path(typed).name == "__main__.py":
        return f"{_short(sys.executable)} -m {NAME}"
    if Path(typed).name != NAME:
        return NAME  # Called by another program, whose name says nothing.
    found = shutil.which(NAME)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(typed)
    return NAME if is_found else _short(typed)


def store_option(args: argparse.Namespace) -> str:
    """The store, if it was named by an option; one in the environment is found again, and a password is not shown."""
    url = getattr(args, "store", None)
    return f" --store {shlex.quote(url)}" if url and not _has_secret(url) else ""


def _has_secret(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.password) or any("password" in name.lower() for name, _ in parse_qsl(parts.query))


def _short(path: str) -> str:
    """A path from here, if that is shorter."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # On another drive.
        return shlex.quote(path)
    return shlex.quote(relative if len(relative) < len(path) else path)
