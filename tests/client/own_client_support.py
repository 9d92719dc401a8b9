"""Both colours from one text: an awaiting client, driven by a loop of its own, looks like a blocking one."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from onceward import AsyncClient, Client

TABLE = "CREATE TABLE events (id TEXT PRIMARY KEY, name TEXT NOT NULL)"
INSERT = "INSERT INTO events VALUES (?, ?)"
ROW = ["e-1", "click"]


class Driven:
    """An awaiting thing, as a blocking one."""

    def __init__(self, thing: Any, runner: asyncio.Runner) -> None:
        self.thing, self._runner = thing, runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.thing, name)
        if not callable(found):
            return self._taken(found)

        def called(*args: Any, **kwargs: Any) -> Any:
            return self._taken(found(*args, **kwargs))

        return called

    def __repr__(self) -> str:
        return repr(self.thing)

    def __enter__(self) -> Any:
        return self._taken(self._runner.run(self.thing.__aenter__()))

    def __exit__(self, *told: Any) -> None:
        self._runner.run(self.thing.__aexit__(*told))

    def _taken(self, found: Any) -> Any:
        if inspect.iscoroutine(found):
            return self._taken(self._runner.run(found))
        return Driven(found, self._runner) if hasattr(found, "__aenter__") or _is_awaiting(found) else found


def _is_awaiting(found: Any) -> bool:
    return type(found).__name__.startswith("Async")


class Maker:
    """Makes clients of one colour, and closes them at the end."""

    def __init__(self, colour: str) -> None:
        self.colour = colour
        self._runner = asyncio.Runner() if colour == "awaiting" else None
        self._made: list[Any] = []

    def __call__(self, url: str, **options: Any) -> Any:
        """A client."""
        made: Any = (
            Client(url, **options) if self._runner is None else Driven(AsyncClient(url, **options), self._runner)
        )
        self._made.append(made)
        return made

    def close(self) -> None:
        """Close them all."""
        for one in self._made:
            one.close()
        if self._runner is not None:
            self._runner.close()
