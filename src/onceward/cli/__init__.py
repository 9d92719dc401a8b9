"""
The command line: `onceward key`, `records`, `dead`, `contract`, `store`, `token`, `tenant`, `ledger`, `relay`,
`hooks`, `journal`, `serve`, `simulate`, `conformance`.

Answers go to stdout (tables for people, one JSON document with --json), everything else to stderr. An error that was
to be expected is one line and an exit code, never a traceback.
"""

from __future__ import annotations

import sys
from importlib import import_module

from onceward import __version__
from onceward._core.errors import OncewardError
from onceward.cli import exit_codes
from onceward.cli.command_parser import CommandParser, show_help
from onceward.cli.output import discard_stdout, print_error

__all__ = ["build_parser", "main"]

_EPILOG = """\
example:
  onceward store init --store sqlite:///agent.db
  onceward records list --state in_doubt --store sqlite:///agent.db

A store is named by --store URL or by the environment variable ONCEWARD_STORE.

"""


GROUPS = (
    *("key", "records", "dead", "contract", "store", "token", "tenant", "ledger", "relay", "hooks", "journal"),
    *("serve", "simulate", "conformance"),
)
"""Each has a module of its name, which is imported when its name is typed: a command should not wait for others."""


def build_parser(only: str | None = None) -> CommandParser:
    """Everything that can be typed; or one group of it."""
    parser = CommandParser(
        prog="onceward",
        description="Send it as many times as you like; it happens once, and everyone learns the same answer.",
        epilog=_EPILOG + exit_codes.describe_exit_codes(),
    )
    parser.add_argument("--version", action="version", version=f"onceward {__version__}")
    parser.set_defaults(run=lambda _: show_help(parser))
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=CommandParser)
    for name in GROUPS if only is None else (only,):
        import_module(f"onceward.cli.{name}").add_to(parsers)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    typed = sys.argv[1:] if argv is None else argv
    try:
        only = typed[0] if typed and typed[0] in GROUPS else None
        asked = build_parser(only).parse_args(typed)
        code: int = asked.run(asked)
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
