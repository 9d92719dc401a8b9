"""
`python -m onceward.testing`: what helps in testing, from the command line.

    explore        every order of steps and every crash, in this process
    failpoints     every named place where a test may kill, stop or fail a process
    conformance    judge a store
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Sequence

PROGRAM = "python -m onceward.testing"
SUITE = "onceward.testing.store_suite"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["explore"]:
        return _explore(arguments[1:])  # It has options of its own, and a help text for them.
    known, rest = build_parser().parse_known_args(arguments)
    if known.command == "conformance":
        return _conformance(known.store, known.store_factory, rest)
    if rest:
        build_parser().error(f"unrecognized arguments: {' '.join(rest)}")
    return _failpoints(as_json=known.json)


def build_parser() -> argparse.ArgumentParser:
    """The commands, their options, and an example of each."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Tools for testing code that uses Onceward.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _command(
        commands,
        "explore",
        "try every order of steps and every crash, in this process",
        f"{PROGRAM} explore --help",
    )
    failpoints = _command(
        commands,
        "failpoints",
        "list every named place where a test may kill, stop or fail a process",
        f"{PROGRAM} failpoints --json",
    )
    failpoints.add_argument(
        "--json", action="store_true", help="print a JSON object of names and meanings, for programs"
    )
    conformance = _command(
        commands,
        "conformance",
        "judge a store; further arguments are passed to pytest",
        f"{PROGRAM} conformance --store sqlite:// -x -k fence",
    )
    conformance.add_argument("--store", action="append", default=[], metavar="URL", help="a store to judge, by URL")
    conformance.add_argument(
        "--store-factory",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="a store to judge, by a function (colour, environment) -> store",
    )
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, what: str, example: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _explore(arguments: list[str]) -> int:
    explorer = importlib.import_module("onceward.testing.explorer")  # Only this command pays for it.
    code: int = explorer.main(arguments)
    return code


def _failpoints(*, as_json: bool) -> int:
    catalogue, missing = declared_failpoints()
    if as_json:
        print(json.dumps(catalogue, indent=2))
    else:
        width = max(map(len, catalogue))
        print("\n".join(f"{name:{width}}  {meaning}" for name, meaning in catalogue.items()))
    for name in missing:
        print(f"not listed: the failpoints of {name}, which cannot be imported here", file=sys.stderr)
    return 0


def declared_failpoints() -> tuple[dict[str, str], list[str]]:
    """Every failpoint and its meaning, by name; and the modules that may have more, but cannot be imported here."""
    from onceward import stores
    from onceward.runtime import failpoints

    missing = []
    for module in pkgutil.iter_modules(stores.__path__, f"{stores.__name__}."):
        try:
            importlib.import_module(module.name)
        except ImportError:
            missing.append(module.name)  # A backend whose driver is not installed.
    importlib.import_module("onceward.gate")
    return dict(sorted(failpoints.CATALOGUE.items())), missing


def _conformance(urls: list[str], factories: list[str], rest: list[str]) -> int:
    given = [f"--store={url}" for url in urls] + [f"--store-factory={factory}" for factory in factories]
    # A process of its own: pytest rewrites the assertions of what it imports, and here that is imported already.
    return subprocess.call([sys.executable, "-m", "pytest", "--pyargs", SUITE, *given, *rest])  # noqa: S603 - ours


if __name__ == "__main__":
    raise SystemExit(main())
