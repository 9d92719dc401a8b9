"""
`operation.settle_inside(connection, value)`: what performs it, for functions of either colour.

A function under an awaiting gate may block all the same, on a thread of its own (a framework's worker threads, Django's
views), so both ways are there whatever the gate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from onceward._core.capabilities import capabilities_of
from onceward._core.engine import Ask
from onceward._core.errors import ConfigurationError
from onceward._core.flow import Begin, Chance, Commit, Effect, Put, Rollback
from onceward._core.inside import settle_inside
from onceward._core.operation import Inside, Operation
from onceward.drive import arun, run
from onceward.environment import Environment
from onceward.gate.joining import AsyncJoined, Joined, join, join_async


class SettlesInside(Inside):
    """How the function of one operation settles it."""

    __slots__ = ("_ask", "_awaits", "_environment", "_operation", "_store")

    def __init__(
        self, ask: Ask, operation: Operation, store: object, environment: Environment, *, awaits: bool
    ) -> None:
        super().__init__()
        self._ask = ask
        self._operation = operation
        self._store = store
        self._environment = environment
        self._awaits = awaits

    def settle(self, connection: Any, value: Any) -> None:
        """See `Operation.settle_inside`."""
        with self._noting():
            if type(connection).__name__.lower().startswith("async"):
                raise ConfigurationError(
                    f"{type(connection).__name__} is awaited: await operation.settle_inside_async(connection, value)"
                )
            joined = join(connection, self._store)
            run(settle_inside(self._ask, self._operation, value), self._performing(joined))
            self._settled(joined)

    async def settle_async(self, connection: Any, value: Any) -> None:
        """See `Operation.settle_inside_async`."""
        with self._noting():
            if not self._awaits:
                raise ConfigurationError("this gate blocks: operation.settle_inside(connection, value), without await")
            joined = join_async(connection, self._store)
            await arun(settle_inside(self._ask, self._operation, value), self._instant, self._performing_async(joined))
            self._settled(joined)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Where rows and record cannot commit together, the rows may be there already."""
        try:
            yield
        except ConfigurationError:
            self.astray = True
            raise

    def _settled(self, joined: Joined | AsyncJoined) -> None:
        self.nested = getattr(joined, "nested", False)
        self.called = True

    def _instant(self, effect: Effect) -> Any:
        if isinstance(effect, Chance):
            return self._environment.random(48)
        raise ConfigurationError(f"{type(effect).__name__} takes time")

    def _performing(self, joined: Joined) -> Callable[[Effect], Any]:
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
            return self._instant(effect)

        return perform

    def _performing_async(self, joined: AsyncJoined) -> Callable[[Effect], Awaitable[Any]]:
        def perform(effect: Effect) -> Awaitable[Any]:
            match effect:
                case Put():
                    return joined.put(effect.write, effect.expect)
                case Begin():
                    return joined.begin()
                case Commit():
                    return joined.commit()
                case Rollback():
                    return joined.rollback()
            raise ConfigurationError(f"settling inside a transaction does not need {type(effect).__name__}")

        return perform


async def introduce(store: object) -> None:
    """Let an awaiting store find out which database it is in: a function that blocks could not ask it."""
    identify = capabilities_of(store).identify
    if identify is not None:
        await identify()
