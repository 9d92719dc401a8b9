# blocking half: ledger.py
"""
`AsyncLedger`: a thin shell over `flows`.

    async with await AsyncLedger.open("sqlite:///agent.db") as ledger:
        await ledger.run(ledger.flows.emit(...))
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar

from onceward._core.sealing import Seal, make_sealer
from onceward.runtime.environment import REAL, Environment
from onceward.service.ledger.flows import LedgerFlows
from onceward.service.ledger.keyed_transaction import LedgerTables
from onceward.service.ledger.ledger_database import DEFAULT_LEDGER_TERMS, RETAIN_SECONDS, open_ledger_tables
from onceward.service.ledger.ledger_entries import LedgerTerms
from onceward.stores.tables import AsyncTablesRunner, Flow

T = TypeVar("T")


class AsyncLedger:
    """A ledger, beside the records of a store. Safe for threads."""

    def __init__(self, tables: LedgerTables, terms: LedgerTerms) -> None:
        self.flows = LedgerFlows(terms)
        self.tables = tables
        self._tables = AsyncTablesRunner.over(tables, "ledger")

    @classmethod
    async def open(
        cls,
        url: str,
        terms: LedgerTerms = DEFAULT_LEDGER_TERMS,
        *,
        create: bool = False,
        retain: float = RETAIN_SECONDS,
        seal: Seal | None = None,
        sealed_only: bool = False,
        environment: Environment = REAL,
    ) -> Self:
        """Open the ledger that belongs to a store; with `create`, make it. `seal` seals responses that are stored."""
        sealer = make_sealer(seal, sealed_only=sealed_only)
        tables = await asyncio.to_thread(
            open_ledger_tables, url, terms, environment, create=create, retain=retain, sealer=sealer
        )
        return cls(tables, terms)

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return await self._tables.run(flow)

    async def close(self) -> None:
        """Let go of files and connections."""
        await self._tables.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
