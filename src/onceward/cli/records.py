"""
`onceward records`: look at what a store holds, decide what is in doubt, tidy up. For operators: any scope.

The commands that an `InDoubt` error prints are these; they work as printed, with ONCEWARD_STORE set.
"""

from __future__ import annotations

import argparse

from onceward._core.durations import format_micros
from onceward._core.operation import NOT_FOUND, Found, NotFound
from onceward._core.record import Record, shown_state
from onceward._core.terms import DEFAULT_TERMS, apply_options
from onceward.cli import exit_codes
from onceward.cli.argument_types import count_up_to, limit, read_json_argument, seconds
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, open_log, operator_of
from onceward.cli.folder_records import (
    FOLDER,
    IN_FOLDER,
    check_no_folder,
    find_in_folder,
    list_in_folder,
)
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.record_listing import STATES, list_records
from onceward.cli.record_output import print_record, record_document, record_table
from onceward.cli.record_selection import RECORD, find_record
from onceward.cli.store_argument import SEAL_KEYS, STORE, open_chosen_store, store_url
from onceward.cli.text_tables import format_facts
from onceward.cli.typed_command import as_typed
from onceward.gate.call_factory import PURGE_BATCH
from onceward.gate.record_decisions import decide_record
from onceward.overview import COUNT_MAX
from onceward.overview.record_overview import look_at_purge
from onceward.runtime.environment import REAL
from onceward.service.access.scopes import tenant_of

PURGE_PAUSE_SECONDS = 0.01
"""Between batches, so that others can write."""

LIST_MAX = 10_000
"""Records in one page, which a program reads at once. Go on with --after."""

_EXAMPLE = "e9bb26a3a693"
"""The digest of charge:order-17 in live:acme, so that the examples are true."""


def _list(args: argparse.Namespace) -> int:
    """Show one page."""
    if args.in_doubt:
        if args.state not in (None, "in_doubt"):
            raise exit_codes.UsageError(f"--in-doubt is --state in_doubt: leave it out, or --state {args.state}")
        args.state = "in_doubt"
    if args.folder is not None:
        found = list_in_folder(args)
    else:
        check_no_folder(args)
        with open_chosen_store(args) as store:
            found = list_records(store, args)
    _print_page(found.records, found.after, args)
    return exit_codes.NO if found.records and args.fail_if_any else exit_codes.FINE


def _print_page(page: list[Record], upcoming: str | None, args: argparse.Namespace) -> None:
    if args.json:
        print_json({"records": [record_document(one, with_result=False) for one in page], "next": upcoming})
        return
    if page:
        print_text(record_table(page))
    else:
        print_note("no records" if args.state is None else f"no records are {args.state.replace('_', ' ')}")
    if upcoming is not None:
        print_note(f"there are more: continue with --after {upcoming}")
    if any(shown_state(one) == "in_doubt" for one in page):
        print_note(f"what to do about one: {as_typed('onceward records show DIGEST', args)}")


def _show(args: argparse.Namespace) -> int:
    """Show one record, with its result."""
    if args.folder is not None:
        record = find_in_folder(args)
    else:
        with open_chosen_store(args) as store:
            record = find_record(store, args)
    print_record(record, args)
    return exit_codes.FINE


def _release(args: argparse.Namespace) -> int:
    """Declare that an operation did not happen."""
    if not args.yes:
        raise exit_codes.UsageError(
            "releasing a record declares that its effect did not happen, and lets it run again. Check that "
            "first, in the system it acts on; then add --yes"
        )
    return _decide(args, NOT_FOUND)


def _reconcile(args: argparse.Namespace) -> int:
    """Decide an operation that is in doubt."""
    if args.did_not_happen:
        if args.retain is not None:
            raise exit_codes.UsageError("--retain is how long a result replays: leave it out, or add --happened")
        return _decide(args, NOT_FOUND)
    return _decide(args, Found(read_json_argument("--happened", args.happened, DEFAULT_TERMS.result_bytes_max)))


def _decide_many(args: argparse.Namespace) -> int:
    from onceward.cli.record_probe import decide_by_probe

    return decide_by_probe(args)


def _decide(args: argparse.Namespace, decision: Found | NotFound) -> int:
    retain = getattr(args, "retain", None)
    terms = DEFAULT_TERMS if retain is None else apply_options(DEFAULT_TERMS, {"retain": retain})
    with open_chosen_store(args) as store:
        found = find_record(store, args)
        whose = tenant_of(found.scope)
        with open_log(store_url(args)) as log:
            decided = decide_record(
                log, store, found, decision, operator_of(args), tenant=whose, fence=args.fence, terms=terms
            )
    print_record(decided, args)
    return exit_codes.FINE


def _purge(args: argparse.Namespace) -> int:
    """Delete what may be forgotten, and shrink what has expired."""
    forgotten = shrunk = batches = 0
    done = False
    with open_chosen_store(args) as store, progress_of("purging") as progress:
        # An estimate of what is to be done, from a sample: nobody counts millions of rows before deleting them.
        expected = look_at_purge(store).due if args.all else 0
        while not done and (args.all or batches == 0):
            if batches:
                REAL.sleep(PURGE_PAUSE_SECONDS)
            purged = store.purge(args.limit)
            forgotten, shrunk, batches = forgotten + purged.forgotten, shrunk + purged.shrunk, batches + 1
            done = sum(purged) < args.limit  # Some stores take so many of either kind, others so many in all.
            share = min(0.99, (forgotten + shrunk) / expected) if expected else 0.0
            progress(share, f"{forgotten:,} forgotten, {shrunk:,} shrunk to tombstones")
    if args.json:
        print_json({"forgotten": forgotten, "shrunk": shrunk, "batches": batches, "done": done})
    else:
        print_text(format_facts([("forgotten", forgotten), ("shrunk", shrunk), ("done", done)]))
    return exit_codes.FINE


