"""
`AsyncGate`: the shell for awaiting callers. Same names as `Gate`, same flows; only the performing differs.

A cancelled caller is dealt with by the driver and the flow: before the function has begun its effect the claim is
released, from there on it is unknown what happened. A write to the store is never abandoned half way.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from onceward._core.engine import Ask, operate, reconcile
from onceward._core.errors import ConfigurationError
from onceward._core.events import Listener
from onceward._core.flow import (
    Begin,
    Call,
    Chance,
    Commit,
    Effect,
    Emit,
    Extend,
    Flow,
    Load,
    Monotonic,
    Pause,
    Probe,
    Put,
    Raised,
    Returned,
    Rollback,
)
from onceward._core.joined import operate_joined
from onceward._core.operation import Found, NotFound, Operation, Outcome
from onceward._core.record import Record
from onceward._core.register import AsyncStore, Purged
from onceward.drive import arun
from onceward.environment import Environment
from onceward.gate.asking import Asking, Housekeeping, Invoke, check_joined, checked_body, invoker
from onceward.gate.atomic import AsyncAtomicBlock
from onceward.gate.declaring import body_of, name_of
from onceward.gate.joining import Joined, join
from onceward.gate.plan import AsyncPlan
from onceward.gate.records import AsyncRecords, RecordView, view
from onceward.gate.renewal import AsyncRenewer
from onceward.gate.sequence import AsyncSequence
from onceward.gate.waiting import AsyncBell
from onceward.gate.window import AsyncWindow
from onceward.stores import open_async_store

T = TypeVar("T")


class AsyncGate:
    """Same as `Gate`, but awaits. Functions may be async or plain; a plain one runs on the event loop."""

    def __init__(
        self,
        store: str | AsyncStore,
        *,
        scope: str,
        listeners: Iterable[Listener] = (),
        environment: Environment | None = None,
        **options: Any,
    ) -> None:
        self.store: AsyncStore = open_async_store(store) if isinstance(store, str) else store
        self._asking = Asking(
            scope,
            environment=environment,
            listeners=listeners,
            options=options,
            peeks=bool(getattr(self.store, "peeks", False)),
        )
        self.environment = self._asking.environment
        self._bell = AsyncBell(self.environment)
        self._renewer = AsyncRenewer(self.environment, self._renew)
        self._housekeeping = Housekeeping()

    @property
    def scope(self) -> str:
        """Who the keys belong to."""
        return self._asking.scope

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Same as `Gate.listen`."""
        return self._asking.listen(listener)

    # --- running operations ---

    async def call(
        self,
        key: str,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Any,
    ) -> Outcome[Any]:
        """Same as `Gate.call`, but awaits."""
        asking = self._asking
        terms = asking.agreed(options)
        body = checked_body(fn, terms, awaits=True, probe=probe)
        ask = asking.ask(
            (asking.stored_key(key),),
            request,
            terms,
            operation=name if name is not None else name_of(fn),
            marked=body.marked if marked is None else marked,
            probes=probe is not None,
        )
        return await self.drive(operate(ask), ask, invoker(fn, body), probe)

    async def run(self, key: str, fn: Callable[..., Any], *, request: Any = None, **options: Any) -> Any:
        """Same as `Gate.run`, but awaits."""
        if options.get("in_flight") == "accept":
            raise ConfigurationError("in_flight='accept' answers with a pending Outcome, so it is for gate.call only")
        return (await self.call(key, fn, request=request, **options)).value

    def once(
        self,
        *,
        key: str | Callable[..., str],
        name: str | None = None,
        exclude: tuple[str, ...] = (),
        connection: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Any,
    ) -> Callable[[Callable[..., Awaitable[T]]], Callable[..., Coroutine[Any, Any, T]]]:
        """Same as `Gate.once`; the result is to be awaited."""
        terms = self._asking.agreed(options)

        def decorate(fn: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
            taken = self._asking.declare(
                fn,
                key,
                terms=terms,
                awaits=True,
                name=name,
                exclude=exclude,
                connection=connection,
                marked=marked,
                probe=probe,
            )

            async def call(*args: Any, **kwargs: Any) -> Outcome[T]:
                ask, invoke, arguments = self._asking.declared_ask(taken, terms, args, kwargs, probe)
                if taken.connection is not None:
                    joined = join(arguments[taken.connection], self.store)
                    return await self.drive(operate_joined(ask), ask, invoke, None, joined)
                return await self.drive(operate(ask), ask, invoke, probe)

            @wraps(fn)
            async def wrapper(*args: Any, **kwargs: Any) -> T:
                return (await call(*args, **kwargs)).value

            wrapper.call = call  # type: ignore[attr-defined]
            wrapper.__signature__ = taken.signature  # type: ignore[attr-defined]
            return wrapper

        return decorate

    @overload
    def atomic(
        self, connection: Any, key: str, fn: Callable[..., Awaitable[T]], *, request: Any = None, **options: Any
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def atomic(self, connection: Any, key: str, *, request: Any = None, **options: Any) -> AsyncAtomicBlock: ...

    def atomic(
        self, connection: Any, key: str, fn: Callable[..., Any] | None = None, *, request: Any = None, **options: Any
    ) -> Any:
        """Same as `Gate.atomic`, but awaits: `await gate.atomic(...)`, or `async with gate.atomic(...)`."""
        name = options.pop("name", None)
        terms = self._asking.agreed({**options, "guarantee": "atomic"})
        check_joined(terms)
        joined = join(connection, self.store)
        named = name if name is not None else (name_of(fn) if fn is not None else "")
        ask = self._asking.ask((self._asking.stored_key(key),), request, terms, operation=named)
        if fn is None:
            performer = self.performer(ask, _unreachable, None, joined)
            return AsyncAtomicBlock(ask.claimant, operate_joined(ask), performer.instant, performer.perform)
        return self._atomic(ask, invoker(fn, body_of(fn)), joined)

    async def _atomic(self, ask: Ask, invoke: Invoke, joined: Joined) -> Any:
        return (await self.drive(operate_joined(ask), ask, invoke, None, joined)).value

    # --- other shapes of the same idea ---

    def plan(self, plan: str, **options: Any) -> AsyncPlan:
        """Same as `Gate.plan`."""
        return AsyncPlan(self, self._asking, plan, options)

    def sequence(self, name: str, **options: Any) -> AsyncSequence:
        """Same as `Gate.sequence`."""
        return AsyncSequence(self, self._asking, name, options)

    def window(self, name: str, seconds: Any = None, *, money: bool = False, **options: Any) -> AsyncWindow:
        """Same as `Gate.window`."""
        return AsyncWindow(self, self._asking, name, seconds, money=money, options=options)

    # --- looking, deciding, tidying ---

    @property
    def records(self) -> AsyncRecords:
        """Same as `Gate.records`; its methods are to be awaited."""
        return AsyncRecords(self.store, self._asking)

    async def reconcile(self, key: str, answer: Found | NotFound) -> RecordView:
        """Same as `Gate.reconcile`, but awaits."""
        ask = self._asking.ask_about(key)
        return view(await self.drive(reconcile(ask, answer), ask, _unreachable))

    async def purge(self, limit: int = Housekeeping.PURGE_LIMIT) -> Purged:
        """Same as `Gate.purge`, but awaits."""
        return await self.store.purge(limit)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- performing effects ---

    async def drive(
        self,
        flow: Flow[T],
        ask: Ask,
        invoke: Invoke,
        probe: Callable[..., Any] | None = None,
        joined: Joined | None = None,
    ) -> T:
        """Same as `Gate.drive`, but awaits."""
        performer = self.performer(ask, invoke, probe, joined)
        outcome = await arun(flow, performer.instant, performer.perform)
        if self._housekeeping.is_due():
            await self.store.purge(Housekeeping.PURGE_LIMIT)
        return outcome

    def performer(
        self, ask: Ask | None, invoke: Invoke, probe: Callable[..., Any] | None = None, joined: Joined | None = None
    ) -> _Performer:
        """What performs the effects of one call."""
        return _Performer(self, ask, invoke, probe, joined)

    async def _renew(self, flow: Flow[Record]) -> Record:
        performer = self.performer(None, _unreachable)
        return await arun(flow, performer.instant, performer.perform)


class _Performer:
    """Performs the effects of one call, by awaiting."""

    __slots__ = ("_ask", "_gate", "_invoke", "_joined", "_probe")

    def __init__(
        self,
        gate: AsyncGate,
        ask: Ask | None,
        invoke: Invoke,
        probe: Callable[..., Any] | None,
        joined: Joined | None,
    ) -> None:
        self._gate = gate
        self._ask = ask
        self._invoke = invoke
        self._probe = probe
        self._joined = joined

    def instant(self, effect: Effect) -> Any:
        """Do one thing that takes no time."""
        match effect:
            case Chance():
                return self._gate.environment.random(48)
            case Monotonic():
                return self._gate.environment.monotonic()
            case Emit():
                return self._gate._asking.tell(effect.event)
        raise ConfigurationError(f"{type(effect).__name__} takes time")

    def perform(self, effect: Effect) -> Awaitable[Any]:
        """Begin one thing; the answer is to be awaited. A store's future is already under way when this returns."""
        kind = type(effect)
        if kind is Load:
            return self._gate.store.load(effect.id)  # type: ignore[union-attr]
        if kind is Put:
            return self._put(effect)  # type: ignore[arg-type]
        if kind is Call:
            return self._call(effect.operation)  # type: ignore[union-attr]
        return self._seldom(effect)

    def _put(self, effect: Put) -> Awaitable[Any]:
        gate = self._gate
        if self._joined is not None:
            return _blocking(self._joined.put, effect.write, effect.expect)
        standing = gate.store.put(effect.write, effect.expect)
        if effect.at == "claim":
            return standing
        future = asyncio.ensure_future(standing)
        future.add_done_callback(lambda _: gate._bell.ring(effect.write.id))
        return future

    async def _call(self, operation: Operation) -> Returned | Raised:
        gate = self._gate
        operation.started = True
        if self._joined is None and self._ask is not None:
            gate._housekeeping.count()
            gate._renewer.watch(self._ask, operation, operation.record)
        try:
            value = self._invoke(operation)
            if inspect.isawaitable(value):
                value = await value
        except GeneratorExit:
            raise
        except BaseException as error:
            return Raised(error)
        finally:
            if self._joined is None:
                gate._renewer.unwatch(operation)
        return Returned(value)

    def _seldom(self, effect: Effect) -> Awaitable[Any]:
        gate, joined = self._gate, self._joined
        match effect:
            case Pause():
                return gate._bell.pause(effect.id, effect.seconds)
            case Extend():
                return gate.store.extend(effect.family, effect.replay, effect.forget)
            case Probe():
                return self._ask_probe(effect.operation)
            case Begin() if joined is not None:
                return _blocking(joined.begin)
            case Commit() if joined is not None:
                return _blocking(joined.commit)
            case Rollback() if joined is not None:
                return _blocking(joined.rollback)
        raise ConfigurationError(f"an awaiting gate cannot perform {type(effect).__name__}")

    async def _ask_probe(self, operation: Operation) -> Returned | Raised:
        try:
            answer = self._probe(operation) if self._probe is not None else None
            return Returned(await answer if inspect.isawaitable(answer) else answer)
        except GeneratorExit:
            raise
        except BaseException as error:
            return Raised(error)


async def _blocking(work: Callable[..., T], *arguments: Any) -> T:
    """A statement on the caller's own blocking connection: it is theirs, so it runs where they are."""
    return work(*arguments)


def _unreachable(operation: Operation) -> Any:
    raise ConfigurationError("this flow calls no function")
