"""
The balance ledger: deltas that are booked once, periods that are closed once, and a chain that shows every change.

`LedgerApp` is the HTTP side, `Ledger` and `AsyncLedger` what is behind it.
"""

from onceward.service.ledger.app import LedgerApp
from onceward.service.ledger.booking import Terms
from onceward.service.ledger.flows import Place
from onceward.service.ledger.opening import AsyncLedger, Ledger

__all__ = ["AsyncLedger", "Ledger", "LedgerApp", "Place", "Terms"]
