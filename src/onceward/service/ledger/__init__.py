"""
The balance ledger: deltas that are booked once, periods that are closed once, and a chain that shows every change.

`app` has the endpoints, `flows` everything that a ledger can do, `ledger_entries` and `checkpoints` the rules over its
tables; `Ledger` and `AsyncLedger` run the flows. May import `protocol`, `gate`, `access` and `web`, and no other app.
Start with `app.py`, then `flows.py`. Names are imported when they are used: the command line needs no web framework.
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
