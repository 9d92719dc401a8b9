"""
Onceward: send it as many times as you like; it happens once, and everyone learns the same answer.

At-least-once delivery, one effect. `Gate` (and `AsyncGate`) is where operations go through; see the README.

These are the names that most programs need. Each is imported from its package when it is first used, so that
`import onceward` costs next to nothing. The rest is where it belongs:

    onceward.errors      every error                       onceward.gate        what a gate takes and gives
    onceward.keys        making and checking keys          onceward.retry       policies, breakers, budgets
    onceward.verdicts    what a failure means              onceward.adapters    rows in your own transaction
    onceward.http        HTTP clients and servers          onceward.messaging   emitter, outbox, inbox, webhooks
    onceward.stores      where records are kept            onceward.journal     what was tried, for people to read
    onceward.client      a client of `onceward serve`      onceward.testing     tools for your tests
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceward.adapters import Update, insert_once, insert_once_async
    from onceward.client import AsyncClient, Client
    from onceward.errors import (
        BudgetExhausted,
        CircuitOpen,
        ConfigurationError,
        DeadlineExceeded,
        Expired,
        InDoubt,
        InFlight,
        KeyMissing,
        KeyReused,
        NotReplayable,
        OncewardError,
        OutcomeUnknown,
        OwnershipLost,
        StoreUnavailable,
    )
    from onceward.gate import NOT_FOUND, AsyncGate, Found, Gate, Operation, Outcome, Reply, current_operation, needs_key
    from onceward.keys import derive, mint, recipe, tool_call_key
    from onceward.messaging.emitter import AsyncEmitter, Emitter
    from onceward.retry import Breaker, Budget, Retry, deadline, stop_of

__version__ = "0.1.0"

__all__ = [
    "NOT_FOUND",
    "AsyncClient",
    "AsyncEmitter",
    "AsyncGate",
    "Breaker",
    "Budget",
    "BudgetExhausted",
    "CircuitOpen",
    "Client",
    "ConfigurationError",
    "DeadlineExceeded",
    "Emitter",
    "Expired",
    "Found",
    "Gate",
    "InDoubt",
    "InFlight",
    "KeyMissing",
    "KeyReused",
    "NotReplayable",
    "OncewardError",
    "Operation",
    "Outcome",
    "OutcomeUnknown",
    "OwnershipLost",
    "Reply",
    "Retry",
    "StoreUnavailable",
    "Update",
    "current_operation",
    "deadline",
    "derive",
    "insert_once",
    "insert_once_async",
    "mint",
    "needs_key",
    "recipe",
    "stop_of",
    "tool_call_key",
]

_HOMES = {
    "onceward.adapters": (
        "Update",
        "insert_once",
        "insert_once_async",
    ),
    "onceward.client": (
        "AsyncClient",
        "Client",
    ),
    "onceward.errors": (
        "BudgetExhausted",
        "CircuitOpen",
        "ConfigurationError",
        "DeadlineExceeded",
        "Expired",
        "InDoubt",
        "InFlight",
        "KeyMissing",
        "KeyReused",
        "NotReplayable",
        "OncewardError",
        "OutcomeUnknown",
        "OwnershipLost",
        "StoreUnavailable",
    ),
    "onceward.gate": (
        "NOT_FOUND",
        "AsyncGate",
        "Found",
        "Gate",
        "Operation",
        "Outcome",
        "Reply",
        "current_operation",
        "needs_key",
    ),
    "onceward.keys": (
        "derive",
        "mint",
        "recipe",
        "tool_call_key",
    ),
    "onceward.messaging.emitter": (
        "AsyncEmitter",
        "Emitter",
    ),
    "onceward.retry": (
        "Breaker",
        "Budget",
        "Retry",
        "deadline",
        "stop_of",
    ),
}
"""Where each name is."""

if not TYPE_CHECKING:  # A type checker would take any name for one that this function finds.
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        home = _HOME_OF.get(name)
        if home is None and name[:1].isupper():
            # Every error calls itself `onceward.NAME`, so that what is stored or pickled finds it here.
            errors = import_module("onceward.errors")
            home = "onceward.errors" if name in errors.__all__ else None
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(home), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
