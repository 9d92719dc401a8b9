"""
One world per test: a store of some kind, a gate of some colour, and a clock that moves only when told to.

Every test that takes `world` runs on memory and on SQLite, with a blocking and with an awaiting gate. The colour is
hidden: `world.gate()` gives a gate whose methods can simply be called. Called from inside a function that a gate is
running, they act as another process would: in a thread, with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncGate, Gate, OncewardError, Outcome, StoreUnavailable
from onceward.gate import lease_renewer
from onceward.gate.function_inspection import inspect_function
from onceward.runtime.environment import REAL, Environment
from onceward.stores import memory, open_async_store, open_store
from onceward.testing.clock import StillEnvironment

KINDS = ("memory", "sqlite")
COLOURS = ("blocking", "awaiting")


class Died(BaseException):
    """This process was killed: from here on it does nothing any more."""


class Effect:
    """Something that must happen once: counts, and gives back a value (or raises an error)."""

    def __init__(self, value: Any = "done") -> None:
        self.value = value
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            self.count += 1
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class Faulty:
    """A store in front of another: `before` and `after` see every call (its number, what it does) and may raise."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.calls: list[str] = []
        self.before: Callable[[int, str], None] = _nothing
        self.after: Callable[[int, str], None] = _nothing

    def fail(self, what: str, times: int = 1, *, performs: bool = False, error: Any = StoreUnavailable) -> None:
        """Let the next `times` calls of that kind fail; with `performs`, only their answers are lost."""
        left = [times]

        def hook(number: int, doing: str) -> None:
            if doing == what and left[0] > 0:
                left[0] -= 1
                raise error

        if performs:
            self.after = hook
        else:
            self.before = hook

    def die_before(self, what: str) -> None:
        """Be killed just before the first call of that kind."""
        dead: list[bool] = []

        def hook(number: int, doing: str) -> None:
            if dead or doing == what:
                dead.append(True)
                raise Died

        self.before = hook

    def die_after(self, what: str) -> None:
        """Be killed just after the first call of that kind was performed: its answer is never heard."""
        dead: list[bool] = []

        def before(number: int, doing: str) -> None:
            if dead:
                raise Died

        def after(number: int, doing: str) -> None:
            if doing == what:
                dead.append(True)
                raise Died

        self.before, self.after = before, after

    def put(self, write: Any, expect: bytes | None) -> Any:
        claim = "claim" if write.rise else "renew"
        return self._pass(claim if write.state == "claimed" else write.state, self._store.put, write, expect)

    def put_back(self, write: Any, marks: Any) -> Any:
        return self._pass("putback", self._store.put_back, write, marks)

    def load(self, id: bytes) -> Any:
        return self._pass("load", self._store.load, id)

    def extend(self, family: bytes, replay: int, forget: int) -> Any:
        return self._pass("extend", self._store.extend, family, replay, forget)

    def scan(self, after: bytes, limit: int, selection: Any) -> Any:
        return self._pass("scan", self._store.scan, after, limit, selection)

    def purge(self, limit: int) -> Any:
        return self._pass("purge", self._store.purge, limit)

    def close(self) -> Any:
        return self._store.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _pass(self, what: str, method: Callable[..., Any], *arguments: Any) -> Any:
        with self._lock:
            self.calls.append(what)
            number = len(self.calls)
        self.before(number, what)
        answer = method(*arguments)
        if not inspect.isawaitable(answer):
            self.after(number, what)
            return answer
        # Like a real store's: under way when this returns, awaited or not.
        return asyncio.ensure_future(self._answered(number, what, answer))

    async def _answered(self, number: int, what: str, answer: Awaitable[Any]) -> Any:
        value = await answer
        self.after(number, what)
        return value


def _nothing(number: int, what: str) -> None:
    """No fault."""


