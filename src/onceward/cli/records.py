"""
`onceward records`: look at what a store holds, decide what is in doubt, tidy up. Any scope: this is for operators.

The commands that an `InDoubt` error prints are these; they work as printed, with ONCEWARD_STORE set.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from onceward._core.operation import NOT_FOUND, Found, NotFound, instant
from onceward._core.record import Record, shown_state
from onceward._core.register import Selection, Store
from onceward._core.terms import DEFAULT_TERMS, agree
from onceward.cli import exits
from onceward.cli.documents import record_document
from onceward.cli.opening import opened
from onceward.cli.parsing import given_json
from onceward.cli.printing import note, say, say_document
from onceward.cli.tables import facts, pretty_json, table
from onceward.environment import REAL
from onceward.gate.asking import SCAN_PAGE
from onceward.gate.operating import CANDIDATES_MAX, ID_DIGITS, find_records, id_of_key, reconcile_record
from onceward.gate.records import view

STATES = ("claimed", "settled", "released", "in_doubt", "lapsed", "expired", "absent")
"""As shown: the last three are derived (may be claimed again; a tombstone; forgotten, until the next purge)."""

_UNSETTLED = frozenset({"claimed", "in_doubt", "lapsed"})

PURGE_PAUSE_SECONDS = 0.01
"""Between batches: lets those in who wait to write."""


def list_records(asked: argparse.Namespace) -> int:
    """Show one page."""
    with opened(asked) as store:
        # One more than asked for tells whether there are more.
        found: list[Record] = []
        for record in _matching(store, asked):
            found.append(record)
            if len(found) > asked.limit:
                break
    page = found[: asked.limit]
    upcoming = page[-1].id.hex() if len(found) > len(page) else None
    if asked.json:
        say_document({"records": [record_document(one, with_result=False) for one in page], "next": upcoming})
        return exits.FINE
    if page:
        headings = ("DIGEST", "STATE", "SCOPE", "KIND", "KEY", "OPERATION", "ATTEMPT", "FIRST AT")
        say(table(headings, [_row(one) for one in page]))
    else:
        note("no records")
    if upcoming is not None:
        note(f"there are more: go on with --after {upcoming}")
    return exits.FINE


def _matching(store: Store, asked: argparse.Namespace) -> Iterator[Record]:
    selection = Selection(scope=asked.scope, unsettled=asked.state in _UNSETTLED)
    after = bytes.fromhex(asked.after.ljust(ID_DIGITS, "f")) if asked.after else b""
    while page := store.scan(after, SCAN_PAGE, selection):
        yield from (one for one in page if asked.state in (None, shown_state(one)))
        after = page[-1].id


def _row(record: Record) -> tuple[object, ...]:
    seen = view(record)
    first_at = seen.first_at.isoformat(sep=" ", timespec="seconds")
    return seen.digest, seen.state, seen.scope, seen.kind, seen.key, seen.operation, seen.attempt, first_at


def show(asked: argparse.Namespace) -> int:
    """Show one record, with its result."""
    with opened(asked) as store:
        record = _the_record(store, asked)
    _tell(record, as_json=asked.json)
    return exits.FINE


def release(asked: argparse.Namespace) -> int:
    """Declare that an operation did not happen."""
    if not asked.yes:
        raise exits.UsageError(
            "releasing a record declares that its effect did not happen, and lets it run again. Check that where the "
            "effect takes place; then add --yes"
        )
    return _decide(asked, NOT_FOUND)


def reconcile(asked: argparse.Namespace) -> int:
    """Decide an operation that is in doubt."""
    if asked.did_not_happen:
        return _decide(asked, NOT_FOUND)
    return _decide(asked, Found(given_json("--happened", asked.happened, DEFAULT_TERMS.result_bytes_max)))


def _decide(asked: argparse.Namespace, answer: Found | NotFound) -> int:
    retain = getattr(asked, "retain", None)
    terms = DEFAULT_TERMS if retain is None else agree(DEFAULT_TERMS, {"retain": retain})
    with opened(asked) as store:
        decided = reconcile_record(store, _the_record(store, asked).id, answer, terms=terms)
    _tell(decided, as_json=asked.json)
    return exits.FINE


def purge(asked: argparse.Namespace) -> int:
    """Delete what may be forgotten, and shrink what has expired."""
    forgotten = shrunk = batches = 0
    done = False
    with opened(asked) as store:
        while not done and (asked.all or batches == 0):
            if batches:
                REAL.sleep(PURGE_PAUSE_SECONDS)
            purged = store.purge(asked.limit)
            forgotten, shrunk, batches = forgotten + purged.forgotten, shrunk + purged.shrunk, batches + 1
            done = max(purged) < asked.limit
            if asked.all and not done:
                note(f"{forgotten:,} forgotten, {shrunk:,} shrunk to tombstones so far")
    if asked.json:
        say_document({"forgotten": forgotten, "shrunk": shrunk, "batches": batches, "done": done})
    else:
        say(facts([("forgotten", forgotten), ("shrunk", shrunk), ("done", done)]))
    return exits.FINE


def _the_record(store: Store, asked: argparse.Namespace) -> Record:
    """The one record that is meant."""
    if asked.id is None:
        if asked.scope is None or asked.key is None:
            raise exits.UsageError("which record? Give its id or digest, or both --scope and --key")
        found = store.load(id_of_key(asked.scope, asked.key))
        if found is None:
            raise exits.NoSuchRecord("there is no record of that key in that scope: it was never claimed, or was forgotten")
        return found
    if asked.scope is not None or asked.key is not None:
        raise exits.UsageError("give a record's id or digest, or --scope and --key, and not both")
    candidates = find_records(store, asked.id)
    if not candidates:
        raise exits.NoSuchRecord(f"no record's id begins with {asked.id}: it is in another store, or was forgotten")
    if len(candidates) > 1:
        digits = len(asked.id) + 8
        shown = ", ".join(one.id.hex()[:digits] for one in candidates)
        more = " (and perhaps more)" if len(candidates) == CANDIDATES_MAX else ""
        raise exits.DigestAmbiguous(f"{asked.id} could be any of {shown}{more}; give more digits")
    return candidates[0]


def _tell(record: Record, *, as_json: bool) -> None:
    if as_json:
        say_document(record_document(record, with_result=True))
        return
    seen = view(record)
    say(
        facts(
            [
                ("digest", seen.digest),
                ("id", seen.id),
                ("state", seen.state),
                ("scope", seen.scope),
                ("kind", seen.kind),
                ("key", seen.key),
                ("operation", seen.operation or None),
                ("guarantee", seen.guarantee),
                ("attempt", seen.attempt),
                ("fence", seen.fence),
                ("first at", seen.first_at.isoformat(timespec="seconds")),
                ("settled at", None if record.settled_at is None else instant(record.settled_at).isoformat()),
                ("lease", _left(seen.lease_seconds_left)),
                ("replays", _left(seen.replay_seconds_left)),
                ("forgotten", _left(seen.forget_seconds_left)),
                ("codec", seen.codec),
                ("failure", seen.failure),
            ]
        )
    )
    if seen.codec is not None:
        say("\n" + pretty_json(record_document(record, with_result=True)["result"]))
    if seen.state == "in_doubt":
        say(
            "\nCheck, where the effect takes place, whether it did. Then\n"
            f"  if it happened:  onceward records reconcile {seen.digest} --happened 'RESULT AS JSON'\n"
            f"  if it did not:   onceward records reconcile {seen.digest} --did-not-happen"
        )


def _left(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"for {seconds:,.0f} s more" if seconds > 0 else f"ended {-seconds:,.0f} s ago"
