"""
What operators do: find a record by what a log shows of it, and decide one that is in doubt.

A gate knows the keys of one scope. An operator has a digest and a store, and may act on any scope; so these
functions go by the record's own id, whatever kind of record it is (a key, a plan's step, a sequence's entry).
"""

from __future__ import annotations

from onceward._core.engine import Ask, reconcile
from onceward._core.errors import IllegalMove
from onceward._core.keys import digest_of, record_id
from onceward._core.letters import discard, letter_id
from onceward._core.operation import Found, NotFound
from onceward._core.record import Claimant, Record
from onceward._core.register import Selection, Store
from onceward._core.terms import DEFAULT_TERMS, Terms
from onceward.environment import REAL, Environment
from onceward.gate.asking import KEY, Asking
from onceward.gate.operate import operate

ID_DIGITS = 64
"""Hex digits of a whole id."""

DIGITS_MIN = 4
"""Fewer digits would match by accident as soon as there are a few records (git asks for four, too)."""

CANDIDATES_MAX = 10
"""Records shown when a digest matches several: enough to see how many more digits are needed."""


ANY = Selection()


def find_records(store: Store, digits: str, selection: Selection = ANY) -> list[Record]:
    """The records whose ids begin with these hex digits, at most `CANDIDATES_MAX` of them, in order of id."""
    if len(digits) == ID_DIGITS:
        found = store.load(bytes.fromhex(digits))
        return [] if found is None else [found]
    page = store.scan(after_just_before(digits), CANDIDATES_MAX, selection)
    return [record for record in page if record.id.hex().startswith(digits)]


def after_just_before(digits: str) -> bytes:
    """Where a scan begins that is to show the ids with these first digits."""
    first = int(digits.ljust(ID_DIGITS, "0"), 16)
    # A scan begins after an id, so this is the id just before the first one that would match.
    return (first - 1).to_bytes(ID_DIGITS // 2, "big") if first else b""


def id_of_key(scope: str, key: str) -> bytes:
    """The id under which a gate of this scope keeps a key."""
    asking = Asking(scope, environment=None, listeners=(), options={})
    return record_id(KEY, asking.scope, asking.stored_key(key))


def reconcile_record(
    store: Store,
    id: bytes,
    answer: Found | NotFound,
    *,
    fence: int | None = None,
    terms: Terms = DEFAULT_TERMS,
    environment: Environment = REAL,
) -> Record:
    """
    Decide a record by its id: `Found(result)` settles it, `NOT_FOUND` releases it. The same flow as `Gate.reconcile`.

    `terms` say how long the answer is kept: the record does not know on which terms its operation was declared.
    """
    found = store.load(id)
    if found is None:
        raise IllegalMove("there is no such record: nothing was ever claimed under this key, or it was forgotten")

    return operate(store, reconcile(_ask_about(found, terms), answer, fence), environment=environment)


def digest_of_key(scope: str, key: str) -> str:
    """The digits by which logs, events and journals name a key of this scope."""
    return digest_of(id_of_key(scope, key))


def id_of_letter(scope: str, key: str) -> bytes:
    """The id of the dead letter about a key in this scope."""
    asking = Asking(scope, environment=None, listeners=(), options={})
    return letter_id(asking.scope, asking.stored_key(key))


def discard_letter(store: Store, id: bytes, *, environment: Environment = REAL) -> bool:
    """Let go of a dead letter; whether there was one."""
    return operate(store, discard(id), environment=environment)


def _ask_about(found: Record, terms: Terms) -> Ask:
    """An ask in the name of whoever claimed the record."""
    return Ask(
        Claimant(
            found.id,
            found.kind,
            found.scope,
            found.key,
            found.operation,
            found.family,
            found.guarantee,
            found.fingerprint,
            terms.lease,
            terms.keyed_for,
            False,
        ),
        terms,
    )
