"""
Where output goes: results to stdout, notes and errors to stderr. JSON has its names in camelCase.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from onceward._core.errors import OncewardError
from onceward.cli.terminal import RED, clear_drawn, painted
from onceward.cli.text_tables import escape_invisible


def print_text(text: str) -> None:
    """Print a result for people."""
    _write(sys.stdout, text)


def print_json(document: Any) -> None:
    """Print a result for programs."""
    _write(sys.stdout, json_text(document))


def print_note(text: str) -> None:
    """Tell the person at the terminal something that is not part of the result."""
    _write(sys.stderr, text)


def print_error(error: OncewardError, *, as_json: bool) -> None:
    """Print what went wrong, as one line or as one document."""
    document = {
        "code": error.code,
        "message": str(error),
        "retry": error.retry.value,
        "retryAfterSeconds": error.retry_after_seconds,
    }
    name = painted("onceward:", RED, sys.stderr)
    _write(sys.stderr, json_text(document) if as_json else f"{name} {escape_invisible(str(error))}")


def json_text(document: Any) -> str:
    """A document as JSON in ASCII. Everything else is escaped, also DEL, which JSON would let through."""
    return json.dumps(document, ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")


def camel_case(name: str) -> str:
    """A Python name as JSON has it: lease_seconds_left -> leaseSecondsLeft."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def discard_stdout() -> None:
    """Write nothing more: the reader of our output has closed it, and Python would complain at its exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _write(stream: TextIO, text: str) -> None:
    # A terminal that cannot show a character gets its escape instead of a traceback.
    encoding = stream.encoding or "utf-8"
    clear_drawn()
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()
