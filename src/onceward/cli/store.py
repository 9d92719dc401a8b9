"""
`onceward store`: set up a store, check it, migrate its schema; `store_functions.py` has the rest.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from onceward._core.errors import OncewardError
from onceward._core.keys import digest_of
from onceward._core.operation import to_datetime
from onceward._core.record import Record, shown_state
from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.status_output import findings_text, look
from onceward.cli.store_adopt import ADOPT_COMMANDS
from onceward.cli.store_argument import STORE, existing_store_url, store_url, upkeep_of
from onceward.cli.store_functions import FUNCTION_COMMANDS
from onceward.cli.store_reseal import RESEAL_COMMANDS
from onceward.cli.text_tables import format_facts, format_table
from onceward.overview import COUNT_MAX, Level, Overview, StatusFinding
from onceward.stores import Selection, open_store

_PAGE = 500


def _init(args: argparse.Namespace) -> int:
    url = store_url(args)
    upkeep = upkeep_of(url)
    if args.partitions is not None:
        url = _with_partitions(url, args.partitions)
        if args.sql:
            from onceward.stores._postgres_upkeep import partitioned_sql

            return _print_sql(args, partitioned_sql(url))
    if args.sql:
        if upkeep is None:
            raise exit_codes.UsageError("this store has no tables, so there is no SQL to print. Leave --sql out")
        return _print_sql(args, upkeep.schema_sql(0))
    if args.shards is not None:
        init_sharded = getattr(upkeep, "init_sharded", None)
        if init_sharded is None:
            raise exit_codes.UsageError("this store has no shards: --shards is for Redis. Leave it out")
        return _print_facts(args, {"ready": True, "at": str(init_sharded(url, args.shards))}, exit_codes.FINE)
    where = "nothing to do: this store is ready as soon as it is opened" if upkeep is None else str(upkeep.init(url))
    return _print_facts(args, {"ready": True, "at": where}, exit_codes.FINE)


def _with_partitions(url: str, partitions: int) -> str:
    """The URL of a PostgreSQL store whose table, if it is made now, is divided into so many."""
    if not url.startswith(("postgresql:", "postgres:")):
        raise exit_codes.UsageError("only a PostgreSQL store has partitions. Leave --partitions out")
    return f"{url}{'&' if '?' in url else '?'}onceward_partitions={partitions}"


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


def _check(args: argparse.Namespace) -> int:
    url = existing_store_url(args)
    upkeep = upkeep_of(url)
    # Records are counted below, by the states that people see: a claim that lapsed is in doubt.
    checks = [one._asdict() for one in upkeep.check(url) if one.name != "records"] if upkeep is not None else []
    is_sound = all(one["ok"] for one in checks)
    seen = _look(args, is_sound)
    states, is_all = _states(upkeep.held(url) if upkeep is not None else _scanned(url))
    if seen is not None:
        states["in_doubt"] = seen.records.in_doubt.total.number
    findings = () if seen is None else seen.findings
    waiting = tuple(one for one in findings if one.level is Level.NEEDED)
    oldest = seen.records.in_doubt.oldest[:1] if seen is not None else ()
    document = {
        "healthy": is_sound and not waiting,
        "checks": checks,
        "waiting": [{"subject": one.subject, "text": one.text, "commands": list(one.commands)} for one in waiting],
        "records": {state: number for state, number in sorted(states.items()) if number},
        "recordsAbout": sum(states.values()) if is_all or seen is None else seen.records.purge.records.number,
        "recordsCounted": "all" if is_all else "sample",
        "inDoubt": states["in_doubt"],
        "oldestInDoubt": None
        if not oldest
        else {"digest": digest_of(oldest[0].id), "firstAt": to_datetime(oldest[0].first_at).isoformat()},
    }
    if args.json:
        print_json(document)
    else:
        _show_check(document, waiting, args)
    return exit_codes.FINE if document["healthy"] else exit_codes.NO


def _look(args: argparse.Namespace, is_sound: bool) -> Overview | None:
    """What waits for a person; None: the store refuses to be used, which the checks have said."""
    try:
        return look(args)
    except OncewardError:
        if is_sound:
            raise
        return None


def _show_check(document: dict[str, Any], waiting: tuple[StatusFinding, ...], args: argparse.Namespace) -> None:
    if document["checks"]:
        rows = [(one["name"], "ok" if one["ok"] else "PROBLEM", one["detail"]) for one in document["checks"]]
        print_text(format_table(("CHECK", "", "DETAIL"), rows, limit=None) + "\n")
    oldest = document["oldestInDoubt"]
    sample = f"the first {COUNT_MAX:,} of about {document['recordsAbout']:,}; what is in doubt: all of it"
    known = [(f"records {state}", number) for state, number in document["records"].items()]
    print_text(
        format_facts(
            [
                ("healthy", document["healthy"]),
                *(known or [("records", "none")]),
                ("counted", sample if document["recordsCounted"] == "sample" else None),
                ("oldest in doubt", oldest and f"{oldest['digest']}, first claimed at {oldest['firstAt']}"),
            ]
        )
    )
    if waiting:
        print_text(f"\nNot healthy while this needs a person:\n{findings_text(waiting, args)}")


def _scanned(url: str) -> Iterator[Record]:
    """Every record of a store without upkeep."""
    with closing(open_store(url)) as store:
        after = b""
        while page := store.scan(after, _PAGE, Selection()):
            yield from page
            after = page[-1].id


def _states(records: Iterator[Record]) -> tuple[Counter[str], bool]:
    """How many of the first records are in which state, and whether that is all of them."""
    found = [shown_state(one) for one in islice(records, COUNT_MAX + 1)]
    return Counter(found[:COUNT_MAX]), len(found) <= COUNT_MAX


COMMANDS = (
    Command(
        name="store init",
        summary="set up a store; running it again is safe",
        run=_init,
        arguments=(
            Argument("--sql", "print the statements, for an administrator to run; change nothing", action="store_true"),
            Argument(
                "--shards",
                "Redis: how many parts to spread records over; it cannot be changed later",
                type=int,
                metavar="N",
            ),
            Argument(
                "--partitions",
                "PostgreSQL: split the table of records into this many partitions, by the hash of their ids",
                type=int,
                metavar="N",
            ),
            STORE,
        ),
        examples=(
            "onceward store init --store sqlite:///agent.db",
            "onceward store init --sql",
            "onceward store init --shards 64 --store redis+cluster://a:7000,b:7000",
            "onceward store init --partitions 16 --store postgresql://shop@db/shop",
        ),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="store check",
        summary="check a store: damage, schema, settings, privileges, and what it holds",
        run=_check,
        arguments=(STORE,),
        examples=("onceward store check  # exit 1",),
        exit_codes=exit_codes.TO_FIND,
        no="the store is not healthy, or something needs a person",
        more="It is not healthy while anything waits for a person (see `onceward status`). In a large store, the "
        "states of the first 10,000 records are counted, which are a sample; what is in doubt is always found.",
    ),
    Command(
        name="store migrate",
        summary="migrate the schema of a store to this version",
        run=_migrate,
        arguments=(
            Argument("--sql", "print the statements that would be run; run none", action="store_true"),
            STORE,
        ),
        examples=("onceward store migrate", "onceward store migrate --sql"),
        exit_codes=exit_codes.TO_LIST,
    ),
    *FUNCTION_COMMANDS,
    *RESEAL_COMMANDS,
    *ADOPT_COMMANDS,
)
