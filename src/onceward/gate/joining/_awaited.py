"""
A blocking connection under an awaiting gate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from onceward._core.record import Record, Standing, Write
from onceward.gate.joining._joined import Joined
from onceward.tables.steps import Steps


class Looking(Joined, Protocol):
    """A connection in whose transaction one can look."""

    def load(self, id: bytes) -> Record | None:
        """Same as `Store.load`, inside the transaction."""

    def is_over(self) -> bool:
        """Whether the transaction has ended, seen from any thread."""


class Awaited:
    """A blocking connection under an awaiting gate: it is the caller's own, so it runs where the caller is."""

    def __init__(self, joined: Looking) -> None:
        self._joined = joined

    async def begin(self) -> bool:
        """See `Joined.begin`."""
        return self._joined.begin()

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        return self._joined.put(write, expect)

    async def load(self, id: bytes) -> Record | None:
        """See `Looking.load`."""
        return self._joined.load(id)

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        return self._joined.extend(family, replay, forget)

    async def commit(self) -> None:
        """See `Joined.commit`."""
        self._joined.commit()

    async def rollback(self) -> bool:
        """See `Joined.rollback`."""
        return self._joined.rollback()

    def is_over(self) -> bool:
        """See `Looking.is_over`."""
        return self._joined.is_over()


def awaited_join(join: Callable[[Any, object], Looking]) -> Callable[[Any, object], Awaited]:
    """What joins under an awaiting gate, of a library that blocks in either."""
    return lambda connection, store: Awaited(join(connection, store))


def awaited_walk(walk: Callable[[Any, object, Steps[Any]], Any]) -> Callable[[Any, object, Steps[Any]], Awaitable[Any]]:
    """The same for steps of ours."""

    async def walked(connection: Any, store: object, steps: Steps[Any]) -> Any:
        return walk(connection, store, steps)

    return walked
