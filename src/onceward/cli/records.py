"""
`onceward records`: look at what a store holds, decide what is in doubt, tidy up. For operators: any scope.

The commands that an `InDoubt` error prints are these; they work as printed, with ONCEWARD_STORE set.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice

from onceward._core.durations import format_micros
from onceward._core.erasure_marks import ERASURE
from onceward._core.operation import NOT_FOUND, Found, NotFound
from onceward._core.record import Record, shown_state
from onceward._core.store_protocols import Selection, Store
from onceward._core.terms import DEFAULT_TERMS, apply_options
from onceward.cli import exit_codes
from onceward.cli.argument_types import count_up_to, limit, read_json_argument, seconds
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, open_log, operator_of
from onceward.cli.folder_records import (
    FOLDER,
    IN_FOLDER,
    after_digits,
    check_no_folder,
    find_in_folder,
    list_in_folder,
)
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.record_output import print_record, record_document, record_table
from onceward.cli.record_selection import RECORD, find_record
from onceward.cli.store_argument import STORE, open_chosen_store, store_url
from onceward.cli.text_tables import format_facts
from onceward.gate.call_factory import PURGE_BATCH, SCAN_PAGE
from onceward.gate.operator_actions import ID_DIGITS
from onceward.gate.record_decisions import decide_record
from onceward.runtime.environment import REAL
from onceward.service.access.scopes import tenant_of

STATES = ("claimed", "settled", "released", "in_doubt", "lapsed", "expired", "absent")
"""As shown. The last three are derived: may be claimed again; a tombstone; forgotten, until the next purge."""

_UNSETTLED = frozenset({"claimed", "in_doubt", "lapsed"})

PURGE_PAUSE_SECONDS = 0.01
"""Between batches, so that others can write."""

LIST_MAX = 10_000
"""Records in one page, which a program reads at once. Go on with --after."""

_EXAMPLE = "e9bb26a3a693"
"""The digest of charge:order-17 in live:acme, so that the examples are true."""


def _list(args: argparse.Namespace) -> int:
    """Show one page."""
    if args.folder is not None:
        found_there = list_in_folder(args)
        return _print_page(found_there.records, found_there.after, args)
    check_no_folder(args)
    with open_chosen_store(args) as store:
        # One more than asked for tells whether there are more. Results are not shown, so they are not kept either.
        matching = islice(_matching(store, args), args.limit + 1)
        found = [record._replace(result=None) for record in matching]
    page = found[: args.limit]
    return _print_page(page, page[-1].id.hex() if len(found) > len(page) else None, args)


def _print_page(page: list[Record], upcoming: str | None, args: argparse.Namespace) -> int:
    if args.json:
        print_json({"records": [record_document(one, with_result=False) for one in page], "next": upcoming})
        return exit_codes.FINE
    if page:
        print_text(record_table(page))
    else:
        print_note("no records")
    if upcoming is not None:
        print_note(f"there are more: go on with --after {upcoming}")
    return exit_codes.FINE


def _matching(store: Store, args: argparse.Namespace) -> Iterator[Record]:
    selection = Selection(scope=args.scope, unsettled=args.state in _UNSETTLED)
    after = bytes.fromhex(after_digits(args.after).ljust(ID_DIGITS, "f")) if args.after else b""
    size = min(SCAN_PAGE, args.limit + 1) if args.state is None else SCAN_PAGE
    while page := store.scan(after, size, selection):
        # The mark of an erasure is no operation: there is nothing to see or to decide.
        yield from (one for one in page if one.kind != ERASURE and args.state in (None, shown_state(one)))
        after = page[-1].id


def _show(args: argparse.Namespace) -> int:
    """Show one record, with its result."""
    if args.folder is not None:
        record = find_in_folder(args)
    else:
        with open_chosen_store(args) as store:
            record = find_record(store, args)
    print_record(record, as_json=args.json)
    return exit_codes.FINE


def _release(args: argparse.Namespace) -> int:
    """Declare that an operation did not happen."""
    if not args.yes:
        raise exit_codes.UsageError(
            "releasing a record declares that its effect did not happen, and lets it run again. Check that first, "
            "where the effect takes place; then add --yes"
        )
    return _decide(args, NOT_FOUND)


def _reconcile(args: argparse.Namespace) -> int:
    """Decide an operation that is in doubt."""
    if args.did_not_happen:
        if args.retain is not None:
            raise exit_codes.UsageError("--retain is how long a result replays: leave it out, or add --happened")
        return _decide(args, NOT_FOUND)
    return _decide(args, Found(read_json_argument("--happened", args.happened, DEFAULT_TERMS.result_bytes_max)))


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
    print_record(decided, as_json=args.json)
    return exit_codes.FINE


def _purge(args: argparse.Namespace) -> int:
    """Delete what may be forgotten, and shrink what has expired."""
    forgotten = shrunk = batches = 0
    done = False
    with open_chosen_store(args) as store:
        while not done and (args.all or batches == 0):
            if batches:
                REAL.sleep(PURGE_PAUSE_SECONDS)
            purged = store.purge(args.limit)
            forgotten, shrunk, batches = forgotten + purged.forgotten, shrunk + purged.shrunk, batches + 1
            done = max(purged) < args.limit
            if args.all and not done:
                print_note(f"{forgotten:,} forgotten, {shrunk:,} shrunk to tombstones so far")
    if args.json:
        print_json({"forgotten": forgotten, "shrunk": shrunk, "batches": batches, "done": done})
    else:
        print_text(format_facts([("forgotten", forgotten), ("shrunk", shrunk), ("done", done)]))
    return exit_codes.FINE


_DECIDING = (
    *RECORD,
    Argument(
        "--fence",
        "decide only the attempt with this fence (errors show it), not one that began since you looked",
        type=int,
        metavar="N",
    ),
    *DECIDING,
)

COMMANDS = (
    Command(
        name="records list",
        summary="show records in order of id",
        run=_list,
        arguments=(
            Argument("--scope", "only records of this scope", metavar="SCOPE"),
            Argument("--state", "only records in this state", metavar="STATE", choices=STATES),
            limit(LIST_MAX, 50),
            Argument("--after", "begin after this id or digest, or where the page before said", metavar="ID"),
            STORE,
            *IN_FOLDER,
        ),
        examples=(
            "onceward records list --state in_doubt",
            "onceward records list --scope live:acme --limit 20",
            "onceward records list --folder onceward-data --order age --older-than 3600",
        ),
        exit_codes=exit_codes.TO_LIST,
        more="States: " + ", ".join(STATES) + "; the last three are derived from times.",
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
    ),
    Command(
        name="records release",
        summary="declare that an operation in doubt did not happen: it may run again",
        run=_release,
        arguments=(
            *_DECIDING,
            Argument("--yes", "yes: it has been checked that it did not happen", action="store_true"),
        ),
        examples=(f"onceward records release {_EXAMPLE} --yes",),
        exit_codes=exit_codes.TO_DECIDE,
        more="The short form of `reconcile --did-not-happen`. Doing it again does no harm.",
    ),
    Command(
        name="records reconcile",
        summary="decide an operation in doubt, after checking where its effect takes place",
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
            Argument(
                "--retain",
                "how long the result replays; give more if you publish more",
                metavar="SECONDS",
                type=seconds,
                default_text=format_micros(DEFAULT_TERMS.retain),
            ),
        ),
        examples=(
            f'onceward records reconcile {_EXAMPLE} --happened \'{{"charge": "ch_1"}}\'',
            f"onceward records reconcile {_EXAMPLE} --did-not-happen",
        ),
        exit_codes=exit_codes.TO_DECIDE,
        more="From then on the operation returns what you give here. Doing it again with the same result does no harm.",
    ),
    Command(
        name="records purge",
        summary="delete what may be forgotten, shrink what has expired to a tombstone",
        run=_purge,
        arguments=(
            Argument("--limit", "rows in one batch", metavar="N", type=count_up_to(PURGE_BATCH), default=PURGE_BATCH),
            Argument("--all", "batch after batch, until nothing is left to do", action="store_true"),
            STORE,
        ),
        examples=("onceward records purge", "onceward records purge --all"),
        exit_codes=exit_codes.TO_LIST,
        more="Claimed and in-doubt records are never touched. Gates purge by themselves, a little at a time.",
    ),
)
