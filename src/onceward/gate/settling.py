# Made from settling_async.py by `make halves`: change that file, not this one.
"""
Put the answer of an operation into the transaction that its function has open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceward._core.errors import ConfigurationError
from onceward._core.flow import Begin, Chance, Commit, Effect, Put, Rollback
from onceward._core.inside import settle_inside
from onceward.drive import run
from onceward.gate.joining import join

if TYPE_CHECKING:
    from onceward.gate.inside import SettlesInside


def settle(inside: SettlesInside, connection: Any, value: Any) -> None:
    """Put it there, and note what became of that."""
    with inside.noting():
        inside.check(connection, awaits=False)
        joined = join(connection, inside.store)

        def instant(effect: Effect) -> Any:
            if isinstance(effect, Chance):
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

        flow = settle_inside(inside.ask, inside.operation, value)
        run(flow, perform)
        inside.settled(joined)
