"""
Which records `onceward records list` and `records decide` are about, and in which order.

What is in flight or in doubt is shown by its age, the oldest first: `COUNT_MAX` are read and put in order here.
All other records are shown in order of id, which is the only order in which a store of any size can be read in pages.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from onceward._core.durations import SECOND
from onceward._core.record import Record, shown_state
from onceward._core.store_protocols import Selection, Store
from onceward._core.trace_marks import MARKS
from onceward.cli import exit_codes
from onceward.cli.argument_types import id_digits
from onceward.cli.command_table import did_you_mean
from onceward.cli.output import print_note
from onceward.cli.progress import ProgressLine, progress_of, share_of_ids
from onceward.gate.call_factory import SCAN_PAGE
from onceward.gate.operator_actions import ID_DIGITS
from onceward.overview import COUNT_MAX, unsettled_records

STATES = ("claimed", "settled", "released", "in_doubt", "lapsed", "expired", "absent")
"""As shown. The last three are derived: may be claimed again; a tombstone; forgotten, until the next purge."""

UNSETTLED = frozenset({"claimed", "in_doubt", "lapsed"})

SCOPES_LOOKED_AT = 500
"""Records whose scopes are held against one that was mistyped."""


class ListedRecords(NamedTuple):
    """Some records, and where the next page begins; None at the end."""

    records: list[Record]
    after: str | None


def list_records(store: Store, args: argparse.Namespace) -> ListedRecords:
    """One page, without results: they are not shown, so they are not kept either."""
    by_age = args.order == "age" or (args.order is None and args.state in UNSETTLED)
    if by_age and args.state not in UNSETTLED:
        raise exit_codes.UsageError(
            "only what is in flight can be listed by age: add --in-doubt, or --state claimed or lapsed. "
            "Everything else is listed by id"
        )
    if args.older_than is not None and not by_age:
        raise exit_codes.UsageError("--older-than is for what is in flight: add --in-doubt, or --state claimed")
    page = _by_age(store, args) if by_age else _by_id(store, args)
    if not page.records and args.scope is not None and not args.after:
        suggest_scope(store, args.scope)
    return page


def _by_id(store: Store, args: argparse.Namespace) -> ListedRecords:
    # One more than asked for tells whether there are more.
    with progress_of("looking at records") as progress:
        matching = _matching(store, args, progress)
        found = [record._replace(result=None) for record in islice(matching, args.limit + 1)]
    page = found[: args.limit]
    return ListedRecords(page, page[-1].id.hex() if len(found) > len(page) else None)


def _matching(store: Store, args: argparse.Namespace, progress: ProgressLine) -> Iterator[Record]:
    selection = Selection(scope=args.scope, unsettled=args.state in UNSETTLED)
    after = bytes.fromhex(_after_digits(args.after).ljust(ID_DIGITS, "f")) if args.after else b""
    size = min(SCAN_PAGE, args.limit + 1) if args.state is None else SCAN_PAGE
    while page := store.scan(after, size, selection):
        yield from (one for one in page if one.kind not in MARKS and args.state in (None, shown_state(one)))
        after = page[-1].id
        progress(share_of_ids(after))


def _by_age(store: Store, args: argparse.Namespace) -> ListedRecords:
    after = _after_age(args.after) if args.after else (-1, b"")
    found = [one for one in unsettled_by_age(store, args) if (one.first_at, one.id) > after]
    page = found[: args.limit]
    last = f"{page[-1].first_at}.{page[-1].id.hex()}" if len(found) > len(page) else None
    return ListedRecords(page, last)


def unsettled_by_age(store: Store, args: argparse.Namespace) -> list[Record]:
    """The records in the state that was asked for, the oldest first; at most `COUNT_MAX` are looked at."""
    with progress_of("looking at records") as progress:
        seen = list(islice(unsettled_records(store, args.scope, progress), COUNT_MAX + 1))
    if len(seen) > COUNT_MAX:
        print_note(
            f"more than {COUNT_MAX:,} are in flight or in doubt; these are the oldest of the {COUNT_MAX:,} that were "
            "looked at. Add --scope to see the others"
        )
    late = 0 if args.older_than is None else args.older_than * SECOND
    wanted = [one for one in seen[:COUNT_MAX] if shown_state(one) == args.state and one.age >= late]
    return sorted(wanted, key=lambda one: (one.first_at, one.id))


def suggest_scope(store: Store, typed: str) -> None:
    """Name the scope that was probably meant, if some record has one like it and none has this one."""
    seen = {record.scope for record in store.scan(b"", SCOPES_LOOKED_AT, Selection())}
    if typed not in seen and (question := did_you_mean(typed, seen)):
        print_note(f"there are no records in the scope {typed}{question}")


def _after_digits(text: str) -> str:
    """Where a page in order of id begins."""
    try:
        return id_digits(text)
    except argparse.ArgumentTypeError as error:
        raise exit_codes.UsageError(f"--after: {error}") from None


def _after_age(text: str) -> tuple[int, bytes]:
    """Where a page by age begins."""
    instant, _, id = text.partition(".")
    try:
        return int(instant), bytes.fromhex(id)
    except ValueError:
        raise exit_codes.UsageError(
            "--after takes what the previous page printed, such as 1767222000000000.e9bb26a3"
        ) from None
