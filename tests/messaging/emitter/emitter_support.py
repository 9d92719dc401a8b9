"""
A post office: emitters of both colours on every kind of store, and a world that notes what arrives.

`post.do(...)` blocks or awaits, and the test does not know which. Time stands still until it is moved (on servers, the
caller's time only). Servers are shared by all tests, so every post office has a scope of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from onceward import AsyncEmitter, AsyncGate, Emitter, Gate, Retry
from onceward.messaging.emitter import Cadence, Item
from onceward.stores import memory, open_async_store, open_store
from onceward.testing.clock import StillEnvironment
from servers import postgres, redis

KINDS = ("memory", "sqlite", "postgres", "redis")
COLOURS = ("blocking", "awaiting")
REFERENCE = "usage:{customer}:{number}"

_numbers = count()


def wanted() -> tuple[str, ...]:
    """All four stores, unless STORES leaves some out."""
    named = os.environ.get("STORES", ",".join(KINDS)).replace(" ", "").split(",")
    return tuple(kind for kind in KINDS if kind in named)


def event(number: int, units: int = 1) -> dict[str, Any]:
    """One event; its reference is `usage:c-17:<number>`."""
    return {"customer": "c-17", "number": number, "units": units}


class Post:
    """Gates of some colour on some store, their emitters, and what arrived."""

    def __init__(self, kind: str, colour: str, folder: Path) -> None:
        self.kind, self.colour = kind, colour
        self.env = StillEnvironment(seed=f"{kind}/{colour}")
        self.scope = f"test:emitter-{os.getpid()}-{next(_numbers)}"
        self.url = {
            "memory": lambda: f"memory://{self.scope}",
            "sqlite": lambda: f"sqlite:///{folder}/spool.db",
            "postgres": lambda: postgres.running().url("onceward"),
            "redis": lambda: redis.running().url(),
        }[kind]()
        self._loop = asyncio.new_event_loop()
        self._gates: list[Any] = []
        self._emitters: list[Any] = []
        self.batches: list[list[Item]] = []
        """What `send` was given, attempt by attempt."""
        self.answers: list[Any] = []
        """What the next attempts come to: an exception is raised, anything else is returned; then None for ever."""
        self.gate = self.another_gate()

    @property
    def awaits(self) -> bool:
        return self.colour == "awaiting"

    @property
    def arrived(self) -> list[str]:
        """The references of everything that was sent, in order."""
        return [item.reference for batch in self.batches for item in batch]

    def another_gate(self) -> Any:
        """A gate on the same records, as another process would open it."""
        # A server's clock cannot be made to stand still.
        clock = {"environment": self.env} if self.kind in ("memory", "sqlite") else {}
        store = (open_async_store if self.awaits else open_store)(self.url, **clock)
        gate = (AsyncGate if self.awaits else Gate)(store, scope=self.scope, environment=self.env)
        self._gates.append(gate)
        return gate

    def emitter(self, gate: Any = None, *, send: Callable[[list[Item]], Any] | None = None, **options: Any) -> Any:
        """An emitter that sends when it is ticked."""
        chosen = {"reference": REFERENCE, "cadence": Cadence(size=3, seconds=5), "timer": False, **options}
        chosen.setdefault("retry", self.policy())
        made = (AsyncEmitter if self.awaits else Emitter)(
            gate or self.gate, chosen.pop("name", "usage"), self.coloured(send or self.send), **chosen
        )
        self._emitters.append(made)
        return made

    def policy(self, attempts: int = 3, **options: Any) -> Retry:
        """A policy whose clock stands still."""
        return Retry(attempts, environment=self.env, **options)

    def send(self, items: list[Item]) -> Any:
        """The other side."""
        self.batches.append(items)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer(items) if callable(answer) else answer

    def coloured(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function in this post's colour."""
        if not self.awaits:
            return fn

        async def awaiting(items: list[Item]) -> Any:
            await asyncio.sleep(0)
            made = fn(items)
            return await made if inspect.isawaitable(made) else made

        return awaiting

    def emit(self, emitter: Any, *numbers: int) -> list[Any]:
        """Emit so many events."""
        return [self.do(emitter.emit(event(number))) for number in numbers]

    def do(self, made: Any) -> Any:
        """The value of what a method of either colour gave back."""
        return self._loop.run_until_complete(_finish(made)) if inspect.isawaitable(made) else made

    def load(self, id: bytes) -> Any:
        """What the store itself has."""

        async def asked() -> Any:
            return await self.gate.store.load(id)

        return self.do(asked()) if self.awaits else self.gate.store.load(id)

    def close(self) -> None:
        for emitter in self._emitters:
            self.do(emitter.close())
        for gate in self._gates:
            self.do(gate.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        memory._shared.pop(self.url.removeprefix("memory://"), None)


async def _finish(made: Any) -> Any:
    return await made
