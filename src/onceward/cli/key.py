"""
`onceward key`: make keys, and look at them before they do harm. Needs no store.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward._core.key_derivation import derive, derive_colon, input_hash
from onceward._core.key_lint import KeyFinding, explain_key, lint_recipe
from onceward._core.key_recipes import recipe
from onceward._core.keys import KEY_CHARACTERS_MAX
from onceward.cli import exit_codes
from onceward.cli.command_parser import CommandGroup, add_command, add_group, read_json_argument
from onceward.cli.output import print_json, print_text
from onceward.cli.text_tables import format_facts, format_table
from onceward.keys import mint

KEY_BYTES_READ_MAX = 65_536
"""From stdin: far above any key, so that a key that is too long is still measured."""


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "key", "make keys, and look at them before they do harm")
    _add_derive(group)
    add_command(
        group,
        "mint",
        "print a new random key (a UUID)",
        _mint,
        examples=("onceward key mint",),
        codes=(exit_codes.FINE, exit_codes.USAGE),
        more="Store it before the first attempt, or a crash loses it. Prefer `derive` where you can.",
    )
    explain = add_command(
        group,
        "explain",
        "say whether a key, or a recipe for keys, is allowed and wise",
        _explain,
        examples=(
            "onceward key explain charge:order-17",
            "onceward key explain --recipe 'charge:{order_id}'",
            "onceward key explain --recipe 'charge:{timestamp}'  # exit 1",
        ),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE),
        more=(
            "Findings K1 to K5 are the usual mistakes, judged by looks, so one can be wrong: an order number may look\n"
            "like a time. Any finding makes the answer no. The key itself is not printed; its digest is."
        ),
    )
    what = explain.add_mutually_exclusive_group(required=True)
    what.add_argument("key", metavar="KEY", nargs="?", help="the key, or - to read it from stdin")
    what.add_argument("--recipe", metavar="TEMPLATE", help="a template, such as charge:{order_id}")


def _add_derive(group: CommandGroup) -> None:
    command = add_command(
        group,
        "derive",
        "print the key of one tool call: the same whenever the five fields are",
        _derive,
        examples=(
            "onceward key derive --worker w-1 --run r-9 --turn 3 --tool charge --input '{\"order\": 17}'",
            "onceward key derive --worker w-1 --run r-9 --turn 3 --tool charge --input @call.json",
            "onceward key derive --recipe colon --worker-id w-1 --run-id r-9 --turn-seq 3 --tool-name charge"
            " --input '{\"order\": 17}'",
        ),
        codes=(exit_codes.FINE, exit_codes.USAGE),
        more="The input counts by its canonical form: the order of its members does not matter.",
    )
    command.add_argument("--worker", "--worker-id", metavar="ID", required=True, help="who calls")
    command.add_argument("--run", "--run-id", metavar="ID", dest="of_run", required=True, help="in which run")
    command.add_argument("--turn", "--turn-seq", metavar="N", required=True, help="at which turn of the run")
    command.add_argument("--tool", "--tool-name", metavar="NAME", required=True, help="with which tool")
    asked = command.add_mutually_exclusive_group(required=True)
    asked.add_argument("--input", metavar="JSON", help="asking for what: JSON, @FILE or - for stdin")
    asked.add_argument("--canonical-input-hash", metavar="HEX", help="with --recipe colon: the hash of the input")
    command.add_argument(
        "--recipe",
        choices=("derive", "colon"),
        default="derive",
        help="colon: the older form (fields with colons between them), for tables that hold such keys",
    )


def _derive(asked: argparse.Namespace) -> int:
    if asked.recipe == "derive" and asked.input is None:
        raise exit_codes.UsageError("--canonical-input-hash belongs to --recipe colon; pass --input")
    value = None if asked.input is None else read_json_argument("--input", asked.input)
    if asked.recipe == "derive":
        key = derive(worker=asked.worker, run=asked.of_run, turn=_turn(asked.turn), tool=asked.tool, input=value)
    else:
        key = derive_colon(
            worker_id=asked.worker,
            run_id=asked.of_run,
            turn_seq=_turn(asked.turn),
            tool_name=asked.tool,
            canonical_input_hash=asked.canonical_input_hash or input_hash(value),
        )
    return _tell_key(asked, {"key": key, "recipe": asked.recipe})


def _turn(text: str) -> int | str:
    """A turn's number as a number, so that it is judged as one; any other text as it is."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0") else text


def _mint(asked: argparse.Namespace) -> int:
    return _tell_key(asked, {"key": mint(), "recipe": "mint"})


def _tell_key(asked: argparse.Namespace, document: dict[str, str]) -> int:
    if asked.json:
        print_json(document)
    else:
        print_text(document["key"])
    return exit_codes.FINE


def _explain(asked: argparse.Namespace) -> int:
    about, findings = _about_key(asked.key) if asked.recipe is None else _about_recipe(asked.recipe)
    if asked.json:
        print_json(about | {"findings": [asdict(finding) for finding in findings]})
    else:
        shown = about | {"allowed": "yes" if about["allowed"] else f"no: {about['problem']}", "problem": None}
        print_text(
            format_facts(
                (name, (", ".join(value) or None) if isinstance(value, list) else value)
                for name, value in shown.items()
            )
        )
        if findings:
            rows = [(finding.code, finding.message, finding.advice) for finding in findings]
            print_text("\n" + format_table(("FINDING", "SEEN", "ADVICE"), rows, limit=None))
    return exit_codes.FINE if about["allowed"] and not findings else exit_codes.NO


def _about_key(given: str) -> tuple[dict[str, Any], tuple[KeyFinding, ...]]:
    # From stdin a key stays out of the shell's history; a line end after it is the pipe's, not the key's.
    key = sys.stdin.read(KEY_BYTES_READ_MAX).removesuffix("\n").removesuffix("\r") if given == "-" else given
    report = explain_key(key)
    about = {
        "length": report.length,
        "limit": KEY_CHARACTERS_MAX,
        "allowed": report.problem is None,
        "problem": report.problem,
        "digest": report.digest,
    }
    return about, report.findings


def _about_recipe(template: str) -> tuple[dict[str, Any], list[KeyFinding]]:
    try:
        made, problem = recipe(template), None
    except ConfigurationError as error:
        made, problem = None, str(error)
    about = {
        "recipe": template,
        "fields": [] if made is None else list(made.fields),
        "allowed": problem is None,
        "problem": problem,
    }
    return about, lint_recipe(template)
