"""
Where the first token of a new service goes: to a terminal, into a private file, or nowhere.

A token on stdout that is not a terminal ends in the log of whoever runs the service, where it stays and is read by
others. So it is written into a file in the service's folder then, and the path is shown.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from onceward._core.errors import ConfigurationError

FIRST_TENANT = "demo"
"""Whom a new service has, to try things with."""
AUTO, STDOUT, NONE = "auto", "stdout", "none"
FILE = "first-token"
"""In the folder of the service."""


class TokenPlace(NamedTuple):
    """Where a token is now: the text itself, to be shown, or a file with it."""

    text: str | None = None
    file: Path | None = None

    @property
    def in_shell(self) -> str:
        """As a shell writes it in a command."""
        return self.text or f"$(cat '{self.file}')"


def hand_out(token: str, wanted: str, folder: Path, *, terminal: bool) -> TokenPlace:
    """Put a new token where it is wanted."""
    if wanted == STDOUT or (wanted == AUTO and terminal):
        return TokenPlace(text=token)
    file = folder.absolute() / FILE if wanted == AUTO else Path(wanted).absolute()
    beside = file.with_name(f".{file.name}.new")
    try:
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as opened:
            opened.write(token + "\n")
        beside.replace(file)
    except OSError as error:
        raise ConfigurationError(
            f"the first token cannot be written to {file}: {error.strerror}. Name another file (--first-token), and "
            "make a token: onceward token create --tenant demo"
        ) from None
    return TokenPlace(file=file)
