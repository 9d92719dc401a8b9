"""
Where output goes: answers to stdout, everything said about them to stderr.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from onceward._core.errors import OncewardError
from onceward.cli.json_documents import error_document, json_line
from onceward.cli.text_tables import escape_invisible


def print_text(text: str) -> None:
    """Print an answer."""
    _write(sys.stdout, text)


def print_json(document: Any) -> None:
    """Print an answer for programs."""
    _write(sys.stdout, json_line(document))


def print_note(text: str) -> None:
    """Tell the person at the terminal something that is not part of the answer."""
    _write(sys.stderr, text)


def print_error(error: OncewardError, *, as_json: bool) -> None:
    """Tell what went wrong, in one line or in one document."""
    _write(sys.stderr, json_line(error_document(error)) if as_json else f"onceward: {escape_invisible(str(error))}")


def discard_stdout() -> None:
    """Whoever read our output is gone: let nothing more be written, lest Python complains on its way out."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _write(stream: TextIO, text: str) -> None:
    # A terminal that cannot show a character gets its escape, and not half an answer and a traceback.
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()
