"""
What a command is: a row with its name, summary, arguments, examples and exit codes; and the parser made of rows.

Each module that is named for a group has its rows as `COMMANDS`. This module imports none of them, and nothing else
that takes time: `onceward --help` needs the names in `GROUPS` only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from textwrap import fill
from typing import Any, NoReturn, TypeAlias

from onceward.cli import exit_codes
from onceward.cli.terminal import CHOICES

Run: TypeAlias = Callable[[argparse.Namespace], int]
CHOICES_SHOWN = 8
Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"

GROUPS = {
    "status": "show whether anything needs you, why, and what to type",
    "key": "make keys, and check them before they cause trouble",
    "lint": "find hazards in Python and SQL code, without running it",
    "doctor": "check a project against the production checklist, and describe its keys",
    "records": "look at records, decide those in doubt, clean up",
    "dead": "dead letters: operations, messages and events that were given up; retry or discard them",
    "contract": "print every default with its unit and reason, and the limits, guarantees and refusals",
    "store": "set up a store, check it, migrate its schema",
    "migrate": "add a key to a table that already has rows: print the migration, rehearse it, apply it",
    "token": "give programs access to the service: make, list, rotate and revoke tokens",
    "tenant": "manage tenants: balances, quotas, and erasing a tenant for good",
    "db": "move a tenant's database between a service's folder and PostgreSQL, with its keys and plans",
    "ledger": "the balance ledger: verify its chain, add customers",
    "relay": "deliver the messages of an outbox: run the relay, show its status, enable endpoints",
    "hooks": "receive webhooks: add sources, see what arrived, test them",
    "audit": "see what operators decided, who and why, and verify that the log is unchanged",
    "journal": "look at what was attempted, and how it ended",
    "mcp": "proxy an MCP server: each of its calls happens once, and a retry gets the first answer",
    "dashboard": "look at a store in a browser: what is happening, what is in doubt, and decide it",
    "serve": "serve SQL over HTTP with keys and plans, and the records API",
    "drill": "prove on your store, or on your function, that retries have one effect; with evidence and a verdict",
    "simulate": "show what retries do to a system, in seeded simulations of this package's own code",
    "completion": "print the completion script for bash, zsh or fish",
    "conformance": "check any HTTP API that claims idempotency, from outside: what holds, what fails, what cannot be "
    "seen",
}
"""The first word of every command, with what it is for. Each has a module of its name."""


@dataclass(frozen=True)
class Section:
    """A heading in a help text, with the arguments that name it below."""

    title: str
    description: str


@dataclass(frozen=True, kw_only=True)
class ArgparseOptions:
    """What `argparse` takes of an argument, under its own names."""

    metavar: str | None = None
    type: Callable[[str], Any] | None = None
    default: Any = None
    choices: Sequence[str] | None = None
    action: str | None = None
    nargs: str | None = None
    dest: str | None = None
    required: bool = False


@dataclass(frozen=True)
class Argument(ArgparseOptions):
    """
    One argument of a command.

    `names` is one name, or several with blanks between them. The help ends with the default: `default_text` (units
    written out: "24 h"), or the default itself if it is a text or a number.
    """

    names: str
    help: str
    _: KW_ONLY
    default_text: str = ""
    one_of: str = ""
    """Arguments with the same word here exclude each other, and one of them is needed."""
    section: Section | None = None

    @property
    def help_text(self) -> str:
        """The help as `argparse` takes it."""
        is_shown = isinstance(self.default, str | int | float) and not isinstance(self.default, bool)
        shown = self.default_text or (str(self.default) if is_shown else "")
        return (f"{self.help} (default: {shown})" if shown else self.help).replace("%", "%%")

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Let a parser take this argument."""
        options = {name: getattr(self, name) for name in ArgparseOptions.__dataclass_fields__}
        given = {name: value for name, value in options.items() if value is not None and value is not False}
        parser.add_argument(*self.names.split(), help=self.help_text, **given)


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: what is typed, what it does, and what it runs."""

    name: str
    """As it is typed after `onceward`: "records list"."""
    summary: str
    run: Run
    """Does it, with the arguments as parsed; the exit code."""
    arguments: Iterable[Argument] = ()
    examples: tuple[str, ...]
    """Lines that run as they stand (a test runs them); `# exit 1` says how one ends that fails."""
    exit_codes: tuple[int, ...]
    no: str = ""
    """What exit code 1 means here."""
    more: str = ""
    """Sentences after the first, in the help."""
    until_stopped: bool = False
    """Whether it runs until somebody stops it: then nobody waits for its end, and it does not say how far it is."""


_WIDTH = 100
"""Characters in a line of a command's description."""

