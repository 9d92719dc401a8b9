"""
Brings what a store holds under the key that seals now: after a key was changed, or sealing was switched on.

Every row is read, and put back by compare-and-swap on its version: whoever writes meanwhile wins, and what he wrote is
under the new key by itself. Nobody's claim is touched. Killed anywhere, it is simply run again: rows that are done are
passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from onceward._core.errors import SealBroken, SealKeyMissing
from onceward._core.keys import digest_of
from onceward._core.record import Record, is_claimed
from onceward._core.sealing import Sealer, reseal
from onceward._core.store_protocols import Selection, Store
from onceward.gate.call_factory import SCAN_PAGE
from onceward.runtime.environment import REAL, Environment

TRIES = 5
UNREADABLE_MAX = 20
"""Digests that are kept to be shown; the others are counted."""


@dataclass
class ResealProgress:
    """How far it is."""

    looked_at: int = 0
    resealed: int = 0
    held: int = 0
    """Left alone, because somebody holds them: run it again when they are done."""
    unreadable: int = 0
    """Left alone, because they do not open."""
    digests: list[str] = field(default_factory=list)
    """Of the first of those."""
    after: bytes = b""
    """The id up to which the store was looked through."""


def reseal_store(
    store: Store,
    sealer: Sealer,
    key_id_for: Callable[[str], str],
    progress: ResealProgress,
    *,
    environment: Environment = REAL,
) -> Iterator[ResealProgress]:
    """Once through a store (not a sealed one: the store itself), telling after every page how far it is."""
    after = b""
    while page := store.scan(after, SCAN_PAGE, Selection()):
        for found in page:
            _reseal_one(store, sealer, key_id_for, found, progress, environment)
        progress.after = after = page[-1].id
        yield progress


def _reseal_one(
    store: Store,
    sealer: Sealer,
    key_id_for: Callable[[str], str],
    found: Record,
    progress: ResealProgress,
    environment: Environment,
) -> None:
    progress.looked_at += 1
    current: Record | None = found
    for _ in range(TRIES):
        if current is None or (current.result is None and current.error is None):
            return
        if is_claimed(current):
            break
        try:
            write = reseal(sealer, current, environment.random(16), key_id_for(current.scope))
        except (SealBroken, SealKeyMissing):
            progress.unreadable += 1
            if len(progress.digests) < UNREADABLE_MAX:
                progress.digests.append(digest_of(current.id))
            return
        if write is None:
            return
        put = store.put(write, current.version)
        if put.landed:
            progress.resealed += 1
            return
        current = put.record
    progress.held += 1
