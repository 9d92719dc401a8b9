"""
What a sealed store can do besides its eight methods: what the store behind it can, with values sealed there, too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from onceward._core.caller_transaction import CallerTransaction
from onceward._core.caller_transaction_async import AsyncCallerTransaction
from onceward._core.capabilities import Capabilities, OwnTables, TransactionJoiner, capabilities_of
from onceward._core.sealing import Sealer
from onceward.gate.sealed_transaction import seal_transaction
from onceward.gate.sealed_transaction_async import seal_transaction_async


class SealedJoiner:
    """Joins a caller's transaction as the store behind does, and seals what is put there."""

    def __init__(self, joiner: TransactionJoiner, sealer: Sealer) -> None:
        self._joiner = joiner
        self._sealer = sealer

    def join(self, connection: Any) -> CallerTransaction:
        """The caller's connection, for a function that blocks."""
        return seal_transaction(self._joiner.join(connection), self._sealer)

    def join_async(self, connection: Any) -> AsyncCallerTransaction:
        """The caller's connection, for a function that awaits."""
        return seal_transaction_async(self._joiner.join_async(connection), self._sealer)


def sealed_capabilities(store: object, sealer: Sealer) -> Capabilities:
    """
    The capabilities of a store that seals. Its quick looks are left out: what they show can only be opened by who knows
    the scope (`CallFactory`).
    """
    behind = capabilities_of(store)
    joins = behind.joins
    if isinstance(joins, OwnTables):
        joins = replace(
            joins,
            around=partial(seal_transaction, sealer=sealer),
            around_async=partial(seal_transaction_async, sealer=sealer),
        )
    elif joins is not None:
        joins = SealedJoiner(joins, sealer)
    return replace(behind, peek=None, look=None, joins=joins)
