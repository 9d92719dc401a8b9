"""
`onceward store`: make a store ready, look it over, move its schema forward; `store_functions.py` has the rest.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from onceward._core.keys import digest_of
from onceward._core.operation import to_datetime
from onceward._core.record import Record, is_in_doubt, shown_state
from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_adopt import ADOPT_COMMANDS
from onceward.cli.store_argument import STORE, existing_store_url, store_url, upkeep_of
from onceward.cli.store_functions import FUNCTION_COMMANDS
from onceward.cli.store_reseal import RESEAL_COMMANDS
from onceward.cli.text_tables import format_facts, format_table
from onceward.stores import Selection, open_store

_PAGE = 500


def _init(args: argparse.Namespace) -> int:
    url = store_url(args)
    upkeep = upkeep_of(url)
    if args.sql:
        if upkeep is None:
            raise exit_codes.UsageError("this store has no tables, so there is no SQL to print. Leave --sql out")
        return _print_sql(args, upkeep.schema_sql(0))
    where = "nowhere: this store is made ready by opening it" if upkeep is None else str(upkeep.init(url))
    return _print_facts(args, {"ready": True, "at": where}, exit_codes.FINE)


def _migrate(args: argparse.Namespace) -> int:
    url = existing_store_url(args)
    upkeep = upkeep_of(url)
    if upkeep is None:
        return _print_facts(args, {"before": None, "after": None, "moved": False}, exit_codes.FINE)
    move = upkeep.planned(url)
    if args.sql:
        return _print_sql(args, upkeep.schema_sql(move.before) if move.scripts else "")
    if move.scripts:
        print_note(f"moving the schema from version {move.before} to {move.after}: {', '.join(move.scripts)}")
    before, after = upkeep.migrate(url)
    return _print_facts(args, {"before": before, "after": after, "moved": before != after}, exit_codes.FINE)


def _print_sql(args: argparse.Namespace, sql: str) -> int:
    if args.json:
        print_json({"sql": sql})
    elif sql:
        print_text(sql)
    else:
        print_note("nothing is left to do")
    return exit_codes.FINE


def _print_facts(args: argparse.Namespace, document: dict[str, Any], code: int) -> int:
    if args.json:
        print_json(document)
    else:
        print_text(format_facts(document.items()))
    return code


class _Holdings(NamedTuple):
    """What a store holds, counted."""

    states: dict[str, int]
    oldest_in_doubt: Record | None


def _check(args: argparse.Namespace) -> int:
    url = existing_store_url(args)
    upkeep = upkeep_of(url)
    # Records are counted below, by the states that people see: a claim that lapsed is in doubt.
    checks = [one._asdict() for one in upkeep.check(url) if one.name != "records"] if upkeep is not None else []
    held = _count(upkeep.held(url) if upkeep is not None else _scanned(url))
    healthy = all(one["ok"] for one in checks)
    oldest = held.oldest_in_doubt
    document = {
        "healthy": healthy,
        "checks": checks,
        "records": held.states,
        "inDoubt": held.states.get("in_doubt", 0),
        "oldestInDoubt": None
        if oldest is None
        else {"digest": digest_of(oldest.id), "firstAt": to_datetime(oldest.first_at).isoformat()},
    }
    if args.json:
        print_json(document)
    else:
        _show_check(document)
    return exit_codes.FINE if healthy else exit_codes.NO


def _show_check(document: dict[str, Any]) -> None:
    if document["checks"]:
        rows = [(one["name"], "ok" if one["ok"] else "PROBLEM", one["detail"]) for one in document["checks"]]
        print_text(format_table(("CHECK", "", "DETAIL"), rows, limit=None) + "\n")
    oldest = document["oldestInDoubt"]
    known = [(f"records {state}", count) for state, count in document["records"].items()]
    print_text(
        format_facts(
            [
                ("healthy", document["healthy"]),
                *(known or [("records", "none")]),
                ("oldest in doubt", oldest and f"{oldest['digest']}, first claimed at {oldest['firstAt']}"),
            ]
        )
    )


def _scanned(url: str) -> Iterator[Record]:
    """Every record of a store without upkeep."""
    with closing(open_store(url)) as store:
        after = b""
        while page := store.scan(after, _PAGE, Selection()):
            yield from page
            after = page[-1].id


def _count(records: Iterable[Record]) -> _Holdings:
    states: Counter[str] = Counter()
    oldest: Record | None = None
    for record in records:
        states[shown_state(record)] += 1
        if is_in_doubt(record) and (oldest is None or record.first_at < oldest.first_at):
            oldest = record
    return _Holdings(dict(sorted(states.items())), oldest)


COMMANDS = (
    Command(
        name="store init",
        summary="make a store ready; doing it again does no harm",
        run=_init,
        arguments=(
            Argument("--sql", "print the statements, for an administrator to run; change nothing", action="store_true"),
            STORE,
        ),
        examples=("onceward store init --store sqlite:///agent.db", "onceward store init --sql"),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="store check",
        summary="look a store over: damage, schema, settings, rights, and what it holds",
        run=_check,
        arguments=(STORE,),
        examples=("onceward store check",),
        exit_codes=exit_codes.TO_FIND,
        more="Records in doubt wait for a decision; they are counted, and are no fault of the store.",
    ),
    Command(
        name="store migrate",
        summary="move a store's schema forward to this version",
        run=_migrate,
        arguments=(
            Argument("--sql", "print the statements that are still to be run; run none", action="store_true"),
            STORE,
        ),
        examples=("onceward store migrate", "onceward store migrate --sql"),
        exit_codes=exit_codes.TO_LIST,
    ),
    *FUNCTION_COMMANDS,
    *RESEAL_COMMANDS,
    *ADOPT_COMMANDS,
)
