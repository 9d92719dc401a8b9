"""
`AsyncGate`: the shell for awaiting callers. Same names as `Gate`, same flows; only the performing differs.

A cancelled caller is dealt with by the driver and the flow: before the function has begun its effect the claim is
released, from there on it is unknown what happened. A write to the store is never abandoned half way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from copy import copy
from functools import partial, wraps
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, cast, overload

from onceward import failpoints
from onceward._core import advice
from onceward._core.capabilities import of_colour
from onceward._core.durations import SECOND
from onceward._core.engine import Ask, reconcile
from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward._core.events import Listener
from onceward._core.flow import After, Flow, Raised
from onceward._core.inside import operation_flow
from onceward._core.joined import operate_joined
from onceward._core.letters import KEEP, PAYLOAD_BYTES_MAX
from onceward._core.operation import Found, NotFound, Operation, Outcome
from onceward._core.record import Record
from onceward._core.register import AsyncStore, Purged
from onceward._core.terms import CallOptions, Options, Seconds, Terms
from onceward.drive import arun, running_loop
from onceward.environment import Environment
from onceward.gate.afterwards import AsyncAfterwards
from onceward.gate.asking import (
    PURGE_BATCH,
    Asking,
    Called,
    Housekeeping,
    check_answered,
    tidying_failed,
    unreachable,
)
from onceward.gate.atomic import AsyncAtomicBlock
from onceward.gate.dead import AsyncDeadLetterBox
from onceward.gate.declaring import publish
from onceward.gate.holding import AsyncHolding, until_called
from onceward.gate.joining import AsyncJoined, join_async, walk_async
from onceward.gate.performing import AsyncPerformer
from onceward.gate.plan import AsyncPlan
from onceward.gate.records import AsyncRecords, RecordView, view
from onceward.gate.renewal import AsyncRenewer
from onceward.gate.sealing import Seal
from onceward.gate.sequence import AsyncSequence
from onceward.gate.signatures import AsyncDeclare
from onceward.gate.strict import begin
from onceward.gate.waiting import AsyncBell
from onceward.gate.window import AsyncWindow
from onceward.outbox.adding import AsyncOutbox
from onceward.stores import open_async_store

T = TypeVar("T")


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
        self.store: AsyncStore = open_async_store(store) if isinstance(store, str) else of_colour(store, awaits=True)
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
        self._afterwards = AsyncAfterwards(self.environment, self.store, self._asking.tell, self._tidy)
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
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> Outcome[Any]:
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
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
    ) -> Outcome[Any]:
        """Same as `Gate.call_on`, but awaits."""
        called = self._asking.called_or_replayed(key, fn, request, name, probe, None, terms, awaits=True)
        if isinstance(called, Outcome):
            return called
        return await self.drive(operation_flow(called.ask), called)

    async def hold(
        self,
        key: str,
        *,
        request: Any = None,
        name: str = "",
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> AsyncHolding | Outcome[Any]:
        """Same as `Gate.hold`, but awaits; so does `end`."""
        terms = self._asking.agreed(options)
        called = self._asking.called_or_replayed(key, unreachable, request, name, probe, marked, terms, awaits=True)
        return called if isinstance(called, Outcome) else await self.held(operation_flow(called.ask), called)

    async def run(self, key: str, fn: Callable[..., Any], **options: Unpack[CallOptions]) -> Any:
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
    ) -> AsyncDeclare:
        """Same as `Gate.once`; the result is to be awaited."""
        check_answered(options)
        terms = self._asking.agreed(options)

        def decorate(fn: Callable[..., Any]) -> Any:
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

            async def call(*args: Any, **kwargs: Any) -> Outcome[Any]:
                called, arguments = self._asking.declared_ask(taken, terms, args, kwargs, probe)
                if isinstance(called, Outcome):
                    return called
                if taken.connection is not None:
                    joined = join_async(arguments[taken.connection], self.store)
                    return await self.drive(operate_joined(called.ask), called, joined)
                return await self.drive(operation_flow(called.ask), called)

            @wraps(fn)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                return (await call(*args, **kwargs)).answer

            vars(wrapper).update(
                call=call, key_of=taken.key_of, contract=taken.contract(terms), __signature__=taken.signature
            )
            publish(wrapper, taken, terms)
            return wrapper

        return cast("AsyncDeclare", decorate)

    @overload
    def atomic(
        self,
        connection: Any,
        key: str,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> Coroutine[Any, Any, Any]: ...

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
        called = self._asking.joined((self._asking.stored_key(key),), fn, request, name, options, given=key)
        if fn is None:
            performer = AsyncPerformer(self, called, joined)
            return AsyncAtomicBlock(called.ask, operate_joined(called.ask), performer.instant, performer.perform)
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
        running_loop()
        return await self.store.purge(limit)

    async def close(self) -> None:
        """Close the store."""
        if not self._borrowed:
            await self._afterwards.close()
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
        performer = AsyncPerformer(self, called, joined)
        try:
            outcome = await arun(flow, performer.instant, performer.perform)
        except OncewardError as error:
            advice.asked(error, called.ask.claimant)
            raise
        if joined is None and self._housekeeping.is_due():
            await self._tidy()
        return outcome

    async def _tidy(self) -> None:
        """Same as `Gate._tidy`, but awaits."""
        try:
            await self.store.purge(Housekeeping.PURGE_LIMIT)
        except StoreUnavailable:
            return
        except Exception:
            tidying_failed()

    def _after(self, after: After, joined: AsyncJoined | None) -> Awaitable[None]:
        """Same as `Gate._after`, but awaits."""
        self._housekeeping.count()
        tidies = self._housekeeping.is_due()
        if not after.committed:
            if after.events or tidies:
                self._afterwards.follow(after, joined, tidies=tidies)
        else:
            self._afterwards.tell(after)
            if tidies:
                return self._tidy()
        done = running_loop().create_future()
        done.set_result(None)
        return done

    async def held(self, flow: Flow[Outcome[Any]], called: Called) -> AsyncHolding | Outcome[Any]:
        """Same as `Gate.held`, but awaits."""
        if called.ask.around is not None and called.ask.around.repeats:
            raise ConfigurationError(
                "whoever holds an operation does its work himself: breaker and budget, but no retry"
            )
        performer = AsyncPerformer(self, called, None)
        try:
            found = await arun(until_called(flow), performer.instant, performer.perform)
        except OncewardError as error:
            advice.asked(error, called.ask.claimant)
            raise
        if isinstance(found, Outcome):
            return found
        operation = found.operation
        failpoints.hit("call.before")
        await performer.begin_call(operation)

        async def finish(rest: Flow[Outcome[Any]], operation: Operation) -> Outcome[Any]:
            self._renewer.unwatch(operation)
            return await self.drive(rest, called)

        holding, around = AsyncHolding(operation, flow, begin(operation), finish), called.ask.around
        if around is not None:
            try:
                holding.left = await around.aenter(operation)
            except OncewardError as refused:
                return await holding.end(Raised(refused))
        return holding

    async def _renew(self, ask: Ask, flow: Flow[Record]) -> Record:
        performer = AsyncPerformer(self, Called(ask, unreachable), None)
        return await arun(flow, performer.instant, performer.perform)
