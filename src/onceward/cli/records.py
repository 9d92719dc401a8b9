"""
`onceward records`: look at what a store holds, decide what is in doubt, tidy up. Any scope: this is for operators.

The commands that an `InDoubt` error prints are these; they work as printed, with ONCEWARD_STORE set.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice

from onceward._core.erasure_marks import ERASURE
from onceward._core.operation import NOT_FOUND, Found, NotFound
from onceward._core.record import Record, shown_state
from onceward._core.store_protocols import Selection, Store
from onceward._core.terms import DEFAULT_TERMS, apply_options
from onceward.cli import exit_codes
from onceward.cli.command_parser import (
    CommandGroup,
    add_command,
    add_group,
    count_up_to,
    id_digits,
    read_json_argument,
    seconds,
)
from onceward.cli.json_documents import record_document
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.record_output import print_record, record_table
from onceward.cli.record_selection import add_record_arguments, find_record
from onceward.cli.store_argument import add_store_argument, open_chosen_store
from onceward.cli.text_tables import format_facts
from onceward.gate.call_factory import PURGE_BATCH, SCAN_PAGE
from onceward.gate.operator_actions import ID_DIGITS, reconcile_record
from onceward.runtime.environment import REAL

STATES = ("claimed", "settled", "released", "in_doubt", "lapsed", "expired", "absent")
"""As shown: the last three are derived (may be claimed again; a tombstone; forgotten, until the next purge)."""

_UNSETTLED = frozenset({"claimed", "in_doubt", "lapsed"})

PURGE_PAUSE_SECONDS = 0.01
"""Between batches: lets those in who wait to write."""


LIST_MAX = 10_000
"""Records in one answer: a page that a program reads at once. Go on with --after."""

_EXAMPLE = "e9bb26a3a693"
"""The digest of charge:order-17 in live:acme, so that the examples are true."""


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "records", "look at records, decide what is in doubt, tidy up")
    _add_looking(group)
    _add_deciding(group)
    purge = add_command(
        group,
        "purge",
        "delete what may be forgotten, shrink what has expired to a tombstone",
        _purge,
        examples=("onceward records purge", "onceward records purge --all"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
        more="Claimed and in-doubt records are never touched. Gates purge by themselves, a little at a time.",
    )
    batch = PURGE_BATCH
    purge.add_argument(
        "--limit", metavar="N", type=count_up_to(batch), default=batch, help=f"rows in one batch (at most {batch})"
    )
    purge.add_argument("--all", action="store_true", help="batch after batch, until nothing is left to do")
    add_store_argument(purge)


def _add_looking(group: CommandGroup) -> None:
    command = add_command(
        group,
        "list",
        "show records in order of id",
        _list,
        examples=("onceward records list --state in_doubt", "onceward records list --scope live:acme --limit 20"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
        more="States: " + ", ".join(STATES) + "; the last three are derived from times.",
    )
    command.add_argument("--scope", metavar="SCOPE", help="only records of this scope")
    command.add_argument("--state", metavar="STATE", choices=STATES, help="only records in this state")
    command.add_argument("--limit", metavar="N", type=count_up_to(LIST_MAX), default=50, help="at most so many (50)")
    command.add_argument("--after", metavar="ID", type=id_digits, help="begin after this id or digest")
    add_store_argument(command)
    show = add_command(
        group,
        "show",
        "show one record, with its result",
        _show,
        examples=(
            f"onceward records show {_EXAMPLE}",
            "onceward records show --scope live:acme --key charge:order-17",
        ),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
    )
    add_record_arguments(show)


def _add_deciding(group: CommandGroup) -> None:
    codes = (exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE)
    release = add_command(
        group,
        "release",
        "declare that an operation in doubt did not happen: it may run again",
        _release,
        examples=(f"onceward records release {_EXAMPLE} --yes",),
        codes=codes,
        more="Same as `reconcile --did-not-happen`. Doing it again does no harm.",
    )
    add_record_arguments(release)
    release.add_argument("--yes", action="store_true", help="yes: it has been checked that it did not happen")
    reconcile = add_command(
        group,
        "reconcile",
        "decide an operation in doubt, after checking where its effect takes place",
        _reconcile,
        examples=(
            f'onceward records reconcile {_EXAMPLE} --happened \'{{"charge": "ch_1"}}\'',
            f"onceward records reconcile {_EXAMPLE} --did-not-happen",
        ),
        codes=codes,
        more="What it returns from then on is what you say here. Doing it again with the same answer does no harm.",
    )
    add_record_arguments(reconcile)
    answer = reconcile.add_mutually_exclusive_group(required=True)
    answer.add_argument("--happened", metavar="JSON", help="it happened, with this result: JSON, @FILE or - for stdin")
    answer.add_argument("--did-not-happen", action="store_true", help="it did not happen: it may run again")
    for deciding in (release, reconcile):
        deciding.add_argument(
            "--fence",
            type=int,
            metavar="N",
            help="decide only the attempt with this fence (errors say it): not one that began since you looked",
        )
    reconcile.add_argument(
        "--retain", metavar="SECONDS", type=seconds, help="how long the result replays (24 h, unless you publish more)"
    )


def _list(asked: argparse.Namespace) -> int:
    """Show one page."""
    with open_chosen_store(asked) as store:
        # One more than asked for tells whether there are more. Results are not shown, so they are not kept either.
        matching = islice(_matching(store, asked), asked.limit + 1)
        found = [record._replace(result=None) for record in matching]
    page = found[: asked.limit]
    upcoming = page[-1].id.hex() if len(found) > len(page) else None
    if asked.json:
        print_json({"records": [record_document(one, with_result=False) for one in page], "next": upcoming})
        return exit_codes.FINE
    if page:
        print_text(record_table(page))
    else:
        print_note("no records")
    if upcoming is not None:
        print_note(f"there are more: go on with --after {upcoming}")
    return exit_codes.FINE


def _matching(store: Store, asked: argparse.Namespace) -> Iterator[Record]:
    selection = Selection(scope=asked.scope, unsettled=asked.state in _UNSETTLED)
    after = bytes.fromhex(asked.after.ljust(ID_DIGITS, "f")) if asked.after else b""
    size = min(SCAN_PAGE, asked.limit + 1) if asked.state is None else SCAN_PAGE
    while page := store.scan(after, size, selection):
        # The mark of an erasure is no operation: there is nothing to see or to decide.
        yield from (one for one in page if one.kind != ERASURE and asked.state in (None, shown_state(one)))
        after = page[-1].id


def _show(asked: argparse.Namespace) -> int:
    """Show one record, with its result."""
    with open_chosen_store(asked) as store:
        record = find_record(store, asked)
    print_record(record, as_json=asked.json)
    return exit_codes.FINE


def _release(asked: argparse.Namespace) -> int:
    """Declare that an operation did not happen."""
    if not asked.yes:
        raise exit_codes.UsageError(
            "releasing a record declares that its effect did not happen, and lets it run again. Check that where the "
            "effect takes place; then add --yes"
        )
    return _decide(asked, NOT_FOUND)


def _reconcile(asked: argparse.Namespace) -> int:
    """Decide an operation that is in doubt."""
    if asked.did_not_happen:
        if asked.retain is not None:
            raise exit_codes.UsageError("--retain is how long a result replays, so it goes with --happened")
        return _decide(asked, NOT_FOUND)
    return _decide(asked, Found(read_json_argument("--happened", asked.happened, DEFAULT_TERMS.result_bytes_max)))


def _decide(asked: argparse.Namespace, answer: Found | NotFound) -> int:
    retain = getattr(asked, "retain", None)
    terms = DEFAULT_TERMS if retain is None else apply_options(DEFAULT_TERMS, {"retain": retain})
    with open_chosen_store(asked) as store:
        decided = reconcile_record(store, find_record(store, asked).id, answer, fence=asked.fence, terms=terms)
    print_record(decided, as_json=asked.json)
    return exit_codes.FINE


def _purge(asked: argparse.Namespace) -> int:
    """Delete what may be forgotten, and shrink what has expired."""
    forgotten = shrunk = batches = 0
    done = False
    with open_chosen_store(asked) as store:
        while not done and (asked.all or batches == 0):
            if batches:
                REAL.sleep(PURGE_PAUSE_SECONDS)
            purged = store.purge(asked.limit)
            forgotten, shrunk, batches = forgotten + purged.forgotten, shrunk + purged.shrunk, batches + 1
            done = max(purged) < asked.limit
            if asked.all and not done:
                print_note(f"{forgotten:,} forgotten, {shrunk:,} shrunk to tombstones so far")
    if asked.json:
        print_json({"forgotten": forgotten, "shrunk": shrunk, "batches": batches, "done": done})
    else:
        print_text(format_facts([("forgotten", forgotten), ("shrunk", shrunk), ("done", done)]))
    return exit_codes.FINE
