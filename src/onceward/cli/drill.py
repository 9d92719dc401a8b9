"""
`onceward drill`: proofs on demand, on a store of yours or on a function of yours, with evidence and a verdict.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from onceward.cli import exit_codes
from onceward.cli.argument_types import count_up_to, read_json_argument, seconds
from onceward.cli.command_table import GROUPS, Argument, Command, Section, did_you_mean
from onceward.cli.output import json_text, print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.store_argument import check_is_there
from onceward.cli.text_tables import escape_invisible, format_table
from onceward.drill.bundle import PERMITTED, faults_of, read_bundle, reasons_of
from onceward.drill.drill_run import DrillOrder, run_drill
from onceward.drill.proof import ProofClaims
from onceward.drill.proofs import PROOFS
from onceward.drill.target.target_proof import TARGET
from onceward.drill.target.target_run import POINTS, SECONDS, TargetOrder, run_target
from onceward.drill.target.watches import watch_of
from onceward.runtime.environment import REAL
from onceward.runtime.progress import Progress
from onceward.stores import check_url

LIST = "list"
SEED_MAX = 2**31 - 1
TIMES_MAX, POINTS_MAX, SECONDS_MAX = 1_000, 1_000, 3_600
ARGUMENT_BYTES_MAX = 1_000_000
KNOWN: dict[str, ProofClaims] = {**PROOFS, TARGET.name: TARGET}

_MORE = """\
Without names, all proofs are run; `drill list` lists them. Each is run twice: with its guard, and without it, where the
effect must double; a proof whose control does not double is void. The store is used in a random scope, which is
deleted afterwards; no server is stopped, filled or reconfigured. The verdict is PERMITTED (exit code 0) or BLOCKED (1).
"""


def _drill(args: argparse.Namespace) -> int:
    if args.verify is not None:
        return _verify(args)
    if args.names == [LIST]:
        return _list(args)
    if args.bundle is not None and not args.bundle.parent.is_dir():  # Now, and not when the evidence is there.
        raise exit_codes.UsageError(f"cannot write {args.bundle}: the folder {args.bundle.parent} does not exist")
    with progress_of("drilling") as progress:
        document = (
            run_drill(_order(args), print_note, progress) if args.target is None else _drill_target(args, progress)
        )
    if args.bundle is not None:
        _write(args.bundle, json_text(document) + "\n")
    if args.json:
        print_json(document)
    else:
        _print_document(document)
    return exit_codes.FINE if document["verdict"] == PERMITTED else exit_codes.NO


def _list(args: argparse.Namespace) -> int:
    if args.json:
        print_json([{"name": one.name, "shows": one.shows, "without": one.without} for one in PROOFS.values()])
    else:
        rows = [(one.name, one.shows, one.without) for one in PROOFS.values()]
        print_text(format_table(("PROOF", "SHOWS", "ITS CONTROL IS WITHOUT"), rows, limit=None))
    return exit_codes.FINE


def _order(args: argparse.Namespace) -> DrillOrder:
    for name in args.names:
        if name not in PROOFS:
            near = did_you_mean(name, [*PROOFS, LIST]) or "."
            raise exit_codes.UsageError(f"there is no proof {name[:40]!r}{near} `onceward drill list` lists them")
    if args.watch or args.args:
        raise exit_codes.UsageError("--watch and --args go with --target MODULE:FUNCTION")
    if args.store is not None:
        check_url(args.store)
        if not args.store.startswith("memory:"):
            check_is_there(args.store)
    names = list(dict.fromkeys(args.names)) or list(PROOFS)
    return DrillOrder(names, args.store or "", _seed(args), args.times, guarded=args.guard == "on")


def _drill_target(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    module, colon, name = args.target.partition(":")
    if not (module and colon and name):
        raise exit_codes.UsageError(f"--target takes MODULE:FUNCTION, such as shop:charge, not {args.target[:60]!r}")
    if args.names or args.store is not None:
        raise exit_codes.UsageError("--target is a separate drill: leave out the names of proofs and --store")
    if args.watch is None:
        raise exit_codes.UsageError(
            "--target needs --watch, which says what the function changes: rows:DSN:TABLE, file:PATH, folder:PATH or "
            "http:URL"
        )
    arguments = [] if args.args is None else read_json_argument("--args", args.args, ARGUMENT_BYTES_MAX)
    if not isinstance(arguments, list | dict):
        raise exit_codes.UsageError("--args takes a JSON array, or an object with the arguments by name")
    if not 0 < args.limit <= SECONDS_MAX:
        raise exit_codes.UsageError(f"--limit is a number of seconds up to {SECONDS_MAX}")
    order = TargetOrder(args.target, arguments, watch_of(args.watch), args.limit, args.points, _seed(args))
    notice = (
        f"this really runs {args.target}, up to {order.runs_max} times, in separate processes that are killed. "
        "Its effects are real and are not undone"
    )
    if not args.yes:
        raise exit_codes.UsageError(f"{notice}. Name a test environment, and add --yes")
    if not args.json:
        print_note(notice)
    return run_target(order, progress)


def _verify(args: argparse.Namespace) -> int:
    document = read_bundle(args.verify)
    faults = faults_of(document, KNOWN)
    verdict = document.get("verdict") if isinstance(document, dict) else None
    if args.json:
        print_json({"whole": not faults, "faults": faults, "verdict": verdict if not faults else None})
    elif faults:
        print_text("\n".join(f"wrong: {escape_invisible(fault)}" for fault in faults))
        print_text("\nNOT VERIFIED")
    else:
        versions = document["versions"]["onceward"] if isinstance(document.get("versions"), dict) else "?"
        proofs = ", ".join(entry["name"] for entry in document["proofs"])
        print_text(f"digest and numbers match: {escape_invisible(str(versions))}, {proofs}")
        _print_verdict(document | {"reasons": reasons_of(document, KNOWN)})
    return exit_codes.FINE if not faults and verdict == PERMITTED else exit_codes.NO


def _print_document(document: dict[str, Any]) -> None:
    print_text(f"store: {document['store']}, seed {document['seed']}, guard {document['guard']}\n")
    rows = [
        (
            entry["name"],
            "holds" if entry["holds"] else "FAILS",
            _effects(entry["guarded"]),
            _effects(entry["control"]),
            f"{entry['milliseconds'] / 1000:.1f} s",
            "; ".join(entry["where"]),
        )
        for entry in document["proofs"]
    ]
    print_text(format_table(("PROOF", "RESULT", "EFFECTS", "WITHOUT THE GUARD", "TOOK", "WHERE"), rows, limit=None))
    for name, why in document["leftOut"].items():
        print_text(f"left out: {name}: {why}")
    for entry in document["proofs"] if len(document["proofs"]) == 1 else []:
        table = KNOWN[entry["name"]].table
        if table is not None and not entry["broke"]:
            print_text("\n" + format_table(*table(entry["guarded"]), limit=None))
        doubts = sum(tried["inDoubt"] for tried in entry["guarded"].get("tries", ()))
        if doubts:
            print_text(f"\nin doubt after {doubts} of these: nothing happens twice there, but a person has to decide")
    print_text("")
    _print_verdict(document)


def _effects(numbers: dict[str, Any]) -> str:
    return f"{numbers['effects']} for {numbers['operations']}" if "effects" in numbers else ""


def _print_verdict(document: dict[str, Any]) -> None:
    if document["verdict"] == PERMITTED:
        print_text(PERMITTED)
        return
    bar = "!" * 72
    reasons = "\n".join(f"!!! {escape_invisible(reason)}" for reason in document["reasons"])
    print_text(f"{bar}\n!!! BLOCKED\n{reasons}\n{bar}")


def _seed(args: argparse.Namespace) -> int:
    return args.seed if args.seed is not None else int.from_bytes(REAL.random(3), "big") + 1


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise exit_codes.UsageError(f"cannot write {file}: {error.strerror}") from error
    print_note(f"wrote {file}")


_TARGET = Section(
    "your own function",
    "It is run in separate processes: again, five at once, and killed before each of its lines and at each\n"
    "boundary of its gate, with two retries. {n} in a text of --args becomes a fresh number for each operation.",
)

COMMANDS = (
    Command(
        name="drill",
        summary=GROUPS["drill"],
        run=_drill,
        arguments=(
            Argument("names", "proofs to run, or `list`", nargs="*", metavar="PROOF", default_text="all of them"),
            Argument(
                "--store",
                "one of your stores, which must exist",
                metavar="URL",
                default_text="a temporary file",
            ),
            Argument("--times", "how often `retry` inserts", type=count_up_to(TIMES_MAX), default=3, metavar="N"),
            Argument(
                "--seed",
                "the same seed repeats a run: its keys, its order, its kills",
                type=count_up_to(SEED_MAX),
                metavar="N",
            ),
            Argument(
                "--guard",
                "off: run without any guard, so that every proof must fail",
                choices=("on", "off"),
                default="on",
            ),
            Argument("--bundle", "also write the evidence to this file", type=Path, metavar="FILE"),
            Argument("--verify", "check the evidence in this file again; nothing is run", type=Path, metavar="FILE"),
            Argument("--target", "the function, such as shop:charge", metavar="MODULE:FUNCTION", section=_TARGET),
            Argument("--args", "its arguments, a JSON array or object", metavar="JSON", section=_TARGET),
            Argument(
                "--watch",
                "where its effect shows: rows:DSN:TABLE, file:PATH, folder:PATH or http:URL",
                metavar="WHAT",
                section=_TARGET,
            ),
            Argument("--yes", "confirm that it may really be run, many times", action="store_true", section=_TARGET),
            Argument("--limit", "for one call", type=seconds, default=SECONDS, metavar="SECONDS", section=_TARGET),
            Argument(
                "--points",
                "the most places to kill it at",
                type=count_up_to(POINTS_MAX),
                default=POINTS,
                metavar="N",
                section=_TARGET,
            ),
        ),
        examples=(
            "onceward drill retry --times 3",
            "onceward drill retry changed-body --seed 7 --bundle drill.json",
            "onceward drill retry --guard off  # exit 1",
            "onceward drill list",
        ),
        exit_codes=exit_codes.TO_FIND,
        no="the verdict is BLOCKED",
        more=_MORE,
    ),
)
