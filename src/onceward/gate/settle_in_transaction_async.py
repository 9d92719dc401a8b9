# blocking half: settle_in_transaction.py; arun=run
"""
Settles an operation in the transaction that its function has open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceward._core.colour import AWAITS
from onceward._core.errors import ConfigurationError
from onceward._core.flow import Begin, Commit, Effect, Put, RandomBytes, Rollback
from onceward._core.settle_inside_flow import settle_inside
from onceward.adapters._transaction_async import join_async
from onceward.runtime.flow_driver import arun

if TYPE_CHECKING:
    from onceward.gate.transaction_settler import GateTransactionSettler


async def settle_in_transaction_async(inside: GateTransactionSettler, connection: Any, value: Any) -> None:
    """Put it there, and note what became of that."""
    with inside.noting():
        inside.check(connection, awaits=AWAITS)
        joined = join_async(connection, inside.store)

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
        if AWAITS:
            await arun(flow, instant, perform)
        else:
            run(flow, perform)  # noqa: F821
        inside.settled(joined)
