"""
The command line: `onceward key`, `lint`, `doctor`, `migrate`, `records`, `dead`, `contract`, `store`, `token`,
`tenant`, `db`, `ledger`, `relay`, `hooks`, `audit`, `journal`, `mcp`, `serve`, `drill`, `simulate`, `conformance`.

A module named for a group (records, dead, tenant ...) declares and runs its commands, and is imported only when its
name is typed; every other module is a helper. Results go to stdout (a table, or one JSON document with --json), notes
and errors to stderr; an expected error is one line and an exit code, never a traceback.

May import everything; nothing imports it. Start reading with `main` below, then command_table.py and records.py.
"""

from __future__ import annotations

import sys

from onceward._core.errors import OncewardError
from onceward.cli import exit_codes
from onceward.cli.command_table import GROUPS, build_parser
from onceward.cli.output import discard_stdout, print_error
from onceward.cli.terminal import CHOICES, choose_colour

__all__ = ["build_parser", "main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    typed = sys.argv[1:] if argv is None else argv
    try:
        # The commands of one group only: no command waits for the imports of the others.
        choose_colour(_colour_of(typed))
        args = build_parser([word for word in typed if word in GROUPS][:1]).parse_args(typed)
        from onceward.cli.progress import watching  # Here, so that `--help` does not wait for it.

        with watching(args.label, quiet=not args.label or "--json" in typed):
            code: int = args.run(args)
        return code
    except SystemExit as stop:  # --help and --version have printed what they have to say.
        return stop.code if isinstance(stop.code, int) else exit_codes.FINE
    except OncewardError as error:
        print_error(error, as_json="--json" in typed)
        return exit_codes.exit_code_of(error)
    except BrokenPipeError:
        discard_stdout()
        return exit_codes.PIPE_CLOSED
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def _colour_of(typed: list[str]) -> str:
    """What --color says, before anything is read: what is wrong with the rest is printed in colour, too."""
    for number, word in enumerate(typed):
        name, equals, value = word.partition("=")
        if name == "--color":
            when = value if equals else "".join(typed[number + 1 : number + 2])
            return when if when in CHOICES else "auto"
    return "auto"
