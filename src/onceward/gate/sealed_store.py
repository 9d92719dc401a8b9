# Made from sealed_store_async.py by `make halves`: change that file, not this one.
"""
A store in front of another: what goes down is sealed, what comes up is opened. The store behind it knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceward._core.capabilities import Capabilities
from onceward._core.record_types import PurgeResult, PutResult, Record, Selection, Write
from onceward._core.sealing import Sealer
from onceward._core.store_protocols import Store
from onceward.gate.sealed_capabilities import sealed_capabilities


class SealedStore:
    """Seals results and failures on their way into a store, and opens them on their way out."""

    def __init__(self, store: Store, sealer: Sealer) -> None:
        self._store = store
        self.sealer = sealer

    @property
    def capabilities(self) -> Capabilities:
        """What the store behind it can do."""
        return sealed_capabilities(self._store, self.sealer)

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Put a record whose values are sealed."""
        return self.sealer.opened_put(self._store.put(self.sealer.sealed(write), expect), write)

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """Put back a record whose values are sealed."""
        return self.sealer.opened_put(self._store.put_back(self.sealer.sealed(write), marks), write)

    def erase(self, ids: Sequence[bytes]) -> int:
        """Delete records; how many there were."""
        return self._store.erase(ids)

    def load(self, id: bytes) -> Record | None:
        """Read one record, opened."""
        found = self._store.load(id)
        return None if found is None else self.sealer.opened(found)

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Lengthen the life of a family of records."""
        return self._store.extend(family, replay, forget)

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """One page of records, opened."""
        return [self.sealer.opened(one) for one in self._store.scan(after, limit, selection)]

    def purge(self, limit: int) -> PurgeResult:
        """Delete what may be forgotten and shrink what has expired."""
        return self._store.purge(limit)

    def close(self) -> None:
        """Close the store behind it."""
        self._store.close()
