"""
What a terminal is given beyond plain text: colour, and tables that fit its width; `progress.py` has the rest.

Pipes and files get none of it. NO_COLOR, FORCE_COLOR and --color decide about colour, the strongest first: what was
typed, NO_COLOR, FORCE_COLOR, whether it is a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

CHOICES = ("auto", "always", "never")
BOLD, RED, GREEN, YELLOW = "1", "31", "32", "33"

_STYLES = {
    **dict.fromkeys(("in_doubt", "PROBLEM", "NEEDED", "BLOCKED", "dead", "broken"), RED),
    **dict.fromkeys(("lapsed", "claimed", "watch", "waiting", "changed", "cannot say"), YELLOW),
    **dict.fromkeys(("ok", "fine", "PERMITTED"), GREEN),
}
"""Words that stand out wherever they are all that a cell says."""

_LEAST_WIDTH = 60
"""A table is not squeezed further than this: below it, rows that wrap are easier to read."""

_chosen = "auto"
_drawn: list[Callable[[], None]] = []


def choose_colour(when: str) -> None:
    """Take note of --color."""
    global _chosen  # noqa: PLW0603 - one command is run by a process, and output goes through many hands
    _chosen = when


def has_colour(stream: TextIO) -> bool:
    """Whether to use colour on a stream."""
    if _chosen != "auto":
        return _chosen == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at it."""
    try:
        return stream.isatty()
    except ValueError:  # Closed.
        return False


def clear_before_output(clear: Callable[[], None]) -> None:
    """Have something taken away from the terminal before anything is printed there."""
    _drawn.append(clear)


def clear_drawn() -> None:
    """Take away what is drawn on the terminal: something is about to be printed."""
    for clear in _drawn:
        clear()


def painted(text: str, style: str | None, stream: TextIO | None = None) -> str:
    """A text in a style, if the stream (stdout) is given colour."""
    if style is None or not text or not has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def style_of(cell: str) -> str | None:
    """The style of a word that stands out."""
    return _STYLES.get(cell.strip())


def table_width() -> int | None:
    """The columns of the terminal that stdout is; None: it is none, and a line may be as long as it likes."""
    if not is_terminal(sys.stdout):
        return None
    return max(_LEAST_WIDTH, columns())


def columns() -> int:
    """How wide the terminal is."""
    from shutil import get_terminal_size  # Here, so that `--help` does not wait for it.

    return get_terminal_size().columns
