"""
Claims of processes that are dead, on every store, and gates of both colours that find them.

`Gone` is the environment of a process that had this one's id before it: its claims name a holder that is provably
dead, and no process has to be killed for it. Servers are shared by all tests, so every desk has a scope of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from contextvars import copy_context
from itertools import count
from pathlib import Path
from typing import Any

from onceward import AsyncGate, Gate, OncewardError
from onceward._core.holders import Process, encode_process
from onceward.gate.held_operation import HeldOperation
from onceward.runtime import processes
from onceward.runtime.environment import Environment
from onceward.stores import memory, open_store
from servers import postgres, redis

KINDS = ("memory", "sqlite", "postgres", "redis")
COLOURS = ("blocking", "awaiting")
LEASE = 3_600
"""An hour: whatever goes on without waiting for it goes on at all."""

_numbers = count()


def this_process() -> Process:
    """What this process says of itself."""
    return processes._this()[0]


class Gone(Environment):
    """A process that is dead: its id is this one's now, which began later."""

    def process(self) -> bytes:
        """The dead one."""
        me = this_process()
        return encode_process(me._replace(began=me.began - 1))


class Elsewhere(Environment):
    """A process of another machine: nobody here can say whether it lives."""

    def process(self) -> bytes:
        """The far one."""
        return encode_process(this_process()._replace(host="far", machine=b"far away"))


class Nameless(Environment):
    """A version that did not name itself."""

    def process(self) -> bytes:
        """Nothing."""
        return None  # type: ignore[return-value]


def wanted() -> tuple[str, ...]:
    """All four stores, unless STORES leaves some out."""
    named = os.environ.get("STORES", ",".join(KINDS)).replace(" ", "").split(",")
    return tuple(kind for kind in KINDS if kind in named)


class Desk:
    """Gates of one colour on one store, and claims that the dead have left there."""

    def __init__(self, kind: str, colour: str, folder: Path) -> None:
        self.kind, self.colour = kind, colour
        self.scope = f"test:holder-{os.getpid()}-{next(_numbers)}"
        self.url = {
            "memory": lambda: f"memory://{self.scope}",
            "sqlite": lambda: f"sqlite:///{folder}/gate.db",
            "postgres": lambda: postgres.running().url("onceward"),
            "redis": lambda: redis.running().url(),
        }[kind]()
        self._loop = asyncio.new_event_loop()
        self._gates: list[Any] = []
        self._stores: list[Any] = []
        self.runs: list[str] = []

    @property
    def awaits(self) -> bool:
        return self.colour == "awaiting"

    def gate(self, **options: Any) -> Any:
        """A gate of this colour that does not wait."""
        made = AsyncGate if self.awaits else Gate
        gate = made(self.url, scope=self.scope, **{"lease": LEASE, "wait": 0, **options})
        self._gates.append(gate)
        return gate

    def store(self) -> Any:
        """A blocking store on the same records."""
        store = open_store(self.url)
        self._stores.append(store)
        return store

    def left(self, key: str = "k", who: Environment | None = None, **options: Any) -> HeldOperation:
        """Claim a key as a process that never ends it; blocking, because a claim has no colour."""
        gate = Gate(self.url, scope=self.scope, lease=LEASE, environment=who or Gone())
        self._gates.append(gate)
        held = held_elsewhere(gate, key, **options)
        assert isinstance(held, HeldOperation)
        return held

    def do(self, made: Any) -> Any:
        """The value of what a method of either colour gave back."""
        return self._loop.run_until_complete(_finished(made)) if inspect.isawaitable(made) else made

    def hear(self, gate: Any, key: str = "k", **options: Any) -> Any:
        """What a caller of that key hears: the answer, or one of our errors."""
        try:
            return self.do(gate.run(key, self.body(), **options))
        except OncewardError as error:
            return error

    def body(self, answer: str = "done") -> Callable[[], Any]:
        """A function that notes that it ran."""

        def runs() -> str:
            self.runs.append(answer)
            return answer

        async def awaiting() -> str:
            return runs()

        return awaiting if self.awaits else runs

    def state(self, gate: Any, key: str = "k") -> str:
        """The state of a key, as an operator sees it."""
        return str(self.do(gate.records.get(key)).state)

    def close(self) -> None:
        for gate in self._gates:
            self.do(gate.close())
        for store in self._stores:
            store.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        memory._shared.pop(self.scope, None)


async def _finished(made: Any) -> Any:
    return await made


def held_elsewhere(gate: Gate, key: str, **options: Any) -> Any:
    """Claim a key in a context of its own: it is never ended, and must not be what runs in the test's."""
    return copy_context().run(lambda: gate.hold(key, **options))
