"""
`onceward store`: make a store ready, look it over, move its schema forward.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, NamedTuple

from onceward._core.keys import digest_of
from onceward._core.operation import instant
from onceward._core.record import Record, is_in_doubt, shown_state
from onceward._core.register import Selection, Store
from onceward.cli import exits
from onceward.cli.opening import add_store_argument, existing_url_of, is_sqlite, opened, url_of
from onceward.cli.parsing import Groups, add_command, add_group
from onceward.cli.printing import say, say_document
from onceward.cli.tables import facts, table
from onceward.gate.asking import SCAN_PAGE
from onceward.stores import open_store

_URL = "--store sqlite:///agent.db"


def add_to(parsers: Groups) -> None:
    """Declare the commands."""
    group = add_group(parsers, "store", "make a store ready, look it over, move its schema forward")
    init = add_command(
        group,
        "init",
        "make a store ready; again does no harm",
        _init,
        examples=(f"onceward store init {_URL}",),
        codes=(exits.FINE, exits.USAGE, exits.STORE),
    )
    check = add_command(
        group,
        "check",
        "look a store over: damage, schema, settings, and what it holds",
        _check,
        examples=("onceward store check",),
        codes=(exits.FINE, exits.NO, exits.USAGE, exits.STORE),
        more="Records in doubt wait for a decision; they are counted, and are no fault of the store.",
    )
    migrate = add_command(
        group,
        "migrate",
        "move a store's schema forward to this version",
        _migrate,
        examples=("onceward store migrate",),
        codes=(exits.FINE, exits.USAGE, exits.STORE),
    )
    for command in (init, check, migrate):
        add_store_argument(command)


def _init(asked: argparse.Namespace) -> int:
    url = url_of(asked)
    where = "nowhere: a memory store is made ready by opening it"
    if is_sqlite(url):
        from onceward.stores import sqlite

        where = str(sqlite.init(url))
    else:
        open_store(url).close()
    return _tell(asked, {"ready": True, "at": where}, exits.FINE)


def _migrate(asked: argparse.Namespace) -> int:
    url = existing_url_of(asked)
    before = after = None
    if is_sqlite(url):
        from onceward.stores import sqlite

        before, after = sqlite.migrate(url)
    else:
        open_store(url).close()
    return _tell(asked, {"before": before, "after": after, "moved": before != after}, exits.FINE)


def _tell(asked: argparse.Namespace, document: dict[str, Any], code: int) -> int:
    if asked.json:
        say_document(document)
    else:
        say(facts(document.items()))
    return code


class _Holdings(NamedTuple):
    """What a store holds, counted."""

    states: dict[str, int]
    oldest_in_doubt: Record | None


def _check(asked: argparse.Namespace) -> int:
    url = existing_url_of(asked)
    checks: list[dict[str, Any]] = []
    if is_sqlite(url):
        from onceward.stores import sqlite

        # Records are counted below, by the states that people see: a claim that lapsed is in doubt.
        checks = [one._asdict() for one in sqlite.check(url) if one.name != "records"]
    with opened(asked) as store:
        held = _count(store)
    healthy = all(one["ok"] for one in checks)
    oldest = held.oldest_in_doubt
    document = {
        "healthy": healthy,
        "checks": checks,
        "records": held.states,
        "inDoubt": held.states.get("in_doubt", 0),
        "oldestInDoubt": None
        if oldest is None
        else {"digest": digest_of(oldest.id), "firstAt": instant(oldest.first_at).isoformat()},
    }
    if asked.json:
        say_document(document)
    else:
        _show_check(document)
    return exits.FINE if healthy else exits.NO


def _show_check(document: dict[str, Any]) -> None:
    if document["checks"]:
        rows = [(one["name"], "ok" if one["ok"] else "PROBLEM", one["detail"]) for one in document["checks"]]
        say(table(("CHECK", "", "DETAIL"), rows, limit=None) + "\n")
    oldest = document["oldestInDoubt"]
    known = [(f"records {state}", count) for state, count in document["records"].items()]
    say(
        facts(
            [
                ("healthy", document["healthy"]),
                *(known or [("records", "none")]),
                ("oldest in doubt", oldest and f"{oldest['digest']}, first claimed at {oldest['firstAt']}"),
            ]
        )
    )


def _count(store: Store) -> _Holdings:
    states: Counter[str] = Counter()
    oldest: Record | None = None
    after = b""
    while page := store.scan(after, SCAN_PAGE, Selection()):
        after = page[-1].id
        states.update(map(shown_state, page))
        for record in filter(is_in_doubt, page):
            if oldest is None or record.first_at < oldest.first_at:
                oldest = record
    return _Holdings(dict(sorted(states.items())), oldest)
