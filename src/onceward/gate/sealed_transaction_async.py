# blocking half: sealed_transaction.py
"""
The caller's transaction, with records whose values are sealed.
"""

from __future__ import annotations

from onceward._core.caller_transaction_async import AsyncCallerTransaction, AsyncFinishing
from onceward._core.capabilities import nested
from onceward._core.record_types import PutResult, Record, Write
from onceward._core.sealing import Sealer


class AsyncSealedTransaction:
    """Seals what is put into a caller's transaction, and opens what is read there."""

    def __init__(self, joined: AsyncCallerTransaction, sealer: Sealer) -> None:
        self._joined = joined
        self._sealer = sealer

    async def begin(self) -> bool:
        """Open or join the caller's transaction."""
        return await self._joined.begin()

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Put a record whose values are sealed."""
        return self._sealer.opened_put(await self._joined.put(self._sealer.sealed(write), expect), write)

    async def load(self, id: bytes) -> Record | None:
        """Read one record, opened."""
        found = await self._joined.load(id)
        return None if found is None else self._sealer.opened(found)

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Lengthen the life of a family of records inside the transaction."""
        return await self._joined.extend(family, replay, forget)

    async def commit(self) -> None:
        """Commit, or release the savepoint."""
        await self._joined.commit()

    async def rollback(self) -> bool:
        """Roll back what `begin` opened."""
        return await self._joined.rollback()

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return self._joined.is_over()

    @property
    def nested(self) -> bool:
        """Whether it is inside a savepoint of the caller's."""
        return nested(self._joined)


class AsyncSealedFinishing(AsyncSealedTransaction, AsyncFinishing):
    """The same, where put and commit are one round trip."""

    def __init__(self, joined: AsyncCallerTransaction, sealer: Sealer, finishing: AsyncFinishing) -> None:
        super().__init__(joined, sealer)
        self._finishing = finishing

    async def finish(self, write: Write, expect: bytes | None) -> PutResult:
        """Put and commit; if it does not land, roll back."""
        return self._sealer.opened_put(await self._finishing.finish(self._sealer.sealed(write), expect), write)


def seal_transaction_async(joined: AsyncCallerTransaction, sealer: Sealer) -> AsyncCallerTransaction:
    """What was joined, with records whose values are sealed."""
    if isinstance(joined, AsyncFinishing):
        return AsyncSealedFinishing(joined, sealer, joined)
    return AsyncSealedTransaction(joined, sealer)
