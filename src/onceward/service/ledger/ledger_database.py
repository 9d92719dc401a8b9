"""
Where a ledger is: beside the records that a store's URL names, and with the records of its own keys.

    sqlite:///agent.db          agent.ledger.db, in the same folder: entries, and the records of their keys
    postgresql://.../shop       the same database, and its records
"""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from onceward._core.errors import ConfigurationError
from onceward._core.sealing import Sealer
from onceward.gate import Gate
from onceward.runtime.environment import Environment
from onceward.service.ledger.keyed_transaction import LedgerTables
from onceward.service.ledger.ledger_entries import LedgerTerms
from onceward.service.ledger.verification import VERIFY_MODES
from onceward.stores import open_store, tables_url
from onceward.stores.tables import Schema, open_tables
from onceward.stores.tables.location import file_beside

T = TypeVar("T")

SCHEMA = Schema("ledger", "onceward.service.ledger", 1, "`onceward serve` makes them when it starts")
TABLES = {
    "onceward_ledger_entries": "id",
    "onceward_ledger_checkpoints": "id",
    "onceward_ledger_customers": "scope, customer",
}
"""What there is by scope, with the columns of its key; what refers to another comes before it."""
DEFAULT_LEDGER_TERMS = LedgerTerms()
RETAIN_SECONDS = 86_400.0


def open_ledger_tables(
    url: str,
    terms: LedgerTerms,
    environment: Environment,
    *,
    create: bool,
    retain: float,
    sealer: Sealer | None = None,
) -> LedgerTables:
    """Open the tables of the ledger that belongs to a store; with `create`, make them."""
    check_terms(terms)
    driver = open_tables(url, SCHEMA, environment, create=create)
    try:
        store = open_store(records_url(url), environment=environment)
        gate = Gate(
            store,
            scope="live:ledger",
            environment=environment,
            retain=retain,
            seal=None if sealer is None else sealer.seal,
            sealed_only=sealer is not None and sealer.sealed_only,
        )
        gate.records.get("ready")  # Makes the records' tables, or says why it cannot.
    except BaseException:
        driver.close()
        raise
    return LedgerTables(driver, gate)


def records_url(url: str) -> str:
    """The store of the records that commit with the ledger's rows: it must be the ledger's own database."""
    url = tables_url(url) or url
    if urlsplit(url).scheme.lower() != "sqlite":
        return url
    from onceward.stores._sqlite_file import parse

    path, _ = parse(url)
    query = urlsplit(url).query
    return f"sqlite:///{quote(str(file_beside(path, SCHEMA.name)))}" + (f"?{query}" if query else "")


def check_terms(terms: LedgerTerms) -> LedgerTerms:
    """Give the terms back if they can work."""
    choices: dict[str, tuple[str, ...]] = {
        "late": ("refuse", "next"),
        "customers": ("any", "known"),
        "verify": VERIFY_MODES,
    }
    for name, allowed in choices.items():
        found: Any = getattr(terms, name)
        if found not in allowed:
            raise ConfigurationError(f"a ledger's {name} must be one of {', '.join(allowed)}, not {str(found)[:40]!r}")
    return terms
