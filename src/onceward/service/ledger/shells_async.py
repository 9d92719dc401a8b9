# blocking half: shells.py
"""
`AsyncLedger`: a thin shell over `flows`.

    async with await AsyncLedger.open("sqlite:///agent.db") as ledger:
        await ledger.run(ledger.flows.emit(...))
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar

from onceward.environment import REAL, Environment
from onceward.service.ledger.booking import Terms
from onceward.service.ledger.flows import Flows
from onceward.service.ledger.keyed import Tables
from onceward.service.ledger.opening import RETAIN_SECONDS, USUAL, open_ledger
from onceward.tables import Awaiting, Flow

T = TypeVar("T")


class AsyncLedger:
    """A ledger, beside the records of a store. Safe for threads."""

    def __init__(self, tables: Tables, terms: Terms) -> None:
        self.flows = Flows(terms)
        self._tables = Awaiting.over(tables, "ledger")

    @classmethod
    async def open(
        cls,
        url: str,
        terms: Terms = USUAL,
        *,
        create: bool = False,
        retain: float = RETAIN_SECONDS,
        environment: Environment = REAL,
    ) -> Self:
        """Open the ledger that belongs to a store; with `create`, make it."""
        tables = await asyncio.to_thread(open_ledger, url, terms, environment, create=create, retain=retain)
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
