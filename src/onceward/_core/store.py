# Made from store_async.py by `make halves`: change that file, not this one.
"""
What every store must do: eight methods over one record per id, changed by compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onceward._core.record import PutResult, Record, Write
from onceward._core.record_types import PurgeResult, Selection


class Store(Protocol):
    """
    A register of records. Errors are `StoreUnavailable` and its children; never a driver's own.

    What it can do besides these methods, it says with an attribute `capabilities`, a `Capabilities`; one without has
    none. A put must not be undone, or left half done, by cancelling or interrupting its caller.
    """

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """
        Put `write` where a record of version `expect` stands (None: where none stands).

        Atomic and, once it returns, durable. Answers whether it landed and what stands there now, in one round
        trip. A put that is sent again after its answer was lost does not land twice: what stands there then has
        the write's own version, and the caller recognises it. With `expect` given and no row there: not landed,
        and `record` is None.

        A write whose fence does not rise follows the record that it replaces: what a claim fixes (kind, scope, key,
        operation, family, guarantee, fingerprint, fence, attempt, first_at) is what stands there, so a store need not
        write that again. One that rises may change every field.
        """

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """
        Put `write` where nothing stands, and where none of the records `marks` stands, either.

        For a claim that the store forgot (a failover, a restored backup) while it was held: its ending is put back,
        but never what was erased. A mark whose time to be forgotten has come counts as absent. Writing and looking for
        the marks are one atomic step: a mark that has landed before this lands keeps it from landing. Otherwise as
        `put`. If a mark is in the way: not landed, and `record` is what stands there, or None. Marks begin with the
        same half-byte as the write's id, so that a store that is spread by it finds them beside the record.
        """

    def erase(self, ids: Sequence[bytes]) -> int:
        """
        Delete these records, whatever their state; says how many there were.

        As with a purge, no later claim of the same key can get a fence that was deleted.
        """

    def load(self, id: bytes) -> Record | None:
        """Read one record."""

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """
        Give every settled record of a family that still replays this long to live (microseconds); says how many.

        Lives are only ever lengthened, and what has already expired stays expired.
        """

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """At most `limit` records with ids greater than `after`, in order of id."""

    def purge(self, limit: int) -> PurgeResult:
        """
        Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either.

        Claimed and in-doubt records are never touched. The greatest fence deleted is remembered, so that no
        later claim of the same key can get it again, whatever the clock does.
        """

    def close(self) -> None:
        """Let go of files and connections. Closing twice is fine."""