_DECIDING = (
    *RECORD,
    Argument(
        "--fence",
        "decide only the attempt with this fence (errors show it), not one that began after you looked",
        type=int,
        metavar="N",
    ),
    *DECIDING,
)

_RETAIN = Argument(
    "--retain",
    "how long the result can be replayed; give more if you promise more to callers",
    metavar="SECONDS",
    type=seconds,
    default_text=format_micros(DEFAULT_TERMS.retain),
)

COMMANDS = (
    Command(
        name="records list",
        summary="list records: those in flight or in doubt by age, oldest first; all others by id",
        run=_list,
        arguments=(
            Argument("--in-doubt", "only what waits for a decision", action="store_true"),
            Argument("--fail-if-any", "exit code 1 if anything is listed, for scripts", action="store_true"),
            Argument("--scope", "only records of this scope", metavar="SCOPE"),
            Argument("--state", "only records in this state", metavar="STATE", choices=STATES),
            Argument("--order", "by id, or the oldest first", choices=("id", "age")),
            Argument(
                "--older-than",
                "only those first used longer ago than this, oldest first",
                metavar="SECONDS",
                type=seconds,
            ),
            limit(LIST_MAX, 50),
            Argument("--after", "begin after this id or digest, or where the previous page ended", metavar="ID"),
            STORE,
            *IN_FOLDER,
        ),
        examples=(
            "onceward records list --in-doubt",
            "onceward records list --in-doubt --fail-if-any  # exit 1",
            "onceward records list --scope live:acme --limit 20",
            "onceward records list --folder onceward-data --order age --older-than 3600",
        ),
        exit_codes=exit_codes.TO_FIND,
        no="with --fail-if-any: something is listed",
        more="States: " + ", ".join(STATES) + "; the last three are derived from times. A holder is HOST:PID. Without "
        "--folder, --order age and --older-than are for what is in flight or in doubt.",
    ),
    Command(
        name="records show",
        summary="show one record, with its result",
        run=_show,
        arguments=(*RECORD, FOLDER),
        examples=(
            f"onceward records show {_EXAMPLE}",
            "onceward records show --scope live:acme --key charge:order-17",
            "onceward records show --folder onceward-data --scope live:acme:db:shop --key evt-1",
        ),
        exit_codes=exit_codes.TO_FIND,
        no="there is no such record",
    ),
    Command(
        name="records release",
        summary="declare that an operation in doubt did not happen: it may run again",
        run=_release,
        arguments=(
            *_DECIDING,
            Argument("--yes", "confirm that you have checked: it did not happen", action="store_true"),
        ),
        examples=(f"onceward records release {_EXAMPLE} --yes",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such record",
        more="Short for `reconcile --did-not-happen`. Running it again is safe.",
    ),
    Command(
        name="records reconcile",
        summary="decide an operation in doubt, after checking whether it happened",
        run=_reconcile,
        arguments=(
            *_DECIDING,
            Argument(
                "--happened",
                "it happened, with this result: JSON, @FILE or - for stdin",
                metavar="JSON",
                one_of="decision",
            ),
            Argument("--did-not-happen", "it did not happen: it may run again", action="store_true", one_of="decision"),
            _RETAIN,
        ),
        examples=(
            f'onceward records reconcile {_EXAMPLE} --happened \'{{"charge": "ch_1"}}\'',
            f"onceward records reconcile {_EXAMPLE} --did-not-happen",
        ),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such record",
        more="From then on the operation returns what you give here. Running it again with the same result is safe.",
    ),
    Command(
        name="records decide",
        summary="decide everything in doubt with your own probe; a dry run, unless --yes",
        run=_decide_many,
        arguments=(
            Argument(
                "--probe",
                "a function that takes a record and returns Found(result), NOT_FOUND or None (it cannot say)",
                metavar="MODULE:FUNCTION",
                required=True,
            ),
            Argument(
                "--all-in-doubt", "confirm: everything in doubt that the options below select", action="store_true"
            ),
            Argument("--scope", "only records of this scope", metavar="SCOPE"),
            Argument("--operation", "only operations of this name", metavar="NAME"),
            Argument("--older-than", "only those first used longer ago than this", metavar="SECONDS", type=seconds),
            Argument(
                "--limit", "decide at most this many", metavar="N", type=count_up_to(COUNT_MAX), default=COUNT_MAX
            ),
            Argument("--yes", "decide as the probe says; without it, only show what it says", action="store_true"),
            _RETAIN,
            *DECIDING,
            STORE,
            SEAL_KEYS,
        ),
        examples=("onceward records decide --probe shop:was_charged --all-in-doubt",),
        exit_codes=exit_codes.TO_DECIDE,
        no="something is left in doubt",
        more="The probe checks whether the effect happened. Each record is decided with the fence that the "
        "probe saw, so a newer attempt is left alone, and each decision has its own entry in the decision log. Exit "
        "code "
        "1: some are left, because the probe cannot say or raised, or the record changed in between.",
    ),
    Command(
        name="records purge",
        summary="delete records that may be forgotten, and shrink expired ones to tombstones",
        run=_purge,
        arguments=(
            Argument("--limit", "rows in one batch", metavar="N", type=count_up_to(PURGE_BATCH), default=PURGE_BATCH),
            Argument("--all", "repeat until nothing is left to do", action="store_true"),
            STORE,
        ),
        examples=("onceward records purge", "onceward records purge --all"),
        exit_codes=exit_codes.TO_LIST,
        more="Claimed and in-doubt records are never touched. Gates purge by themselves, a little at a time.",
    ),
)
