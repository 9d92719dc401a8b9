"""
`onceward journal`: what was tried, and how it ended. It only reads: a journal decides nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.holders import Process
from onceward._core.keys import check_scope
from onceward._core.record import Record
from onceward.cli import exit_codes
from onceward.cli.argument_types import limit
from onceward.cli.command_table import Argument, Command
from onceward.cli.journal_page import format_run, judge_attempts, needs_record
from onceward.cli.output import camel_case, print_json, print_note, print_text
from onceward.cli.store_argument import STORE, check_is_there, store_url
from onceward.cli.text_tables import format_table
from onceward.gate.operator_actions import digest_of_key, find_records
from onceward.journal import CallOutcome, CallView, RunView, TurnView
from onceward.journal.note_writer import LazyDriver
from onceward.journal.views import PAGE_MAX, CallFilter, calls, runs, turns
from onceward.runtime.environment import REAL
from onceward.stores import open_store
from onceward.stores.tables import TablesRunner, read_tables

_RUN_HEADINGS = ("RUN", "WORKER", "STARTED", "BEGUN", "ATTEMPTS", "EFFECTS", "UNENDED", "LAST ACTIVITY")
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
        print_note(f"there may be more: continue with --after {following}")
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
                f"there is no run {args.of_run} in this journal; `onceward journal runs` lists the runs"
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
    found_records = _records_of(store_url(args), tried)
    judged = judge_attempts(tried, found_records, REAL.lives)
    if args.json:
        document = {
            "run": _document(run),
            "turns": [_document(one) for one in steps],
            "attempts": [{**_document(one.call), "word": one.word} for one in judged],
        }
        print_json(document)
        return exit_codes.FINE
    print_text(format_run(run, steps, judged, found_records))
    if len(tried) == PAGE_MAX:
        print_note(f"only the first {PAGE_MAX} attempts; `onceward journal list --run {run.id}` has the latest")
    return exit_codes.FINE


def _records_of(url: str, tried: list[CallView]) -> dict[str, Record]:
    """The records that say more than the journal, by digest; none, if there is no store that can be read."""
    wanted = {one.digest: one.scope for one in tried if one.digest is not None and needs_record(one)}
    found: dict[str, Record] = {}
    if not wanted:
        return found
    try:
        with closing(open_store(check_is_there(url))) as store:
            for digest, scope in wanted.items():
                same = [record for record in find_records(store, digest) if record.scope == scope]
                found.update({digest: same[0]} if len(same) == 1 else {})
    except OncewardError as error:
        print_note(f"the records could not be read, so this shows the journal alone: {error}")
    return found


def _runs(args: argparse.Namespace) -> int:
    """Show the latest runs."""
    with _open_journal(store_url(args)) as tables:
        found = tables.run(read_tables(partial(runs, args.scope, None, args.limit)))
    if args.json:
        print_json({"runs": [_document(one) for one in found]})
    elif found:
        print_text(format_table(_RUN_HEADINGS, map(_run_row, found)))
    else:
        print_note("no runs")
    return exit_codes.FINE


def _run_row(one: RunView) -> tuple[object, ...]:
    return (one.id, one.worker, _when(one.started_at), one.begun, one.attempts, one.effects, one.unended,
            _when(one.last_at))  # fmt: skip


def _row(one: CallView) -> tuple[object, ...]:
    took = None if one.finished_at is None else f"{(one.finished_at - one.started_at).total_seconds():.3f}"
    return (_when(one.started_at), one.run, one.turn, one.worker, one.tool, one.digest, one.outcome or "(no end)",
            one.detail, took)  # fmt: skip


def _document(one: CallView | TurnView | RunView) -> dict[str, Any]:
    """A run, turn or attempt for programs, with the names of the HTTP responses."""
    return {camel_case(name): _plain(value) for name, value in one._asdict().items()}


def _plain(value: Any) -> Any:
    return _when(value) if isinstance(value, datetime) else str(value) if isinstance(value, Process) else value


def _when(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")


def _scope(text: str) -> str:
    try:
        return check_scope(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_SCOPE = Argument("--scope", "only in this scope", metavar="SCOPE", type=_scope)

COMMANDS = (
    Command(
        name="journal list",
        summary="show attempts, newest first",
        run=_list,
        arguments=(
            Argument("--run", "only of this run", dest="of_run", metavar="ID"),
            Argument("--key", "only for this key, as the caller gave it; needs --scope", metavar="KEY"),
            Argument("--digest", "only for this key, by the 12 digits that logs and records show", metavar="DIGEST"),
            Argument("--outcome", "only those with this outcome", choices=tuple(map(str, CallOutcome))),
            Argument("--unended", "only those that have not ended", action="store_true"),
            limit(PAGE_MAX, 100),
            Argument("--after", "continue after this attempt", metavar="ID"),
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
        name="journal runs",
        summary="show runs, newest first",
        run=_runs,
        arguments=(limit(PAGE_MAX, 100), _SCOPE, STORE),
        examples=("onceward journal runs", "onceward journal runs --scope live:acme --json"),
        exit_codes=exit_codes.TO_LIST,
        more="BEGUN is how often a run was started: more than once if it was resumed. UNENDED counts the attempts "
        "that have not ended.",
    ),
    Command(
        name="journal show",
        summary="print a run as a page: its turns, its tool calls, and every attempt in order",
        run=_show,
        arguments=(Argument("of_run", "the run's id", metavar="RUN"), _SCOPE, STORE),
        examples=("onceward journal show march",),
        exit_codes=exit_codes.TO_FIND,
        no="there is no such run",
        more="An attempt that has not ended is looked up in the records: it is `crashed` if its process is gone "
        "or its record is in doubt, and `running` otherwise. What is in doubt is shown with the command that decides "
        "it.",
    ),
)