JSON = Argument("--json", "print one JSON document (errors too, on stderr)", action="store_true")
COLOR = Argument(
    "--color",
    "use colour: auto means on a terminal, unless NO_COLOR is set; FORCE_COLOR turns it on everywhere",
    choices=CHOICES,
    metavar="WHEN",
    default="auto",
)


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are ours: one line that says what to type, and an exit code."""

    examples: str = ""
    """Shown before everything that has to be read."""
    more: str = ""
    """Sentences below the usage."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today means something else once there is another option.
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def format_help(self) -> str:
        """What it is, an example, and then what there is to type."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        formatter.add_text(self.examples)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.more)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        raise exit_codes.UsageError(f"{message}{'' if message.endswith('?') else '.'} See `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Read the arguments, and refuse the first that this command does not have."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            typed = unknown[0].partition("=")[0]
            what = f"there is no option {typed}" if typed.startswith("-") else f"one argument too many: {typed!r}"
            options = [name for name in self._option_string_actions if name.startswith("--")]
            self.error(what + did_you_mean(typed, options))
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(
                f"there is no command {value!r}" + (did_you_mean(value, action.choices) or self._hint(action, value))
            )
        super()._check_value(action, value)

    def _hint(self, action: argparse._SubParsersAction[CommandParser], value: str) -> str:
        """What is there instead, if that is short enough to be read."""
        if "--path" in self._option_string_actions:
            return f": to name a file or folder, use --path {value}"
        return f". There are: {', '.join(action.choices)}" if len(action.choices) <= CHOICES_SHOWN else ""


def build_parser(groups: Iterable[str] = GROUPS) -> CommandParser:
    """The parser of the whole command line, with the commands of these groups; of the others only the summary."""
    from onceward import __version__

    parser = CommandParser(
        prog="onceward",
        description="Send it as many times as you like; it happens once, and everyone learns the same answer.",
        epilog=_EPILOG + exit_codes.describe_exit_codes(),
    )
    parser.examples = _EXAMPLES
    parser.add_argument("--version", action="version", version=f"onceward {__version__}")
    parser.set_defaults(run=_show_help_of(parser), label="")
    parsers = _subparsers(parser)
    for group, summary in GROUPS.items():
        if group not in groups:
            parsers.add_parser(group, help=summary)
            continue
        commands: tuple[Command, ...] = import_module(f"onceward.cli.{group}").COMMANDS
        if commands[0].name == group:
            own = _add_command(parsers, group, commands[0])
            if len(commands) > 1:  # It runs by itself, with options only, and has commands below.
                inner = _subparsers(own)
                for command in commands[1:]:
                    _add_command(inner, command.name.removeprefix(f"{group} "), command)
            continue
        inner = _subparsers(_add_group(parsers, group, summary))
        for command in commands:
            _add_command(inner, command.name.removeprefix(f"{group} "), command)
    return parser


_EXAMPLES = """\
examples:
  onceward store init --store sqlite:///agent.db
  onceward records list --in-doubt --store sqlite:///agent.db"""

_EPILOG = """\
A store is named by --store URL or by the environment variable ONCEWARD_STORE. The tab key completes commands and
options: onceward completion --help.

"""


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """A question with the nearest name, or nothing if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(typed, list(known), n=1)
    return f". Did you mean {near[0]}?" if near else ""


def _subparsers(parser: CommandParser) -> Subparsers:
    return parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=CommandParser)


def _add_group(parsers: Subparsers, name: str, summary: str) -> CommandParser:
    parser = parsers.add_parser(
        name, help=summary, description=_sentence(summary), epilog=exit_codes.describe_exit_codes()
    )
    parser.set_defaults(run=_show_help_of(parser))
    return parser


def _add_command(parsers: Subparsers, name: str, command: Command) -> CommandParser:
    title = "example" if len(command.examples) == 1 else "examples"
    lines = "".join(f"  {example}\n" for example in command.examples)
    parser = parsers.add_parser(
        name,
        help=command.summary.replace("%", "%%"),
        description=fill(_sentence(command.summary), _WIDTH),
        epilog=exit_codes.describe_exit_codes(command.exit_codes, command.no),
    )
    parser.examples = f"{title}:\n{lines}".rstrip()
    parser.more = fill(command.more, _WIDTH)
    parser.set_defaults(run=command.run, label="" if command.until_stopped else command.name)
    places: dict[object, argparse._ActionsContainer] = {"": parser}
    for argument in (JSON, COLOR, *command.arguments):
        place = argument.section or argument.one_of
        if place not in places:
            places[place] = (
                parser.add_argument_group(argument.section.title, argument.section.description)
                if argument.section
                else parser.add_mutually_exclusive_group(required=True)
            )
        argument.add_to(places[place])
    return parser


def _show_help_of(parser: CommandParser) -> Run:
    """Show what there is to type, for somebody who typed too little."""

    def show(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return exit_codes.USAGE

    return show


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
