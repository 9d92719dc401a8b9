# Made from ledger_async.py by `make halves`: change that file, not this one.
"""
`Ledger`: a thin shell over `flows`.

    with Ledger.open("sqlite:///agent.db") as ledger:
        ledger.run(ledger.flows.emit(...))
"""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

from onceward._core.sealing import Seal, make_sealer
from onceward.runtime.environment import REAL, Environment
from onceward.service.ledger.flows import LedgerFlows
from onceward.service.ledger.keyed_transaction import LedgerTables
from onceward.service.ledger.ledger_database import DEFAULT_LEDGER_TERMS, RETAIN_SECONDS, open_ledger_tables
from onceward.service.ledger.ledger_entries import LedgerTerms
from onceward.stores.tables import Flow, TablesRunner

T = TypeVar("T")


class Ledger:
    """A ledger, beside the records of a store. Safe for threads."""

    def __init__(self, tables: LedgerTables, terms: LedgerTerms) -> None:
        self.flows = LedgerFlows(terms)
        self.tables = tables
        self._tables = TablesRunner.over(tables, "ledger")

    @classmethod
    def open(
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
        tables = open_ledger_tables(url, terms, environment, create=create, retain=retain, sealer=sealer)
        return cls(tables, terms)

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return self._tables.run(flow)

    def close(self) -> None:
        """Let go of files and connections."""
        self._tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