class World:
    """A kind of store, a colour of gate, and one clock for both."""

    Died = Died
    Effect = Effect

    def __init__(self, kind: str, colour: str, folder: Path) -> None:
        self.kind = kind
        self.colour = colour
        self.folder = folder
        self.env = StillEnvironment(seed=f"{kind}/{colour}")
        self.url = f"memory://{folder.name}-{id(self)}" if kind == "memory" else f"sqlite:///{folder}/gate.db"
        self._gates: list[Driven] = []
        # Not a Runner: in its signal handling it writes down a task's exception, which need not be possible.
        self._loop = asyncio.new_event_loop()

    @property
    def awaits(self) -> bool:
        return self.colour == "awaiting"

    def store(self, environment: Environment | None = None) -> Any:
        """Another store object on the same records, as another process would open it."""
        opened = open_async_store if self.awaits else open_store
        return opened(self.url, environment=environment or self.env)

    def gate(
        self,
        *,
        scope: str = "acme",
        store: Any = None,
        environment: Environment | None = None,
        store_environment: Environment | None = None,
        **options: Any,
    ) -> Driven:
        """A gate of this world's colour, on a store object of its own (the records are shared)."""
        made = AsyncGate if self.awaits else Gate
        used = store if store is not None else self.store(store_environment or environment)
        driven = Driven(self, made(used, scope=scope, environment=environment or self.env, **options))
        self._gates.append(driven)
        return driven

    def faulty(self, **options: Any) -> tuple[Driven, Faulty]:
        """A gate, and the store in front of its store that can be made to fail."""
        store = Faulty(self.store(options.get("environment")))
        return self.gate(store=store, **options), store

    def do(self, made: Any) -> Any:
        """The value of what a method of either colour gave back."""
        if not inspect.isawaitable(made):
            return made
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if threading.current_thread() is threading.main_thread():
                return self._loop.run_until_complete(_finish(made))
            return asyncio.run(_finish(made))
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, _finish(made)).result()

    def hear(self, call: Callable[[], Any]) -> Any:
        """What a caller hears: a value, or one of our errors."""
        try:
            return call()
        except OncewardError as error:
            return error

    def body(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function for `call` and the like, in this world's colour."""
        if not self.awaits or inspect.iscoroutinefunction(fn):
            return fn
        if inspect_function(fn).takes_operation:

            async def awaiting(operation: Any) -> Any:
                await asyncio.sleep(0)
                return fn(operation)
        else:

            async def awaiting() -> Any:  # type: ignore[misc]
                await asyncio.sleep(0)
                return fn()

        awaiting.__qualname__ = getattr(fn, "__qualname__", type(fn).__qualname__)
        return awaiting

    def declared(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function for `once`, in this world's colour."""
        if not self.awaits or inspect.iscoroutinefunction(fn):
            return fn

        @wraps(fn)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return fn(*args, **kwargs)

        return awaiting

    def crash(self, key: str, fn: Callable[..., Any] | None = None, **options: Any) -> None:
        """Run `fn` in a process that is killed before it can record the answer: the claim stands."""
        gate, store = self.faulty()
        store.die_before("settled")
        with pytest.raises(Died):
            gate.run(key, fn or Effect(), **options)

    def forget(self, operation: Any) -> None:
        """The store loses the record of a running operation, as in a failover: no erasure, and so no mark."""
        store = open_store(self.url, environment=self.env)
        assert store.erase([operation.id]) == 1
        store.close()

    def close(self) -> None:
        for driven in self._gates:
            driven.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        memory._shared.pop(self.url.removeprefix("memory://"), None)


async def _finish(made: Awaitable[Any]) -> Any:
    return await made


class Driven:
    """A gate of either colour whose methods can simply be called."""

    def __init__(self, world: World, gate: Any) -> None:
        self.world = world
        self.gate = gate
        self.store = gate.store

    def call(self, key: str, fn: Callable[..., Any], **options: Any) -> Any:
        return self.world.do(self.gate.call(key, *self._bodied(fn, options), **options))

    def run(self, key: str, fn: Callable[..., Any], **options: Any) -> Any:
        return self.world.do(self.gate.run(key, *self._bodied(fn, options), **options))

    def hold(self, key: str, **options: Any) -> Any:
        return held(self.world, self.world.do(self.gate.hold(key, **options)))

    def once(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        def decorate(fn: Callable[..., Any]) -> Any:
            made = self.gate.once(**options)(self.world.declared(fn))

            @wraps(fn)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return self.world.do(made(*args, **kwargs))

            wrapper.call = lambda *args, **kwargs: self.world.do(made.call(*args, **kwargs))  # type: ignore[attr-defined]
            return wrapper

        return decorate

    def plan(self, name: str, **options: Any) -> Shape:
        return Shape(self, self.gate.plan(name, **options), marks=True)

    def sequence(self, name: str, **options: Any) -> Shape:
        return Shape(self, self.gate.sequence(name, **options))

    def window(self, name: str, *seconds: Any, **options: Any) -> Shape:
        return Shape(self, self.gate.window(name, *seconds, **options))

    def get(self, key: str) -> Any:
        return self.world.do(self.gate.records.get(key))

    def rows(self) -> list[Any]:
        self.world.do(self.gate._purger.wait())  # A purge runs after the response.
        found: list[Any] = []
        while page := self.world.do(self.gate.records.list(after=found[-1].id if found else "")):
            found += page
        return found

    def in_doubt(self) -> Any:
        return self.world.do(self.gate.records.in_doubt())

    def reconcile(self, key: str, answer: Any, **options: Any) -> Any:
        return self.world.do(self.gate.reconcile(key, answer, **options))

    def purge(self, *limit: int) -> Any:
        return self.world.do(self.gate.purge(*limit))

    def sweep(self) -> None:
        """Renew what is due, as the renewer's thread or timer would. Call it from inside a running function."""
        self.world.do(self.gate._renewer.sweep())

    def close(self) -> None:
        self.world.do(self.gate.close())

    def _bodied(self, fn: Callable[..., Any], options: dict[str, Any]) -> tuple[Callable[..., Any]]:
        if self.world.awaits and not inspect.iscoroutinefunction(fn) and inspect_function(fn).marked:
            options.setdefault("marked", True)
        return (self.world.body(fn),)


class Held:
    """An operation that is held, of either colour."""

    def __init__(self, world: World, holding: Any) -> None:
        self.operation = holding.operation
        self._world, self._holding = world, holding

    def end(self, ended: Any) -> Any:
        return self._world.do(self._holding.end(ended))


def held(world: World, found: Any) -> Any:
    """What `hold` found: an outcome, or an operation to be ended."""
    return found if isinstance(found, Outcome) else Held(world, found)


class Shape:
    """A plan, a sequence or a window of either colour whose methods can simply be called."""

    def __init__(self, driven: Driven, shape: Any, *, marks: bool = False) -> None:
        self._driven = driven
        self._shape = shape
        self._marks = marks

    def reconcile(self, what: Any, answer: Any) -> Any:
        return self._driven.world.do(self._shape.reconcile(what, answer))

    def hold(self, step: str, **options: Any) -> Any:
        return held(self._driven.world, self._driven.world.do(self._shape.hold(step, **options)))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._shape, name)

        def called(what: Any, fn: Callable[..., Any], **options: Any) -> Any:
            marks: dict[str, Any] = {}
            (body,) = self._driven._bodied(fn, marks)
            return self._driven.world.do(method(what, body, **(marks if self._marks else {}), **options))

        return called


@pytest.fixture(params=[f"{kind}-{colour}" for kind in KINDS for colour in COLOURS])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world of every kind and colour, in which nothing renews a lease unless the test does."""
    kind, _, colour = request.param.partition("-")
    # The renewer's thread reads the same still clock and would renew whenever it gets its turn.
    monkeypatch.setattr(lease_renewer, "_keep_sweeping", lambda *_: None)
    made = World(kind, colour, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def threads(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world for many threads: blocking, on the real clock, with the renewer at work."""
    made = World(request.param, "blocking", tmp_path)
    made.env = REAL  # type: ignore[assignment]
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world for many tasks: awaiting, on the real clock, with the renewer at work. Used inside `asyncio.run`."""
    made = World(request.param, "awaiting", tmp_path)
    made.env = REAL  # type: ignore[assignment]
    yield made
    made.close()
