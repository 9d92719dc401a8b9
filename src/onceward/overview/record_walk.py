"""
Goes through the records that operators look for, a piece at a time: what is in flight or in doubt, and dead letters.

Ids are hashes, so a sixteenth of all ids has about a sixteenth of all records. That is how far a walk has come, even
where it finds nothing; and why the first records in order of id are as good a sample as any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from onceward._core.capabilities import capabilities_of
from onceward._core.dead_letters import DEAD, DeadLetter, dead_letter_of, is_dead_letter
from onceward._core.errors import OncewardError
from onceward._core.keys import kind_family
from onceward._core.record import Record
from onceward._core.store_protocols import Selection, Store
from onceward._core.trace_marks import MARKS

Progress: TypeAlias = Callable[[float], object]
"""Is told from time to time which share of the records was looked at, from 0 to 1."""

SLICES = 16
"""Of all ids. SQLite has no index of what is in flight: there, each is a statement that reads its share of the file."""
PAGE = 500
_ID_BYTES = 32


def silent(_: float) -> None:
    """Tell nobody."""


def unsettled_records(store: Store, scope: str | None = None, progress: Progress = silent) -> Iterator[Record]:
    """What is claimed or in doubt, in order of id."""
    if capabilities_of(store).indexes_unsettled:
        # In one piece: PostgreSQL looks through all that was claimed within a day for each.
        progress(0.0)
        yield from _pages(store, b"", Selection(scope=scope, unsettled=True))
        progress(1.0)
        return
    for number in range(SLICES):
        progress(number / SLICES)
        after = (number << 252).to_bytes(_ID_BYTES, "big") if number else b""
        before = (number + 1 << 252).to_bytes(_ID_BYTES, "big") if number + 1 < SLICES else b""
        if number:
            after = (int.from_bytes(after, "big") - 1).to_bytes(_ID_BYTES, "big")  # A scan begins after an id.
        yield from _pages(store, after, Selection(scope=scope, unsettled=True, before=before))
    progress(1.0)


def records_of_family(store: Store, family: bytes, scope: str | None = None) -> Iterator[Record]:
    """The records of a family, in order of id."""
    found = _pages(store, b"", Selection(scope=scope, family=family))
    return (record for record in found if record.family == family)


class FoundDeadLetters(NamedTuple):
    """Some dead letters, and the digests of those that cannot be read."""

    letters: list[DeadLetter]
    unreadable: list[str]


def dead_letters(store: Store, scope: str | None = None, limit: int | None = None) -> FoundDeadLetters:
    """At most so many dead letters of operations and of events."""
    found = FoundDeadLetters([], [])
    for record in records_of_family(store, kind_family(DEAD), scope):
        if not is_dead_letter(record):
            continue
        try:
            found.letters.append(dead_letter_of(record))
        except OncewardError:
            found.unreadable.append(record.id.hex()[:12])
        if limit is not None and len(found.letters) >= limit:
            break
    return found


def share_before(id: bytes) -> float:
    """Which share of all ids comes before this one."""
    return int.from_bytes(id[:8], "big") / 2**64


def _pages(store: Store, after: bytes, selection: Selection) -> Iterator[Record]:
    while page := store.scan(after, PAGE, selection):
        for record in page:
            if selection.before and record.id >= selection.before:
                return  # A store that leaves the bound out of account.
            if record.kind not in MARKS:
                yield record
        after = page[-1].id
