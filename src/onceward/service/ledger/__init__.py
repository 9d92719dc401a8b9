"""
The balance ledger: deltas that are booked once, periods that are closed once, and a chain that shows every change.

`LedgerApp` is the HTTP side, `Ledger` and `AsyncLedger` what is behind it. They are imported when they are asked for:
a client needs the ledger's errors and amounts only, and none of the libraries of a service.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceward.service.ledger.app import LedgerApp
    from onceward.service.ledger.flows import LedgerScope
    from onceward.service.ledger.ledger import Ledger
    from onceward.service.ledger.ledger_async import AsyncLedger
    from onceward.service.ledger.ledger_entries import LedgerTerms

__all__ = ["AsyncLedger", "Ledger", "LedgerApp", "LedgerScope", "LedgerTerms"]

_HOMES = {
    "AsyncLedger": "ledger_async",
    "Ledger": "ledger",
    "LedgerApp": "app",
    "LedgerScope": "flows",
    "LedgerTerms": "ledger_entries",
}

if not TYPE_CHECKING:  # A type checker would take any name for one that this function finds.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
