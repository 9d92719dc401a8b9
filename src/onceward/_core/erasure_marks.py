"""
Erased stays erased: the mark that an erasure leaves, and what looks for it.

A holder whose claim the store forgot puts its ending back (see `finish_flow.py`). It cannot tell a row that was lost
from one that was erased, so whoever erases leaves a mark for as long as a claim can be held, and putting back lands
only
where no mark stands, in one atomic write. The mark is of the scope and not of the record: the
record may have been forgotten before the erasure came.

A mark is a record like any other, of a kind of its own, and is forgotten like any other. It holds nothing but a digest.
A store that is spread over several servers keeps what begins with the same half-byte together (Redis Cluster), and a
write can only look at what is beside it; so there is a mark for each of the sixteen.
"""

from __future__ import annotations

from onceward._core.errors import StoreContended
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.flow import RANDOM_BYTES, Flow, Put
from onceward._core.keys import record_id
from onceward._core.record import NOW, Guarantee, State, Write
from onceward._core.terms import LEASE_CEILING

ERASURE = "erasure"
"""The kind of record that a mark is."""

PARTS = 16
"""As many as there are half-bytes that an id can begin with."""

SPINS_MAX = 8
"""Writers that get in between: others who erase the same."""

_ONE, _ALL = "scope", "beneath"


def marks_of(id: bytes, scope: str) -> tuple[bytes, bytes]:
    """The ids of the marks that keep a record of this scope erased: of the scope, and of the tenant that it is of."""
    part = id[0] >> 4
    return _mark_id(_ONE, scope, part), _mark_id(_ALL, ":".join(scope.split(":", 2)[:2]), part)


def mark_scope(scope: str) -> Flow[None]:
    """Leave the marks of one scope."""
    yield from _leave(_ONE, scope)


def mark_prefix(prefix: str) -> Flow[None]:
    """Leave the marks of every scope that begins with these two parts (`live:acme`, `live:acme:token:k3`)."""
    yield from _leave(_ALL, prefix)


def _leave(what: str, name: str) -> Flow[None]:
    for part in range(PARTS):
        yield from _leave_one(_mark_id(what, name, part))


def _leave_one(id: bytes) -> Flow[None]:
    """Put a mark, or give the one that is there its time anew."""
    expect, fence = None, 1
    for _ in range(SPINS_MAX):
        chance = yield RANDOM_BYTES
        write = _mark(id, fence, chance)
        put = yield Put("erase.mark", write, expect)
        found = put.record
        if put.landed or (found is not None and found.version == write.version):
            return
        expect, fence = (None, 1) if found is None else (found.version, found.fence + 1)
    raise StoreContended


def _mark_id(what: str, name: str, part: int) -> bytes:
    digest = record_id(ERASURE, what, name)
    return bytes((part << 4 | digest[0] & 15,)) + digest[1:]


def _mark(id: bytes, fence: int, chance: bytes) -> Write:
    return Write(
        id=id,
        kind=ERASURE,
        scope=ERASURE,
        key=ERASURE,
        operation="",
        family=None,
        state=State.RELEASED.value,
        guarantee=Guarantee.REPEATABLE.value,
        doubt=0,
        fingerprint=fingerprint_canonical(ERASURE),
        version=chance[:16],
        token=chance[16:32],
        fence=fence,
        attempt=1,
        first_at=NOW,
        settled_at=None,
        lease=None,
        replay=None,
        forget=LEASE_CEILING,  # No operation can agree to be held for longer, whatever its terms.
        codec=None,
        result=None,
        error=None,
        rise=True,
    )
