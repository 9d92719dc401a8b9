"""
`onceward journal`: what was tried, and how it ended. It only reads: a journal decides nothing.
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
from onceward.cli.argument_types import limit
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import camel_case, print_json, print_note, print_text
from onceward.cli.store_argument import STORE, store_url
from onceward.cli.text_tables import format_facts, format_table
from onceward.gate.operator_actions import digest_of_key
from onceward.journal import CallOutcome, CallView, RunView, TurnView
from onceward.journal.note_writer import LazyDriver
from onceward.journal.views import PAGE_MAX, CallFilter, calls, runs, turns
from onceward.runtime.environment import REAL
from onceward.stores.tables import TablesRunner, read_tables

_HEADINGS = ("STARTED", "RUN", "TURN", "WORKER", "TOOL", "KEY", "OUTCOME", "DETAIL", "SECONDS")


@contextmanager
def _open_journal(url: str) -> Iterator[TablesRunner]:
    tables = TablesRunner(LazyDriver(url, REAL, create=False))
    try:
        yield tables
    finally:
        tables.close()


def _list(args: argparse.Namespace) -> int:
    """Show one page."""
    chosen = CallFilter(
        scope=args.scope,
        run=args.of_run,
        digest=_digest(args),
        outcome=args.outcome,
        unended=args.unended,
        after=args.after,
        limit=args.limit,
    )
    with _open_journal(store_url(args)) as tables:
        found = tables.run(read_tables(partial(calls, chosen)))
    following = found[-1].id if len(found) == args.limit else None
    if args.json:
        print_json({"attempts": [_document(one) for one in found], "next": following})
        return exit_codes.FINE
    if found:
        print_text(format_table(_HEADINGS, map(_row, found)))
    else:
        print_note("no attempts")
    if following is not None:
        print_note(f"there may be more: go on with --after {following}")
    return exit_codes.FINE


def _digest(args: argparse.Namespace) -> str | None:
    if args.key is None:
        return args.digest  # type: ignore[no-any-return]
    if args.digest is not None:
        raise exit_codes.UsageError("--key and --digest name the same thing. Give one of them")
    if args.scope is None:
        raise exit_codes.UsageError("a key belongs to a scope. Add --scope, or give the 12 digits as --digest")
    return digest_of_key(args.scope, args.key)


def _show(args: argparse.Namespace) -> int:
    """Show one run."""
    with _open_journal(store_url(args)) as tables:
        found = tables.run(read_tables(partial(runs, args.scope, args.of_run, 2)))
        if not found:
            raise exit_codes.NoSuchRun(
                f"there is no run {args.of_run} in this journal; `onceward journal list` shows attempts"
            )
        if len(found) > 1:
            raise exit_codes.UsageError(
                f"several scopes have a run of this id. Add --scope, for example {found[0].scope}"
            )
        run = found[0]
        steps = tables.run(read_tables(partial(turns, run.scope, run.id)))
        tried = tables.run(
            read_tables(partial(calls, CallFilter(scope=run.scope, run=run.id, oldest_first=True, limit=PAGE_MAX)))
        )
    if args.json:
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
    """A run, turn or attempt for programs, with the names of the HTTP responses."""
    return {
        camel_case(name): _when(value) if isinstance(value, datetime) else value
        for name, value in one._asdict().items()
    }


def _when(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")


def _scope(text: str) -> str:
    try:
        return check_scope(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_SCOPE = Argument("--scope", "only of this scope", metavar="SCOPE", type=_scope)

COMMANDS = (
    Command(
        name="journal list",
        summary="show attempts, the latest first",
        run=_list,
        arguments=(
            Argument("--run", "only of this run", dest="of_run", metavar="ID"),
            Argument("--key", "only at this key, as it was given; needs --scope", metavar="KEY"),
            Argument("--digest", "only at this key: the 12 digits that logs and records show", metavar="DIGEST"),
            Argument("--outcome", "only those that ended like this", choices=tuple(map(str, CallOutcome))),
            Argument("--unended", "only those without an end", action="store_true"),
            limit(PAGE_MAX, 100),
            Argument("--after", "go on after this attempt", metavar="ID"),
            _SCOPE,
            STORE,
        ),
        examples=(
            "onceward journal list",
            "onceward journal list --scope live:acme --key charge:order-17",
            "onceward journal list --unended --json",
        ),
        exit_codes=exit_codes.TO_LIST,
        more="An attempt without an outcome is still running, or its process was killed.",
    ),
    Command(
        name="journal show",
        summary="show a run: its turns, and every attempt in order",
        run=_show,
        arguments=(Argument("of_run", "the run's id", metavar="RUN"), _SCOPE, STORE),
        examples=("onceward journal show march",),
        exit_codes=exit_codes.TO_FIND,
    ),
)
