"""
What operators do: find a record by its digest, and decide one that is in doubt.

A gate knows the keys of one scope. An operator has a digest and a store, and may act on any scope; so these
functions go by the record's own id, whatever kind of record it is (a key, a plan's step, a sequence's entry).
"""

from __future__ import annotations

from functools import lru_cache

from onceward._core.dead_letters import dead_letter_id, discard
from onceward._core.errors import IllegalMove
from onceward._core.keys import check_key, digest_of, record_id
from onceward._core.operation import Found, NotFound
from onceward._core.operation_flow import OperationRequest, reconcile
from onceward._core.record import Claimant, Record
from onceward._core.store_protocols import Selection, Store
from onceward._core.terms import DEFAULT_TERMS, Terms
from onceward.gate.call_factory import KEY, STEP, CallFactory
from onceward.gate.store_runner import run_on_store
from onceward.runtime.environment import REAL, Environment

ID_DIGITS = 64
"""Hex digits of a whole id."""

DIGITS_MIN = 4
"""Fewer digits would match by accident as soon as there are a few records (git asks for four, too)."""

CANDIDATES_MAX = 10
"""Records shown when a digest matches several: enough to see how many more digits are needed."""


ANY_RECORD = Selection()


def find_records(store: Store, digits: str, selection: Selection = ANY_RECORD) -> list[Record]:
    """The records whose ids begin with these hex digits, at most `CANDIDATES_MAX` of them, in order of id."""
    if len(digits) == ID_DIGITS:
        found = store.load(bytes.fromhex(digits))
        return [] if found is None else [found]
    page = store.scan(scan_start_of(digits), CANDIDATES_MAX, selection)
    return [record for record in page if record.id.hex().startswith(digits)]


def scan_start_of(digits: str) -> bytes:
    """The id after which to scan for ids that begin with these digits."""
    first = int(digits.ljust(ID_DIGITS, "0"), 16)
    # A scan begins after an id, so this is the id just before the first one that would match.
    return (first - 1).to_bytes(ID_DIGITS // 2, "big") if first else b""


def id_of_key(scope: str, key: str) -> bytes:
    """The record id of a key in this scope."""
    call_factory = _factory_of(scope)
    return record_id(KEY, call_factory.scope, call_factory.stored_key(key))


def id_of_step(scope: str, plan: str, step: str) -> bytes:
    """The record id of a plan's step in this scope."""
    call_factory = _factory_of(scope)
    return record_id(STEP, call_factory.scope, call_factory.stored_key(plan), check_key(step))


@lru_cache(maxsize=128)
def _factory_of(scope: str) -> CallFactory:
    """It has no state, and every note of a journal needs one."""
    return CallFactory(scope, environment=None, listeners=())


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
    Decide a record in doubt by its id, as `Gate.reconcile` does: `Found(result)` settles it, `NOT_FOUND` releases it.

    `terms` say how long the result is kept, because a record does not store the options of its operation.
    """
    found = store.load(id)
    if found is None:
        raise IllegalMove(
            "there is no such record: it never ran here, or it was forgotten. Check the key and the store"
        )

    return run_on_store(store, reconcile(_request_about(found, terms), answer, fence), environment=environment)


def digest_of_key(scope: str, key: str) -> str:
    """The digest of a key in this scope, as logs, events and journals show it."""
    return digest_of(id_of_key(scope, key))


def id_of_dead_letter(scope: str, key: str) -> bytes:
    """The id of the dead letter about a key in this scope."""
    call_factory = _factory_of(scope)
    return dead_letter_id(call_factory.scope, call_factory.stored_key(key))


def discard_dead_letter(store: Store, id: bytes, *, environment: Environment = REAL) -> bool:
    """Delete a dead letter; whether there was one."""
    return run_on_store(store, discard(id), environment=environment)


def _request_about(found: Record, terms: Terms) -> OperationRequest:
    """A request for the operation of a record that was found."""
    claimant = Claimant(
        id=found.id,
        kind=found.kind,
        scope=found.scope,
        key=found.key,
        operation=found.operation,
        family=found.family,
        guarantee=found.guarantee,
        fingerprint=found.fingerprint,
        lease=terms.lease,
        keyed_for=terms.keyed_for,
        can_probe=False,
    )
    return OperationRequest(claimant, terms)
