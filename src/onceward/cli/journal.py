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
from onceward.cli import exits
from onceward.cli.opening import add_store_argument, url_of
from onceward.cli.parsing import Groups, add_command, add_group, count_up_to
from onceward.cli.printing import note, say, say_document
from onceward.cli.tables import facts, table
from onceward.environment import REAL
from onceward.gate.operating import digest_of_key
from onceward.journal import CallView, Ended, RunView, TurnView
from onceward.journal.keeping import LazyDriver
from onceward.journal.views import PAGE_MAX, Wanted, calls, runs, turns
from onceward.tables import Blocking, looked

_HEADINGS = ("STARTED", "RUN", "TURN", "WORKER", "TOOL", "KEY", "OUTCOME", "DETAIL", "SECONDS")


def add_to(parsers: Groups) -> None:
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
        codes=(exits.FINE, exits.USAGE, exits.STORE),
        more="An attempt without an outcome is under way, or whoever made it was killed.",
    )
    listing.add_argument("--run", dest="of_run", metavar="ID", help="only of this run")
    listing.add_argument("--key", metavar="KEY", help="only at this key, as it was given; needs --scope")
    listing.add_argument(
        "--digest", metavar="DIGEST", help="only at this key: the 12 digits that logs and records show"
    )
    listing.add_argument("--outcome", choices=tuple(map(str, Ended)), help="only those that ended so")
    listing.add_argument("--unended", action="store_true", help="only those without an end")
    listing.add_argument("--limit", metavar="N", type=count_up_to(PAGE_MAX), default=100, help="at most so many (100)")
    listing.add_argument("--after", metavar="ID", help="go on after this attempt")
    show = add_command(
        group,
        "show",
        "show a run: its turns, and every attempt in order",
        _show,
        examples=("onceward journal show march",),
        codes=(exits.FINE, exits.NO, exits.USAGE, exits.STORE),
    )
    show.add_argument("of_run", metavar="RUN", help="the run's id")
    for command in (listing, show):
        command.add_argument("--scope", metavar="SCOPE", type=_scope, help="only of this scope")
        add_store_argument(command)


@contextmanager
def _opened(url: str) -> Iterator[Blocking]:
    tables = Blocking(LazyDriver(url, REAL, create=False))
    try:
        yield tables
    finally:
        tables.close()


def _list(asked: argparse.Namespace) -> int:
    """Show one page."""
    wanted = Wanted(
        scope=asked.scope,
        run=asked.of_run,
        digest=_digest(asked),
        outcome=asked.outcome,
        unended=asked.unended,
        after=asked.after,
        limit=asked.limit,
    )
    with _opened(url_of(asked)) as tables:
        found = tables.run(looked(partial(calls, wanted)))
    following = found[-1].id if len(found) == asked.limit else None
    if asked.json:
        say_document({"attempts": [_document(one) for one in found], "next": following})
        return exits.FINE
    if found:
        say(table(_HEADINGS, map(_row, found)))
    else:
        note("no attempts")
    if following is not None:
        note(f"there may be more: go on with --after {following}")
    return exits.FINE


def _digest(asked: argparse.Namespace) -> str | None:
    if asked.key is None:
        return asked.digest  # type: ignore[no-any-return]
    if asked.digest is not None:
        raise exits.UsageError("--key and --digest name the same thing; give one of them")
    if asked.scope is None:
        raise exits.UsageError("a key belongs to a scope: add --scope, or give the 12 digits as --digest")
    return digest_of_key(asked.scope, asked.key)


def _show(asked: argparse.Namespace) -> int:
    """Show one run."""
    with _opened(url_of(asked)) as tables:
        found = tables.run(looked(partial(runs, asked.scope, asked.of_run, 2)))
        if not found:
            raise exits.NoSuchRun(
                f"there is no run {asked.of_run} in this journal; `onceward journal list` shows attempts"
            )
        if len(found) > 1:
            raise exits.UsageError(f"several scopes have a run of this id; add --scope, for example {found[0].scope}")
        run = found[0]
        steps = tables.run(looked(partial(turns, run.scope, run.id)))
        tried = tables.run(
            looked(partial(calls, Wanted(scope=run.scope, run=run.id, oldest_first=True, limit=PAGE_MAX)))
        )
    if asked.json:
        document = {
            "run": _document(run),
            "turns": [_document(one) for one in steps],
            "attempts": [_document(one) for one in tried],
        }
        say_document(document)
        return exits.FINE
    say(facts(_document(run).items()))
    if steps:
        rows = [(one.seq, one.status, one.begun, _when(one.started_at), _when(one.finished_at)) for one in steps]
        say("\n" + table(("TURN", "STATUS", "BEGUN", "STARTED", "FINISHED"), rows))
    if tried:
        say("\n" + table(_HEADINGS, map(_row, tried)))
    if len(tried) == PAGE_MAX:
        note(f"only the first {PAGE_MAX} attempts; `onceward journal list --run {run.id}` has the latest")
    return exits.FINE


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
