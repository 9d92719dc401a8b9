"""
The balance ledger: deltas that are booked once, periods that are closed once, and a chain that shows every change.

`LedgerApp` is the HTTP side, `Ledger` and `AsyncLedger` what is behind it. They are imported when they are asked for:
a client needs the ledger's errors and amounts only, and none of the libraries of a service.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceward.service.ledger.app import LedgerApp
    from onceward.service.ledger.booking import Terms
    from onceward.service.ledger.flows import Place
    from onceward.service.ledger.shells import Ledger
    from onceward.service.ledger.shells_async import AsyncLedger

__all__ = ["AsyncLedger", "Ledger", "LedgerApp", "Place", "Terms"]

_HOMES = {
    "AsyncLedger": "shells_async",
    "Ledger": "shells",
    "LedgerApp": "app",
    "Place": "flows",
    "Terms": "booking",
}

if not TYPE_CHECKING:  # A type checker would take any name for one that this function finds.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
