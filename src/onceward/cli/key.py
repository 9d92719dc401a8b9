"""
`onceward key`: make keys, and check them before they cause trouble. Needs no store.
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
from onceward.cli.argument_types import read_json_argument
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import print_json, print_text
from onceward.cli.progress import asking
from onceward.cli.text_tables import format_facts, format_table
from onceward.keys import mint

KEY_BYTES_READ_MAX = 65_536
"""From stdin: far above any key, so that a key that is too long is still measured."""


def _derive(args: argparse.Namespace) -> int:
    if args.recipe == "derive" and args.input is None:
        raise exit_codes.UsageError("--canonical-input-hash goes with --recipe colon only. Use --input instead")
    value = None if args.input is None else read_json_argument("--input", args.input)
    if args.recipe == "derive":
        key = derive(worker=args.worker, run=args.of_run, turn=_turn(args.turn), tool=args.tool, input=value)
    else:
        key = derive_colon(
            worker_id=args.worker,
            run_id=args.of_run,
            turn_seq=_turn(args.turn),
            tool_name=args.tool,
            canonical_input_hash=args.canonical_input_hash or input_hash(value),
        )
    return _print_key(args, {"key": key, "recipe": args.recipe})


def _turn(text: str) -> int | str:
    """A turn's number as a number, so that it is checked as one; any other text as it is."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0") else text


def _mint(args: argparse.Namespace) -> int:
    return _print_key(args, {"key": mint(), "recipe": "mint"})


def _print_key(args: argparse.Namespace, document: dict[str, str]) -> int:
    if args.json:
        print_json(document)
    else:
        print_text(document["key"])
    return exit_codes.FINE


def _explain(args: argparse.Namespace) -> int:
    about, findings = _about_key(args.key) if args.recipe is None else _about_recipe(args.recipe)
    if args.json:
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
    with asking():
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


COMMANDS = (
    Command(
        name="key derive",
        summary="print the key of one tool call, which is the same whenever the five fields are the same",
        run=_derive,
        arguments=(
            Argument("--worker --worker-id", "who calls", metavar="ID", required=True),
            Argument("--run --run-id", "in which run", metavar="ID", dest="of_run", required=True),
            Argument("--turn --turn-seq", "the number of the turn in the run", metavar="N", required=True),
            Argument("--tool --tool-name", "with which tool", metavar="NAME", required=True),
            Argument("--input", "the tool's input: JSON, @FILE or - for stdin", metavar="JSON", one_of="input"),
            Argument(
                "--canonical-input-hash",
                "with --recipe colon: the hash of the input",
                metavar="HEX",
                one_of="input",
            ),
            Argument(
                "--recipe",
                "colon: the older form (fields with colons between them), for tables that hold such keys",
                choices=("derive", "colon"),
                default="derive",
            ),
        ),
        examples=(
            "onceward key derive --worker w-1 --run r-9 --turn 3 --tool charge --input '{\"order\": 17}'",
            "onceward key derive --worker w-1 --run r-9 --turn 3 --tool charge --input @call.json",
            "onceward key derive --recipe colon --worker-id w-1 --run-id r-9 --turn-seq 3 --tool-name charge"
            " --input '{\"order\": 17}'",
        ),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE),
        more="The input is compared in its canonical form: the order of its members does not matter.",
    ),
    Command(
        name="key mint",
        summary="print a new random key (a UUID)",
        run=_mint,
        examples=("onceward key mint",),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE),
        more="Store it before the first attempt, or a crash loses it. Prefer `derive` where you can.",
    ),
    Command(
        name="key explain",
        summary="check whether a key, or a recipe for keys, is valid and sensible",
        run=_explain,
        arguments=(
            Argument("key", "the key, or - to read it from stdin", metavar="KEY", nargs="?", one_of="what"),
            Argument("--recipe", "a template, such as charge:{order_id}", metavar="TEMPLATE", one_of="what"),
        ),
        examples=(
            "onceward key explain charge:order-17",
            "onceward key explain --recipe 'charge:{order_id}'",
            "onceward key explain --recipe 'charge:{timestamp}'  # exit 1",
        ),
        exit_codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE),
        no="the key is not allowed, or there is a finding",
        more=(
            "Findings K1 to K5 are common mistakes. They go by appearance, so a finding can be wrong: an order number\n"
            "may look like a time. Any finding makes the exit code 1. The key itself is not printed; its digest is."
        ),
    ),
)
