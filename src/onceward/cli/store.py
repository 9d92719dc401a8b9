"""
`onceward store`: make a store ready, look it over, move its schema forward.
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
from onceward.cli.command_parser import CommandGroup, add_command, add_group
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument, existing_store_url, store_url, upkeep_of
from onceward.cli.text_tables import format_facts, format_table
from onceward.stores import Selection, open_store

_URL = "--store sqlite:///agent.db"
_PAGE = 500


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "store", "make a store ready, look it over, move its schema forward")
    init = add_command(
        group,
        "init",
        "make a store ready; again does no harm",
        _init,
        examples=(f"onceward store init {_URL}", "onceward store init --sql"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    check = add_command(
        group,
        "check",
        "look a store over: damage, schema, settings, rights, and what it holds",
        _check,
        examples=("onceward store check",),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
        more="Records in doubt wait for a decision; they are counted, and are no fault of the store.",
    )
    migrate = add_command(
        group,
        "migrate",
        "move a store's schema forward to this version",
        _migrate,
        examples=("onceward store migrate", "onceward store migrate --sql"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    init.add_argument(
        "--sql", action="store_true", help="print the statements, for an administrator to run; change nothing"
    )
    migrate.add_argument("--sql", action="store_true", help="print the statements that are still to be run; run none")
    for command in (init, check, migrate):
        add_store_argument(command)


def _init(asked: argparse.Namespace) -> int:
    url = store_url(asked)
    upkeep = upkeep_of(url)
    if asked.sql:
        if upkeep is None:
            raise exit_codes.UsageError("this store has no tables, so there is no SQL to print: leave --sql out")
        return _tell_sql(asked, upkeep.schema_sql(0))
    where = "nowhere: this store is made ready by opening it" if upkeep is None else str(upkeep.init(url))
    return _tell(asked, {"ready": True, "at": where}, exit_codes.FINE)


def _migrate(asked: argparse.Namespace) -> int:
    url = existing_store_url(asked)
    upkeep = upkeep_of(url)
    if upkeep is None:
        return _tell(asked, {"before": None, "after": None, "moved": False}, exit_codes.FINE)
    move = upkeep.planned(url)
    if asked.sql:
        return _tell_sql(asked, upkeep.schema_sql(move.before) if move.scripts else "")
    if move.scripts:
        print_note(f"moving the schema from version {move.before} to {move.after}: {', '.join(move.scripts)}")
    before, after = upkeep.migrate(url)
    return _tell(asked, {"before": before, "after": after, "moved": before != after}, exit_codes.FINE)


def _tell_sql(asked: argparse.Namespace, sql: str) -> int:
    if asked.json:
        print_json({"sql": sql})
    elif sql:
        print_text(sql)
    else:
        print_note("nothing is left to do")
    return exit_codes.FINE


def _tell(asked: argparse.Namespace, document: dict[str, Any], code: int) -> int:
    if asked.json:
        print_json(document)
    else:
        print_text(format_facts(document.items()))
    return code


class _Holdings(NamedTuple):
    """What a store holds, counted."""

    states: dict[str, int]
    oldest_in_doubt: Record | None


def _check(asked: argparse.Namespace) -> int:
    url = existing_store_url(asked)
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
    if asked.json:
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
