# Made from sealed_transaction_async.py by `make halves`: change that file, not this one.
"""
The caller's transaction, with records whose values are sealed.
"""

from __future__ import annotations

from onceward._core.caller_transaction import CallerTransaction, Finishing
from onceward._core.capabilities import nested
from onceward._core.record_types import PutResult, Record, Write
from onceward._core.sealing import Sealer


class SealedTransaction:
    """Seals what is put into a caller's transaction, and opens what is read there."""

    def __init__(self, joined: CallerTransaction, sealer: Sealer) -> None:
        self._joined = joined
        self._sealer = sealer

    def begin(self) -> bool:
        """Open or join the caller's transaction."""
        return self._joined.begin()

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Put a record whose values are sealed."""
        return self._sealer.opened_put(self._joined.put(self._sealer.sealed(write), expect), write)

    def load(self, id: bytes) -> Record | None:
        """Read one record, opened."""
        found = self._joined.load(id)
        return None if found is None else self._sealer.opened(found)

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Lengthen the life of a family of records inside the transaction."""
        return self._joined.extend(family, replay, forget)

    def commit(self) -> None:
        """Commit, or release the savepoint."""
        self._joined.commit()

    def rollback(self) -> bool:
        """Roll back what `begin` opened."""
        return self._joined.rollback()

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return self._joined.is_over()

    @property
    def nested(self) -> bool:
        """Whether it is inside a savepoint of the caller's."""
        return nested(self._joined)


class SealedFinishing(SealedTransaction, Finishing):
    """The same, where put and commit are one round trip."""

    def __init__(self, joined: CallerTransaction, sealer: Sealer, finishing: Finishing) -> None:
        super().__init__(joined, sealer)
        self._finishing = finishing

    def finish(self, write: Write, expect: bytes | None) -> PutResult:
        """Put and commit; if it does not land, roll back."""
        return self._sealer.opened_put(self._finishing.finish(self._sealer.sealed(write), expect), write)


def seal_transaction(joined: CallerTransaction, sealer: Sealer) -> CallerTransaction:
    """What was joined, with records whose values are sealed."""
    if isinstance(joined, Finishing):
        return SealedFinishing(joined, sealer, joined)
    return SealedTransaction(joined, sealer)
