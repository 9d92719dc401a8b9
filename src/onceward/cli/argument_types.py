"""
What an argument may be: a count, a duration, the digits of an id, JSON. Each refusal says what to type.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onceward._core.errors import RequestInvalid
from onceward._core.strict_json import parse_json
from onceward.cli import exit_codes
from onceward.cli.command_table import Argument
from onceward.cli.progress import asking
from onceward.gate.operator_actions import DIGITS_MIN, ID_DIGITS

INPUT_BYTES_MAX = 100 * 1024 * 1024
"""Of a request that is hashed: as much as an HTTP body may have."""


def count_up_to(limit: int, *, least: int = 1) -> Callable[[str], int]:
    """An argument that counts something, from 1 (or the least that makes sense) to a limit."""

    def count(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(limit)) else -1
        if not least <= number <= limit:
            raise argparse.ArgumentTypeError(f"give a whole number from {least} to {limit}")
        return number

    return count


def limit(most: int, default: int) -> Argument:
    """The argument of a list that says how many are shown at once."""
    return Argument("--limit", "show at most this many", metavar="N", type=count_up_to(most), default=default)


def seconds(text: str) -> float:
    """An argument that is a duration."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("give a number of seconds, such as 30") from None


def id_digits(text: str) -> str:
    """An argument that names a record: its id, or the digest that logs and errors show (the id's first digits)."""
    digits = text.lower()
    if not DIGITS_MIN <= len(digits) <= ID_DIGITS or not {*digits} <= {*"0123456789abcdef"}:
        raise argparse.ArgumentTypeError(
            f"give {DIGITS_MIN} to {ID_DIGITS} hex digits: the record's id, or the digest in a log or an error"
        )
    return digits


def read_json_argument(option: str, text: str, bytes_max: int = INPUT_BYTES_MAX) -> Any:
    """The value of an argument that takes JSON, @FILE or - (stdin)."""
    if text == "-":
        with asking():
            raw = sys.stdin.buffer.read(bytes_max + 1)
    elif text.startswith("@"):
        raw = _contents(option, Path(text[1:]), bytes_max)
    else:
        raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > bytes_max:
        raise exit_codes.UsageError(f"{option} is too long: the limit is {bytes_max:,} bytes")
    try:
        return parse_json(raw)
    except RequestInvalid as error:
        raise exit_codes.UsageError(
            f"{option} takes JSON (a text in double quotes: '\"done\"'), @FILE or - for stdin: {error}"
        ) from None


def _contents(option: str, path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "that is not a file name"
        raise exit_codes.UsageError(f"{option}: cannot read {str(path)!r}: {reason}") from None
