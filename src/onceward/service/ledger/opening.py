"""
Where a ledger is: beside the records that a store's URL names, and with the records of its own keys.

    sqlite:///agent.db          agent.ledger.db, in the same folder: entries, and the records of their keys
    postgresql://.../shop       the same database, and its records
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

from onceward import ConfigurationError, Gate
from onceward.environment import REAL, Environment
from onceward.service.ledger.booking import Terms
from onceward.service.ledger.flows import Flows
from onceward.service.ledger.keyed import Tables
from onceward.service.ledger.verifying import WAYS
from onceward.stores import open_store, tables_url
from onceward.tables import Awaiting, Flow, Schema, open_tables
from onceward.tables.opening import file_beside

T = TypeVar("T")

SCHEMA = Schema("ledger", "onceward.service.ledger", 1, "`onceward serve` makes them when it starts")
TABLES = {
    "onceward_ledger_entries": "id",
    "onceward_ledger_checkpoints": "id",
    "onceward_ledger_customers": "scope, customer",
}
"""What there is by scope, with the columns of its key; what refers to another comes before it."""
USUAL = Terms()
RETAIN_SECONDS = 86_400.0


class Ledger:
    """A ledger, for blocking callers: `ledger.run(ledger.flows.emit(...))`. Safe for threads."""

    def __init__(self, tables: Tables, terms: Terms) -> None:
        self.tables = tables
        self.flows = Flows(terms)

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
        check_terms(terms)
        driver = open_tables(url, SCHEMA, environment, create=create)
        try:
            store = open_store(records_of(url), environment=environment)
            gate = Gate(store, scope="live:ledger", environment=environment, retain=retain)
            gate.records.get("ready")  # Makes the records' tables, or says why it cannot.
        except BaseException:
            driver.close()
            raise
        return cls(Tables(driver, gate), terms)

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return self.tables.run(flow)

    def close(self) -> None:
        """Let go of files and connections."""
        self.tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLedger:
    """Same as `Ledger`, but awaits."""

    def __init__(self, ledger: Ledger) -> None:
        self.flows = ledger.flows
        self._tables = Awaiting(ledger.tables, "ledger")

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
        """Same as `Ledger.open`, but awaits."""
        return cls(
            await asyncio.to_thread(Ledger.open, url, terms, create=create, retain=retain, environment=environment)
        )

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return await self._tables.run(flow)

    async def close(self) -> None:
        """Let go of files and connections, when the last call has ended."""
        await self._tables.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def records_of(url: str) -> str:
    """The store of the records that commit with the ledger's rows: it must be the ledger's own database."""
    url = tables_url(url) or url
    if urlsplit(url).scheme.lower() != "sqlite":
        return url
    from onceward.stores._sqlite_file import parse

    path, _ = parse(url)
    query = urlsplit(url).query
    return f"sqlite:///{quote(str(file_beside(path, SCHEMA.name)))}" + (f"?{query}" if query else "")


def check_terms(terms: Terms) -> Terms:
    """Give the terms back if they can work."""
    choices: dict[str, tuple[str, ...]] = {"late": ("refuse", "next"), "customers": ("any", "known"), "verify": WAYS}
    for name, allowed in choices.items():
        found: Any = getattr(terms, name)
        if found not in allowed:
            raise ConfigurationError(f"a ledger's {name} is one of {', '.join(allowed)}, not {str(found)[:40]!r}")
    return terms
