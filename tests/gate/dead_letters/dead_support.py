"""
A desk with dead letters on every kind of store, in both colours, from one text.

`desk.call(policy, fn, ...)` and `desk.do(...)` block or await, and the test does not know which. Servers are shared
by all tests, so every desk has a scope of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncGate, Gate, Retry
from onceward.gate import DeadLetter
from onceward.stores import memory, open_async_store, open_store
from onceward.testing.clock import StillEnvironment
from servers import postgres, redis

KINDS = ("memory", "sqlite", "postgres", "redis")
COLOURS = ("blocking", "awaiting")

_numbers = count()


def wanted() -> tuple[str, ...]:
    """All four stores, unless STORES leaves some out."""
    named = os.environ.get("STORES", ",".join(KINDS)).replace(" ", "").split(",")
    return tuple(kind for kind in KINDS if kind in named)


class Desk:
    """A gate of some colour on some store, and its dead letters."""

    def __init__(self, kind: str, colour: str, folder: Path) -> None:
        self.kind, self.colour = kind, colour
        self.env = StillEnvironment(seed=f"{kind}/{colour}")
        self.scope = f"test:dead-{os.getpid()}-{next(_numbers)}"
        self.url = {
            "memory": lambda: f"memory://{self.scope}",
            "sqlite": lambda: f"sqlite:///{folder}/dead.db",
            "postgres": lambda: postgres.running().url("onceward"),
            "redis": lambda: redis.running().url(),
        }[kind]()
        self._loop = asyncio.new_event_loop()
        self._gates: list[Any] = []
        self.gate = self.another_gate()

    @property
    def awaits(self) -> bool:
        return self.colour == "awaiting"

    def another_gate(self, **options: Any) -> Any:
        """A gate on the same records, as another process would open it."""
        # A server's clock cannot be made to stand still.
        clock = {"environment": self.env} if self.kind in ("memory", "sqlite") else {}
        store = (open_async_store if self.awaits else open_store)(self.url, **clock)
        gate = (AsyncGate if self.awaits else Gate)(store, scope=self.scope, environment=self.env, **options)
        self._gates.append(gate)
        return gate

    def policy(self, dead: Any, **options: Any) -> Retry:
        """A policy whose clock stands still and whose letters go there."""
        return Retry(dead=dead, environment=self.env, **options)

    def coloured(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function in this desk's colour."""
        if not self.awaits:
            return fn

        @wraps(fn)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return fn(*args, **kwargs)

        return awaiting

    def call(self, policy: Retry, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function through a policy."""
        coloured = fn if inspect.iscoroutinefunction(fn) else self.coloured(fn)
        return self.do((policy.acall if self.awaits else policy.call)(coloured, *args, **kwargs))

    def give_up(self, dead: Any, error: Any, *args: Any, key: str | None = "charge:1", **kwargs: Any) -> DeadLetter:
        """Let a call named charge fail for good; its letter."""

        def charge(*args: Any, **kwargs: Any) -> Any:
            raise error

        policy = self.policy(dead, name="charge")
        bound = policy if key is None else policy.bind(key=key)
        before = {one.id for one in self.do(dead.list())}
        with pytest.raises(Exception):  # noqa: B017 - which one it is does not matter here
            self.call(bound, charge, *args, **kwargs)
        letters = [one for one in self.do(dead.list()) if one.id not in before] if key is None else []
        found = letters[0] if letters else self.do(dead.get(key))
        assert found is not None
        return found

    def do(self, made: Any) -> Any:
        """The value of what a method of either colour gave back."""
        return self._loop.run_until_complete(_finish(made)) if inspect.isawaitable(made) else made

    def ask_store(self, method: str, *arguments: Any) -> Any:
        """What the store itself answers."""

        async def asked() -> Any:
            return await getattr(self.gate.store, method)(*arguments)

        return self.do(asked()) if self.awaits else getattr(self.gate.store, method)(*arguments)

    def close(self) -> None:
        for gate in self._gates:
            self.do(gate.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        memory._shared.pop(self.url.removeprefix("memory://"), None)


async def _finish(made: Any) -> Any:
    return await made
