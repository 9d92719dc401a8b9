"""
`onceward journal`: what was tried, and how it ended. Only looking: a journal decides nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward._core.keys import check_scope
from onceward.cli import exit_codes
from onceward.cli.command_parser import CommandGroup, add_command, add_group, count_up_to
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument, store_url
from onceward.cli.text_tables import format_facts, format_table
from onceward.gate.operator_actions import digest_of_key
from onceward.journal import CallOutcome, CallView, RunView, TurnView
from onceward.journal.note_writer import LazyDriver
from onceward.journal.views import PAGE_MAX, CallFilter, calls, runs, turns
from onceward.runtime.environment import REAL
from onceward.stores.tables import TablesRunner, read_tables

_HEADINGS = ("STARTED", "RUN", "TURN", "WORKER", "TOOL", "KEY", "OUTCOME", "DETAIL", "SECONDS")


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "journal", "look at what was tried, and how it ended")
    listing = add_command(
        group,
        "list",
        "show attempts, the latest first",
        _list,
        examples=(
            "onceward journal list",
            "onceward journal list --scope live:acme --key charge:order-17",
            "onceward journal list --unended --json",
        ),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
        more="An attempt without an outcome is under way, or whoever made it was killed.",
    )
    listing.add_argument("--run", dest="of_run", metavar="ID", help="only of this run")
    listing.add_argument("--key", metavar="KEY", help="only at this key, as it was given; needs --scope")
    listing.add_argument(
        "--digest", metavar="DIGEST", help="only at this key: the 12 digits that logs and records show"
    )
    listing.add_argument("--outcome", choices=tuple(map(str, CallOutcome)), help="only those that ended so")
    listing.add_argument("--unended", action="store_true", help="only those without an end")
    listing.add_argument("--limit", metavar="N", type=count_up_to(PAGE_MAX), default=100, help="at most so many (100)")
    listing.add_argument("--after", metavar="ID", help="go on after this attempt")
    show = add_command(
        group,
        "show",
        "show a run: its turns, and every attempt in order",
        _show,
        examples=("onceward journal show march",),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
    )
    show.add_argument("of_run", metavar="RUN", help="the run's id")
    for command in (listing, show):
        command.add_argument("--scope", metavar="SCOPE", type=_scope, help="only of this scope")
        add_store_argument(command)


@contextmanager
def _opened(url: str) -> Iterator[TablesRunner]:
    tables = TablesRunner(LazyDriver(url, REAL, create=False))
    try:
        yield tables
    finally:
        tables.close()


def _list(asked: argparse.Namespace) -> int:
    """Show one page."""
    wanted = CallFilter(
        scope=asked.scope,
        run=asked.of_run,
        digest=_digest(asked),
        outcome=asked.outcome,
        unended=asked.unended,
        after=asked.after,
        limit=asked.limit,
    )
    with _opened(store_url(asked)) as tables:
        found = tables.run(read_tables(partial(calls, wanted)))
    following = found[-1].id if len(found) == asked.limit else None
    if asked.json:
        print_json({"attempts": [_document(one) for one in found], "next": following})
        return exit_codes.FINE
    if found:
        print_text(format_table(_HEADINGS, map(_row, found)))
    else:
        print_note("no attempts")
    if following is not None:
        print_note(f"there may be more: go on with --after {following}")
    return exit_codes.FINE


def _digest(asked: argparse.Namespace) -> str | None:
    if asked.key is None:
        return asked.digest  # type: ignore[no-any-return]
    if asked.digest is not None:
        raise exit_codes.UsageError("--key and --digest name the same thing; give one of them")
    if asked.scope is None:
        raise exit_codes.UsageError("a key belongs to a scope: add --scope, or give the 12 digits as --digest")
    return digest_of_key(asked.scope, asked.key)


def _show(asked: argparse.Namespace) -> int:
    """Show one run."""
    with _opened(store_url(asked)) as tables:
        found = tables.run(read_tables(partial(runs, asked.scope, asked.of_run, 2)))
        if not found:
            raise exit_codes.NoSuchRun(
                f"there is no run {asked.of_run} in this journal; `onceward journal list` shows attempts"
            )
        if len(found) > 1:
            raise exit_codes.UsageError(
                f"several scopes have a run of this id; add --scope, for example {found[0].scope}"
            )
        run = found[0]
        steps = tables.run(read_tables(partial(turns, run.scope, run.id)))
        tried = tables.run(
            read_tables(partial(calls, CallFilter(scope=run.scope, run=run.id, oldest_first=True, limit=PAGE_MAX)))
        )
    if asked.json:
        document = {
            "run": _document(run),
            "turns": [_document(one) for one in steps],
            "attempts": [_document(one) for one in tried],
        }
        print_json(document)
        return exit_codes.FINE
    print_text(format_facts(_document(run).items()))
    if steps:
        rows = [(one.seq, one.status, one.begun, _when(one.started_at), _when(one.finished_at)) for one in steps]
        print_text("\n" + format_table(("TURN", "STATUS", "BEGUN", "STARTED", "FINISHED"), rows))
    if tried:
        print_text("\n" + format_table(_HEADINGS, map(_row, tried)))
    if len(tried) == PAGE_MAX:
        print_note(f"only the first {PAGE_MAX} attempts; `onceward journal list --run {run.id}` has the latest")
    return exit_codes.FINE


def _row(one: CallView) -> tuple[object, ...]:
    took = None if one.finished_at is None else f"{(one.finished_at - one.started_at).total_seconds():.3f}"
    return (_when(one.started_at), one.run, one.turn, one.worker, one.tool, one.digest, one.outcome or "(no end)",
            one.detail, took)  # fmt: skip


def _document(one: CallView | TurnView | RunView) -> dict[str, Any]:
    """For programs, in the words of the HTTP answers."""
    return {
        _camel(name): _when(value) if isinstance(value, datetime) else value for name, value in one._asdict().items()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _when(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")


def _scope(text: str) -> str:
    try:
        return check_scope(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
