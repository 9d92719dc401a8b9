"""
How commands are declared and their arguments read.

Every command has a summary, examples that run as they stand (a test runs them) and its exit codes in `--help`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from onceward._core.errors import RequestInvalid
from onceward._core.strict_json import parse_json
from onceward.cli import exit_codes
from onceward.gate.operator_actions import DIGITS_MIN, ID_DIGITS

INPUT_BYTES_MAX = 100 * 1024 * 1024
"""Of a request that is hashed: as much as an HTTP body may have."""

CommandFunction: TypeAlias = Callable[[argparse.Namespace], int]
CommandGroup: TypeAlias = "argparse._SubParsersAction[CommandParser]"


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are ours: one line, an exit code, and where to read more."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today means something else once there is another option.
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Refuse the command."""
        raise exit_codes.UsageError(f"{message}; see `{self.prog} --help`")


def add_group(parsers: CommandGroup, name: str, summary: str) -> CommandGroup:
    """A group of commands. Typed alone, it shows its help."""
    group = parsers.add_parser(
        name, help=summary, description=_sentence(summary), epilog=exit_codes.describe_exit_codes()
    )
    group.set_defaults(run=_show_help_of(group))
    return group.add_subparsers(title="commands", metavar="COMMAND", parser_class=CommandParser)


def add_command(
    parsers: CommandGroup,
    name: str,
    summary: str,
    run: CommandFunction,
    *,
    examples: tuple[str, ...],
    codes: tuple[int, ...],
    more: str = "",
) -> CommandParser:
    """A command: what it does, examples, exit codes."""
    shown = "example:\n" if len(examples) == 1 else "examples:\n"
    epilog = shown + "".join(f"  {example}\n" for example in examples) + "\n" + exit_codes.describe_exit_codes(codes)
    described = _sentence(summary) + (f"\n\n{more}" if more else "")
    command = parsers.add_parser(name, help=summary, description=described, epilog=epilog)
    command.add_argument("--json", action="store_true", help="print one JSON document (errors too, on stderr)")
    command.set_defaults(run=run)
    return command


def show_help(parser: argparse.ArgumentParser) -> int:
    """What there is to type, for somebody who typed too little."""
    parser.print_help(sys.stderr)
    return exit_codes.USAGE


def count_up_to(limit: int) -> Callable[[str], int]:
    """An argument that counts something, from 1 to a limit."""

    def count(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(limit)) else 0
        if not 1 <= number <= limit:
            raise argparse.ArgumentTypeError(f"a whole number from 1 to {limit} is needed")
        return number

    return count


def seconds(text: str) -> float:
    """An argument that is a duration."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("a number of seconds is needed") from None


def id_digits(text: str) -> str:
    """An argument that names a record: its id, or the digest that logs and errors show (the id's first digits)."""
    digits = text.lower()
    if not DIGITS_MIN <= len(digits) <= ID_DIGITS or not {*digits} <= {*"0123456789abcdef"}:
        raise argparse.ArgumentTypeError(
            f"a record is named by {DIGITS_MIN} to {ID_DIGITS} hex digits: its id, or the digest in a log or an error"
        )
    return digits


def read_json_argument(option: str, text: str, bytes_max: int = INPUT_BYTES_MAX) -> Any:
    """The value of an argument that takes JSON, @FILE or - (stdin)."""
    if text == "-":
        raw = sys.stdin.buffer.read(bytes_max + 1)
    elif text.startswith("@"):
        raw = _contents(option, Path(text[1:]), bytes_max)
    else:
        raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > bytes_max:
        raise exit_codes.UsageError(f"{option} has more than {bytes_max:,} bytes, and that is the limit")
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
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "that is no name of a file"
        raise exit_codes.UsageError(f"{option}: cannot read {str(path)!r}: {reason}") from None


def _show_help_of(parser: CommandParser) -> CommandFunction:
    return lambda _: show_help(parser)


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
