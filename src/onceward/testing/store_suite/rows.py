"""
Rows to put: a claim with every field filled in, and what may follow it.
"""

from __future__ import annotations

from typing import Any

from onceward._core import record
from onceward._core.keys import record_id
from onceward._core.record import Guarantee, Record, State, Write
from onceward.runtime.environment import REAL

HOUR_US = 3_600 * 1_000_000


def random_token() -> bytes:
    """A new version or token. Really random: a store with a server keeps its rows from one run to the next."""
    return REAL.random(16)


def row(scope: str, key: str = "k", **changes: Any) -> Write:
    """A claim of that key as the rules make it, with changes: `row(scope, "k", operation="charge")`."""
    kind = changes.get("kind", "key")
    claim = Write(
        record_id(kind, scope, key),
        kind,
        scope,
        key,
        "charge",
        None,
        State.CLAIMED.value,
        Guarantee.BLIND.value,
        0,
        b"\x01" + key.encode().ljust(32, b".")[:32],
        random_token(),
        random_token(),
        1,
        1,
        record.NOW,
        *(None, HOUR_US, None, None, None, None, None),
        rise=True,
    )
    return claim._replace(**changes)


def settled(held: Record, *, result: bytes = b'"done"', replay: int | None = HOUR_US, **changes: Any) -> Write:
    """The settling of what is held."""
    changes.setdefault("forget", 2 * HOUR_US)
    write = record.settle(
        held, version=random_token(), replay=replay, forget=changes.pop("forget"), codec="json/1", result=result
    )
    return write._replace(**changes)


def released(held: Record, *, forget: int = HOUR_US) -> Write:
    """The release of what is held."""
    return record.release(held, version=random_token(), forget=forget)


def doubted(held: Record) -> Write:
    """Leaving what is held in doubt."""
    return record.leave_in_doubt(held, version=random_token())


def reclaimed(found: Record, **changes: Any) -> Write:
    """A claim of the same key over what was found there."""
    return row(found.scope, found.key, fence=found.fence + 1, attempt=found.attempt + 1, **changes)


def without_durations(found: Record) -> Record:
    """A record without its durations, which go on changing: the rest can be compared field by field."""
    return found._replace(age=0, lease_left=None, replay_left=None, forget_left=None)
