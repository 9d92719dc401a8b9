"""
Performs `operation.settle_inside(connection, value)`, for functions of either colour.

A function under an awaiting gate may block all the same, on a thread of its own (a framework's worker threads, Django's
views), so both ways are there whatever the gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward._core.capabilities import capabilities_of, nested
from onceward._core.errors import ConfigurationError
from onceward._core.operation import Operation, TransactionSettler
from onceward._core.operation_flow import OperationRequest
from onceward.gate.settle_in_transaction import settle_in_transaction
from onceward.gate.settle_in_transaction_async import settle_in_transaction_async
from onceward.runtime.environment import Environment


class GateTransactionSettler(TransactionSettler):
    """How the function of one operation settles it."""

    __slots__ = ("_awaits", "environment", "operation", "request", "store")

    def __init__(
        self, request: OperationRequest, operation: Operation, store: object, environment: Environment, *, awaits: bool
    ) -> None:
        super().__init__()
        self.request = request
        self.operation = operation
        self.store = store
        self.environment = environment
        self._awaits = awaits

    def settle(self, connection: Any, value: Any) -> None:
        """Settle the operation in the transaction that is open on a blocking connection."""
        settle_in_transaction(self, connection, value)

    async def settle_async(self, connection: Any, value: Any) -> None:
        """Settle the operation in the transaction that is open on an awaiting connection."""
        await settle_in_transaction_async(self, connection, value)

    def check(self, connection: Any, *, awaits: bool) -> None:
        """Refuse a connection, or a gate, of the other colour."""
        if awaits and not self._awaits:
            raise ConfigurationError("this gate blocks; use operation.settle_inside(connection, value), without await")
        if not awaits and type(connection).__name__.lower().startswith("async"):
            raise ConfigurationError(
                f"{type(connection).__name__} is async; use await operation.settle_inside_async(connection, value)"
            )

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Where rows and record cannot commit together, the rows may be there already."""
        try:
            yield
        except ConfigurationError:
            self.astray = True
            raise

    def settled(self, joined: object) -> None:
        """The answer is in the transaction of what was joined."""
        self.nested = nested(joined)
        self.called = True


async def identify_store(store: object) -> None:
    """Let an awaiting store find out which database it is in: a function that blocks could not ask it."""
    identify = capabilities_of(store).identify
    if identify is not None:
        await identify()
