# Made from shells_async.py by `make halves`: change that file, not this one.
"""
`Ledger`: a thin shell over `flows`.

    with Ledger.open("sqlite:///agent.db") as ledger:
        ledger.run(ledger.flows.emit(...))
"""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

from onceward.environment import REAL, Environment
from onceward.service.ledger.booking import Terms
from onceward.service.ledger.flows import Flows
from onceward.service.ledger.keyed import Tables
from onceward.service.ledger.opening import RETAIN_SECONDS, USUAL, open_ledger
from onceward.tables import Blocking, Flow

T = TypeVar("T")


class Ledger:
    """A ledger, beside the records of a store. Safe for threads."""

    def __init__(self, tables: Tables, terms: Terms) -> None:
        self.flows = Flows(terms)
        self._tables = Blocking.over(tables, "ledger")

    @classmethod
    def open(
        cls,
        url: str,
        terms: Terms = USUAL,
        *,
        create: bool = False,
        retain: float = RETAIN_SECONDS,
        environment: Environment = REAL,
    ) -> Self:
        """Open the ledger that belongs to a store; with `create`, make it."""
        tables = open_ledger(url, terms, environment, create=create, retain=retain)
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
