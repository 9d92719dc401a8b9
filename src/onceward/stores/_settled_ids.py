"""
`SettledIds`: ids of records that this process has seen settled lately.

Whoever asks for one of them most probably wants its answer, so it is looked for before it is claimed: a look costs the
server far less than an attempt to write. It is a speed-up and guards nothing. A look that finds no row is followed by
the claim, and what it does find is what a claim would have been shown.
"""

from __future__ import annotations

from onceward._core.record import PutResult, State

GENERATION = 5_000
"""Ids until the older half is forgotten: about a megabyte for both halves."""
_SETTLED = State.SETTLED.value


class SettledIds:
    """The ids, in two generations: a lookup is a lookup in a set or two, and forgetting is dropping a set."""

    __slots__ = ("_older", "_younger")

    def __init__(self) -> None:
        self._younger: set[bytes] = set()
        self._older: set[bytes] = set()

    def __contains__(self, id: bytes) -> bool:
        return id in self._younger or id in self._older

    def note(self, id: bytes, result: PutResult) -> None:
        """Remember what a put was answered with; forget what is no longer so."""
        record = result.record
        if record is not None and record.state == _SETTLED:
            if id not in self._younger:
                self.add(id)
        elif self._younger or self._older:
            self.forget(id)

    def add(self, id: bytes) -> None:
        """It is settled."""
        younger = self._younger
        if len(younger) >= GENERATION and id not in younger:
            self._older, self._younger = younger, {id}
        else:
            younger.add(id)

    def forget(self, id: bytes) -> None:
        """It is not there any more."""
        self._younger.discard(id)
        self._older.discard(id)
