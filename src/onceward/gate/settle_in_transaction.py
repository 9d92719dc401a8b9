# Made from settle_in_transaction_async.py by `make halves`: change that file, not this one.
"""
Settles an operation in the transaction that its function has open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceward._core.errors import ConfigurationError
from onceward._core.flow import Begin, Commit, Effect, Put, RandomBytes, Rollback
from onceward._core.settle_inside_flow import settle_inside
from onceward.adapters._transaction import join
from onceward.runtime.flow_driver import run

if TYPE_CHECKING:
    from onceward.gate.transaction_settler import GateTransactionSettler


def settle_in_transaction(inside: GateTransactionSettler, connection: Any, value: Any) -> None:
    """Put it there, and note what became of that."""
    with inside.noting():
        inside.check(connection, awaits=False)
        joined = join(connection, inside.store)

        def instant(effect: Effect) -> Any:
            if isinstance(effect, RandomBytes):
                return inside.environment.random(48)
            raise ConfigurationError(f"settling inside a transaction does not need {type(effect).__name__}")

        def perform(effect: Effect) -> Any:
            match effect:
                case Put():
                    return joined.put(effect.write, effect.expect)
                case Begin():
                    return joined.begin()
                case Commit():
                    return joined.commit()
                case Rollback():
                    return joined.rollback()
            return instant(effect)

        flow = settle_inside(inside.request, inside.operation, value)
        run(flow, perform)
        inside.settled(joined)
