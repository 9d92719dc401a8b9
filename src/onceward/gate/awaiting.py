"""
`AsyncGate`: the shell for awaiting callers. Same names as `Gate`, same flows; only the performing differs.

A cancelled caller is dealt with by the driver and the flow: before the function has begun its effect the claim is
released, from there on it is unknown what happened. A write to the store is never abandoned half way.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from copy import copy
from functools import partial, wraps
from types import CoroutineType, TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, Unpack, cast, overload

from onceward._core import advice
from onceward._core.durations import SECOND
from onceward._core.engine import Ask, reconcile
from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward._core.events import Listener
from onceward._core.flow import (
    Begin,
    Call,
    Chance,
    Commit,
    Consult,
    Effect,
    Emit,
    Extend,
    Finish,
    Flow,
    Load,
    Monotonic,
    Pause,
    Pay,
    Peek,
    Probe,
    Put,
    Raised,
    Returned,
    Rollback,
    Sleep,
)
from onceward._core.inside import INSIDE, operation_flow
from onceward._core.joined import operate_joined
from onceward._core.letters import KEEP, PAYLOAD_BYTES_MAX
from onceward._core.operation import Found, NotFound, Operation, Outcome
from onceward._core.record import Record
from onceward._core.register import AsyncStore, Purged
from onceward._core.terms import CallOptions, Options, Seconds, Terms
from onceward.drive import arun
from onceward.environment import Environment
from onceward.gate.asking import DATA, PURGE_BATCH, Asking, Called, Housekeeping, check_answered, unreachable
from onceward.gate.atomic import AsyncAtomicBlock
from onceward.gate.dead import AsyncDeadLetterBox
from onceward.gate.declaring import OperationContract, publish
from onceward.gate.inside import SettlesInside, introduce
from onceward.gate.joining import AsyncJoined, finish_async, join_async, peek_async, walk_async
from onceward.gate.plan import AsyncPlan
from onceward.gate.records import AsyncRecords, RecordView, view
from onceward.gate.renewal import AsyncRenewer
from onceward.gate.sealing import Seal
from onceward.gate.sequence import AsyncSequence
from onceward.gate.strict import begin
from onceward.gate.waiting import AsyncBell
from onceward.gate.window import AsyncWindow
from onceward.outbox.adding import AsyncOutbox
from onceward.stores import open_async_store

T = TypeVar("T")


class AsyncOnceFunction(Protocol[T]):
    """Same as `OnceFunction`, but awaits."""

    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, T]:
        """Run it once per key; the value."""

    def call(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Outcome[T]]:
        """Same, and tell how that came about."""

    def key_of(self, *args: Any, **kwargs: Any) -> str:
        """The key of a call with these arguments; nothing is run."""

    @property
    def contract(self) -> OperationContract:
        """What callers may rely on: what identifies an operation, and for how long."""


class AsyncGate:
    """Same as `Gate`, but awaits. Functions are async; a plain one is run too, on the event loop."""

    def __init__(
        self,
        store: str | AsyncStore,
        *,
        scope: str,
        listeners: Iterable[Listener] = (),
        environment: Environment | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.store: AsyncStore = open_async_store(store) if isinstance(store, str) else store
        self._asking = Asking(
            scope,
            environment=environment,
            listeners=listeners,
            options=options,
            store=self.store,
        )
        self.environment = self._asking.environment
        self._bell = AsyncBell(self.environment)
        self._renewer = AsyncRenewer(self.environment, self._renew)
        self._housekeeping = Housekeeping()
        self._borrowed = False

    @property
    def scope(self) -> str:
        """Who the keys belong to."""
        return self._asking.scope

    def scoped(self, scope: str | None) -> Self:
        """Same as `Gate.scoped`."""
        twin = copy(self)
        twin._asking = self._asking.scoped(scope)
        twin._borrowed = True
        return twin

    def agreed(self, **options: Unpack[Options]) -> Terms:
        """Same as `Gate.agreed`."""
        return self._asking.agreed(options)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Same as `Gate.listen`."""
        return self._asking.listen(listener)

    # --- running operations ---

    async def call(
        self,
        key: str,
        fn: Callable[..., Awaitable[T]],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> Outcome[T]:
        """Same as `Gate.call`, but awaits."""
        called = self._asking.called_or_replayed(
            key, fn, request, name, probe, marked, self._asking.agreed(options), awaits=True
        )
        if isinstance(called, Outcome):
            return called
        return await self.drive(operation_flow(called.ask), called)

    async def call_on(
        self,
        terms: Terms,
        key: str,
        fn: Callable[..., Awaitable[T]],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
    ) -> Outcome[T]:
        """Same as `Gate.call_on`, but awaits."""
        called = self._asking.called_or_replayed(key, fn, request, name, probe, None, terms, awaits=True)
        if isinstance(called, Outcome):
            return called
        return await self.drive(operation_flow(called.ask), called)

    async def run(self, key: str, fn: Callable[..., Awaitable[T]], **options: Unpack[CallOptions]) -> T:
        """Same as `Gate.run`, but awaits."""
        if "in_flight" in options:
            check_answered(options)
        return (await self.call(key, fn, **options)).answer

    def once(
        self,
        *,
        key: str | Callable[..., str],
        name: str | None = None,
        exclude: tuple[str, ...] = (),
        connection: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> Callable[[Callable[..., Awaitable[T]]], AsyncOnceFunction[T]]:
        """Same as `Gate.once`; the result is to be awaited."""
        check_answered(options)
        terms = self._asking.agreed(options)

        def decorate(fn: Callable[..., Awaitable[T]]) -> AsyncOnceFunction[T]:
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
                called, arguments = self._asking.declared_ask(taken, terms, args, kwargs, probe)
                if isinstance(called, Outcome):
                    return called
                if taken.connection is not None:
                    joined = join_async(arguments[taken.connection], self.store)
                    return await self.drive(operate_joined(called.ask), called, joined)
                return await self.drive(operation_flow(called.ask), called)

            @wraps(fn)
            async def wrapper(*args: Any, **kwargs: Any) -> T:
                return (await call(*args, **kwargs)).answer

            vars(wrapper).update(
                call=call, key_of=taken.key_of, contract=taken.contract(terms), __signature__=taken.signature
            )
            publish(wrapper, taken, terms)
            return cast("AsyncOnceFunction[T]", wrapper)

        return decorate

    @overload
    def atomic(
        self,
        connection: Any,
        key: str,
        fn: Callable[..., Awaitable[T]],
        *,
        request: Any = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def atomic(
        self, connection: Any, key: str, *, request: Any = None, name: str | None = None, **options: Unpack[Options]
    ) -> AsyncAtomicBlock: ...

    def atomic(
        self,
        connection: Any,
        key: str,
        fn: Callable[..., Any] | None = None,
        *,
        request: Any = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Same as `Gate.atomic`, but awaits: `await gate.atomic(...)`, or `async with gate.atomic(...)`."""
        joined = join_async(connection, self.store)
        called = self._asking.joined((self._asking.stored_key(key),), fn, request, name, options)
        if fn is None:
            performer = _Performer(self, called, joined)
            return AsyncAtomicBlock(
                called.ask.claimant, operate_joined(called.ask), performer.instant, performer.perform
            )
        return self._atomic(called, joined)

    async def _atomic(self, called: Called, joined: AsyncJoined) -> Any:
        return (await self.drive(operate_joined(called.ask), called, joined)).value

    def outbox(self, connection: Any) -> AsyncOutbox:
        """Same as `Gate.outbox`; `add` is to be awaited."""
        return AsyncOutbox(partial(walk_async, connection, self.store), self.store, self.environment)

    # --- other shapes of the same idea ---

    def plan(self, plan: str, **options: Unpack[Options]) -> AsyncPlan:
        """Same as `Gate.plan`."""
        return AsyncPlan(self, self._asking, plan, options)

    def sequence(self, name: str, **options: Unpack[Options]) -> AsyncSequence:
        """Same as `Gate.sequence`."""
        return AsyncSequence(self, self._asking, name, options)

    def window(
        self, name: str, seconds: Seconds | None = None, *, money: bool = False, **options: Unpack[Options]
    ) -> AsyncWindow:
        """Same as `Gate.window`."""
        return AsyncWindow(self, self._asking, name, seconds, money=money, options=options)

    def dead_letters(
        self,
        *,
        payload: Literal["plain"] | Seal | None = None,
        keep: Seconds = KEEP / SECOND,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> AsyncDeadLetterBox:
        """Same as `Gate.dead_letters`; its methods are to be awaited."""
        return AsyncDeadLetterBox(self, self._asking, payload, keep, payload_bytes_max)

    # --- looking, deciding, tidying ---

    @property
    def records(self) -> AsyncRecords:
        """Same as `Gate.records`; its methods are to be awaited."""
        return AsyncRecords(self.store, self._asking)

    async def reconcile(
        self, key: str, answer: Found | NotFound, *, fence: int | None = None, retain: Seconds | None = None
    ) -> RecordView:
        """Same as `Gate.reconcile`, but awaits."""
        about = self._asking.about((self._asking.stored_key(key),), retain=retain)
        return view(await self.drive(reconcile(about.ask, answer, fence), about))

    async def purge(self, limit: int = PURGE_BATCH) -> Purged:
        """Same as `Gate.purge`, but awaits."""
        return await self.store.purge(limit)

    async def close(self) -> None:
        """Close the store."""
        if not self._borrowed:
            await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- performing effects ---

    async def drive(self, flow: Flow[T], called: Called, joined: AsyncJoined | None = None) -> T:
        """Same as `Gate.drive`, but awaits."""
        performer = _Performer(self, called, joined)
        try:
            outcome = await arun(flow, performer.instant, performer.perform)
        except OncewardError as error:
            advice.asked(error, called.ask.claimant)
            raise
        if self._housekeeping.is_due():
            with suppress(StoreUnavailable):  # Tidying can wait; the answer cannot.
                await self.store.purge(Housekeeping.PURGE_LIMIT)
        return outcome

    async def _renew(self, ask: Ask, flow: Flow[Record]) -> Record:
        performer = _Performer(self, Called(ask, unreachable), None)
        return await arun(flow, performer.instant, performer.perform)


class _Performer:
    """Performs the effects of one call, by awaiting."""

    __slots__ = ("_called", "_gate", "_joined")

    def __init__(self, gate: AsyncGate, called: Called, joined: AsyncJoined | None) -> None:
        self._gate = gate
        self._called = called
        self._joined = joined

    def instant(self, effect: Effect) -> Any:
        """Do one thing that takes no time."""
        kind = type(effect)
        if kind is Chance:
            return self._gate.environment.random(48)
        if kind is Monotonic:
            return self._gate.environment.monotonic()
        if kind is Emit:
            return self._gate._asking.tell(effect.event)  # type: ignore[union-attr]
        if kind is Consult:
            return effect.around.refusal()  # type: ignore[union-attr]
        raise ConfigurationError(f"{type(effect).__name__} takes time")

    def perform(self, effect: Effect) -> Awaitable[Any]:
        """Begin one thing; the answer is to be awaited. A store's future is already under way when this returns."""
        kind = type(effect)
        if kind is Put:
            return self._put(effect)  # type: ignore[arg-type]
        if kind is Call:
            return self._call(effect.operation)  # type: ignore[union-attr]
        if kind is Load:
            return self._load(effect)  # type: ignore[arg-type]
        return self._seldom(effect)

    def _put(self, effect: Put) -> Awaitable[Any]:
        gate = self._gate
        if self._joined is not None and effect.at != "parted":
            return self._joined.put(effect.write, effect.expect)
        standing = gate.store.put(effect.write, effect.expect)
        if effect.at == "claim" or not gate._bell.is_awaited:
            return standing  # Whoever begins to wait from now on looks again by himself, soon.
        future = asyncio.ensure_future(standing)
        future.add_done_callback(lambda _: gate._bell.ring(effect.write.id))
        return future

    def _load(self, effect: Load) -> Awaitable[Any]:
        if effect.at == "inside.load":
            self._gate._bell.ring(effect.id)  # Whoever waits can see as much as we.
        return self._gate.store.load(effect.id)

    async def _call(self, operation: Operation) -> Returned | Raised:
        gate, ask = self._gate, self._called.ask
        if ask.terms.settle == INSIDE:
            await introduce(gate.store)
            operation.inside = SettlesInside(ask, operation, gate.store, gate.environment, awaits=True)
        operation.started = True
        if self._joined is None:
            gate._housekeeping.count()
            gate._renewer.watch(ask, operation, operation.record)
        running = begin(operation)
        try:
            around = ask.around
            value = self._called.invoke(operation) if around is None else around.arun(operation, self._called)
            if type(value) is CoroutineType or (type(value) not in DATA and inspect.isawaitable(value)):
                value = await value
        except GeneratorExit:
            raise
        except BaseException as error:
            return Raised(error)
        finally:
            running.end()
            if self._joined is None:
                gate._renewer.unwatch(operation)
        return Returned(value)

    def _seldom(self, effect: Effect) -> Awaitable[Any]:
        gate, joined = self._gate, self._joined
        match effect:
            case Pay():
                return effect.around.apay()  # type: ignore[no-any-return]
            case Pause():
                return gate._bell.pause(effect.id, effect.seconds)
            case Sleep():
                return gate.environment.asleep(effect.seconds)
            case Extend() if joined is not None:
                return joined.extend(effect.family, effect.replay, effect.forget)
            case Extend():
                return gate.store.extend(effect.family, effect.replay, effect.forget)
            case Probe():
                return self._ask_probe(effect.operation)
            case Begin() if joined is not None:
                return joined.begin()
            case Peek() if joined is not None:
                return peek_async(joined, gate.store, effect)
            case Finish() if joined is not None:
                return finish_async(joined, effect)
            case Commit() if joined is not None:
                return joined.commit()
            case Rollback() if joined is not None:
                return joined.rollback()
        raise ConfigurationError(f"an awaiting gate cannot perform {type(effect).__name__}")

    async def _ask_probe(self, operation: Operation) -> Returned | Raised:
        gate = self._gate
        gate._renewer.watch(self._called.ask, operation, operation.record)
        try:
            answer = self._called.probe(operation) if self._called.probe is not None else None
            return Returned(await answer if inspect.isawaitable(answer) else answer)
        except GeneratorExit:
            raise
        except BaseException as error:
            return Raised(error)
        finally:
            gate._renewer.unwatch(operation)
