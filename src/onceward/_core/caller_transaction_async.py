# blocking half: caller_transaction.py
"""
The caller's connection, as atomic mode needs it: what an adapter for a database library owes.
"""

from __future__ import annotations

from typing import Protocol

from onceward._core.record import PutResult, Record, Write


class AsyncCallerTransaction(Protocol):
    """
    The caller's connection, as atomic mode needs it. Errors are ours, and never a driver's own, but for what the
    caller's own constraints say when it commits.

    `RetryTransaction` is for what a database refuses to go on with (a deadlock, a snapshot that is too old),
    `StoreUnavailable` for a server that is away, `ConfigurationError` for a connection that cannot be used.

    An attribute `nested` may say, after `begin`, that the caller was in a savepoint of its own: what such a savepoint
    undoes is not committed with the record, and `settle_inside` then leaves doubt where it would have released.
    """

    async def begin(self) -> bool:
        """
        Open a transaction (True) or, inside one, a savepoint (False).

        The first `begin` of a call is followed by put, extend or load, before the caller's function runs: so an adapter
        may send it along with that.
        """

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        """
        Put a record inside the transaction, with the rules of `AsyncStore.put`.

        Where another transaction holds the row, wait for its end and answer what stands there then.
        """

    async def load(self, id: bytes) -> Record | None:
        """Read one record inside the transaction."""

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Lengthen the life of a family of records inside the transaction; says how many."""

    async def commit(self) -> None:
        """End the innermost thing that `begin` opened, keeping it; `IllegalMove` if somebody else had ended it."""

    async def rollback(self) -> bool:
        """End the innermost thing that `begin` opened, undoing it; False if somebody else had ended it already."""

    def is_over(self) -> bool:
        """Whether the caller's own transaction has ended, seen from any thread."""


class AsyncFinishing:
    """
    What is joined, and can put and end in one round trip: for our own adapters, which say so by being of this class.
    A method that happens to be called so is not looked for.
    """

    async def finish(self, write: Write, expect: bytes | None) -> PutResult:
        """Put and commit; if it does not land, roll back."""
        raise NotImplementedError
