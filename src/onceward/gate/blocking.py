"""
`Gate`: the shell for blocking callers.

    gate = Gate("sqlite:///agent.db", scope="live:acme")

    @gate.once(key="charge:{order_id}", guarantee="keyed")
    def charge(order_id: str, amount: Decimal, *, operation: Operation) -> dict: ...

A shell performs effects: it calls the store, the user's function, the clock. It decides nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
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
from onceward._core.register import Purged, Store
from onceward.drive import run
from onceward.environment import Environment
from onceward.gate.asking import Asking, Housekeeping, Invoke, check_blocking, check_joined, checked_body, invoker
from onceward.gate.atomic import AtomicBlock
from onceward.gate.declaring import body_of, name_of
from onceward.gate.joining import Joined, join
from onceward.gate.plan import Plan
from onceward.gate.records import Records, RecordView, view
from onceward.gate.renewal import Renewer
from onceward.gate.sequence import Sequence
from onceward.gate.waiting import Bell
from onceward.gate.window import Window
from onceward.stores import open_store

T = TypeVar("T")


class Gate:
    """
    Operations go through once, and every caller learns the same answer.

    `store` is a URL or a store; `scope` says who is calling (environment and tenant, such as "live:acme"), and comes
    from configuration or authentication, never from a request. Any option of an operation (`lease`, `wait`, `retain`,
    `guarantee`, ...) may be given here as the default for all of them; durations are seconds or timedelta.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        scope: str,
        listeners: Iterable[Listener] = (),
        environment: Environment | None = None,
        **options: Any,
    ) -> None:
        self.store: Store = open_store(store) if isinstance(store, str) else store
        self._asking = Asking(
            scope,
            environment=environment,
            listeners=listeners,
            options=options,
            peeks=bool(getattr(self.store, "peeks", False)),
        )
        self.environment = self._asking.environment
        self._bell = Bell(self.environment)
        self._renewer = Renewer(self.environment, self._renew)
        self._housekeeping = Housekeeping()

    @property
    def scope(self) -> str:
        """Who the keys belong to."""
        return self._asking.scope

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every event from now on; returns the function that stops it."""
        return self._asking.listen(listener)

    # --- running operations ---

    def call(
        self,
        key: str,
        fn: Callable[..., T],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Any,
    ) -> Outcome[T]:
        """
        Run `fn` once under `key`, and tell how that came about.

        `request` is what the key stands for: a retry must bring an equal one. `fn` takes nothing, or the operation.
        """
        asking = self._asking
        terms = asking.agreed(options)
        body = checked_body(fn, terms, awaits=False, probe=probe)
        ask = asking.ask(
            (asking.stored_key(key),),
            request,
            terms,
            operation=name if name is not None else name_of(fn),
            marked=body.marked if marked is None else marked,
            probes=probe is not None,
        )
        return self.drive(operate(ask), ask, invoker(fn, body), probe)

    def run(self, key: str, fn: Callable[..., T], *, request: Any = None, **options: Any) -> T:
        """Same as `call`, but returns the value alone."""
        if options.get("in_flight") == "accept":
            raise ConfigurationError("in_flight='accept' answers with a pending Outcome, so it is for gate.call only")
        return self.call(key, fn, request=request, **options).value

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
    ) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """
        Declare that a function runs once per key.

        `key` is a template over the arguments ("charge:{order_id}") or a function of them; the arguments are the
        request (`exclude` leaves some out). With guarantee="atomic", `connection` names the parameter that carries
        the connection whose transaction the record joins. `.call` on the result returns the whole outcome.
        """
        terms = self._asking.agreed(options)

        def decorate(fn: Callable[..., T]) -> Callable[..., T]:
            taken = self._asking.declare(
                fn,
                key,
                terms=terms,
                awaits=False,
                name=name,
                exclude=exclude,
                connection=connection,
                marked=marked,
                probe=probe,
            )

            def call(*args: Any, **kwargs: Any) -> Outcome[T]:
                ask, invoke, arguments = self._asking.declared_ask(taken, terms, args, kwargs, probe)
                if taken.connection is not None:
                    joined = join(arguments[taken.connection], self.store)
                    return self.drive(operate_joined(ask), ask, invoke, None, joined)
                return self.drive(operate(ask), ask, invoke, probe)

            @wraps(fn)
            def wrapper(*args: Any, **kwargs: Any) -> T:
                return call(*args, **kwargs).value

            wrapper.call = call  # type: ignore[attr-defined]
            wrapper.__signature__ = taken.signature  # type: ignore[attr-defined]
            return wrapper

        return decorate

    @overload
    def atomic(self, connection: Any, key: str, fn: Callable[..., T], *, request: Any = None, **options: Any) -> T: ...

    @overload
    def atomic(self, connection: Any, key: str, *, request: Any = None, **options: Any) -> AtomicBlock: ...

    def atomic(
        self, connection: Any, key: str, fn: Callable[..., Any] | None = None, *, request: Any = None, **options: Any
    ) -> Any:
        """
        Run `fn` once inside your own transaction: record and rows commit together, or not at all.

        With no transaction open on `connection`, one is opened and committed; inside yours, you commit. Without `fn`
        it is a block: `with gate.atomic(connection, key) as operation:`, which must call `operation.settle(value)`
        unless `operation.replayed`.
        """
        name = options.pop("name", None)
        terms = self._asking.agreed({**options, "guarantee": "atomic"})
        check_joined(terms)
        joined = join(connection, self.store)
        named = name if name is not None else (name_of(fn) if fn is not None else "")
        ask = self._asking.ask((self._asking.stored_key(key),), request, terms, operation=named)
        if fn is None:
            return AtomicBlock(
                ask.claimant, operate_joined(ask), self.performer(ask, _unreachable, None, joined).perform
            )
        check_blocking(fn)
        return self.drive(operate_joined(ask), ask, invoker(fn, body_of(fn)), None, joined).value

    # --- other shapes of the same idea ---

    def plan(self, plan: str, **options: Any) -> Plan:
        """A named series of steps, resumed step by step."""
        return Plan(self, self._asking, plan, options)

    def sequence(self, name: str, **options: Any) -> Sequence:
        """Operations numbered from 1, strictly in order, one writer at a time."""
        return Sequence(self, self._asking, name, options)

    def window(self, name: str, seconds: Any = None, *, money: bool = False, **options: Any) -> Window:
        """Best-effort deduplication of equal requests for a while. Not for money."""
        return Window(self, self._asking, name, seconds, money=money, options=options)

    # --- looking, deciding, tidying ---

    @property
    def records(self) -> Records:
        """The records of this scope: list, get, release."""
        return Records(self.store, self._asking)

    def reconcile(self, key: str, answer: Found | NotFound) -> RecordView:
        """Decide an in-doubt operation: `Found(result)` settles it, `NOT_FOUND` releases it."""
        ask = self._asking.ask_about(key)
        return view(self.drive(reconcile(ask, answer), ask, _unreachable))

    def purge(self, limit: int = Housekeeping.PURGE_LIMIT) -> Purged:
        """Delete what may be forgotten and shrink what has expired, at most `limit` of each."""
        return self.store.purge(limit)

    def close(self) -> None:
        """Stop renewing, and close the store."""
        self._renewer.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- performing effects ---

    def drive(
        self,
        flow: Flow[T],
        ask: Ask,
        invoke: Invoke,
        probe: Callable[..., Any] | None = None,
        joined: Joined | None = None,
    ) -> T:
        """Drive a flow to its end. For the shapes built on a gate (plan, sequence, window)."""
        outcome = run(flow, self.performer(ask, invoke, probe, joined).perform)
        if self._housekeeping.is_due():
            self.store.purge(Housekeeping.PURGE_LIMIT)
        return outcome

    def performer(
        self, ask: Ask | None, invoke: Invoke, probe: Callable[..., Any] | None = None, joined: Joined | None = None
    ) -> _Performer:
        """What performs the effects of one call."""
        return _Performer(self, ask, invoke, probe, joined)

    def _renew(self, flow: Flow[Record]) -> Record:
        return run(flow, self.performer(None, _unreachable).perform)


class _Performer:
    """Performs the effects of one call, by blocking."""

    __slots__ = ("_ask", "_gate", "_invoke", "_joined", "_probe")

    def __init__(
        self, gate: Gate, ask: Ask | None, invoke: Invoke, probe: Callable[..., Any] | None, joined: Joined | None
    ) -> None:
        self._gate = gate
        self._ask = ask
        self._invoke = invoke
        self._probe = probe
        self._joined = joined

    def perform(self, effect: Effect) -> Any:
        """Do one thing."""
        kind = type(effect)
        if kind is Load:
            return self._gate.store.load(effect.id)  # type: ignore[union-attr]
        if kind is Put:
            return self._put(effect)  # type: ignore[arg-type]
        if kind is Chance:
            return self._gate.environment.random(48)
        if kind is Call:
            return self._call(effect.operation)  # type: ignore[union-attr]
        return self._seldom(effect)

    def _put(self, effect: Put) -> Any:
        if self._joined is not None:
            return self._joined.put(effect.write, effect.expect)
        standing = self._gate.store.put(effect.write, effect.expect)
        if standing.landed and effect.at != "claim":
            self._gate._bell.ring(effect.write.id)
        return standing

    def _call(self, operation: Operation) -> Returned | Raised:
        gate = self._gate
        operation.started = True
        if self._joined is None and self._ask is not None:
            gate._housekeeping.count()
            gate._renewer.watch(self._ask, operation, operation.record)
        try:
            value = self._invoke(operation)
        except BaseException as error:
            return Raised(error)
        finally:
            if self._joined is None:
                gate._renewer.unwatch(operation)
        return _refuse_awaitable(operation, value) if inspect.isawaitable(value) else Returned(value)

    def _seldom(self, effect: Effect) -> Any:
        gate, joined = self._gate, self._joined
        match effect:
            case Monotonic():
                return gate.environment.monotonic()
            case Pause():
                return gate._bell.pause(effect.id, effect.seconds)
            case Emit():
                return gate._asking.tell(effect.event)
            case Extend():
                return gate.store.extend(effect.family, effect.replay, effect.forget)
            case Probe():
                return self._ask_probe(effect.operation)
            case Begin() if joined is not None:
                return joined.begin()
            case Commit() if joined is not None:
                return joined.commit()
            case Rollback() if joined is not None:
                return joined.rollback()
        raise ConfigurationError(f"a blocking gate cannot perform {type(effect).__name__}")

    def _ask_probe(self, operation: Operation) -> Returned | Raised:
        try:
            return Returned(self._probe(operation) if self._probe is not None else None)
        except BaseException as error:
            return Raised(error)


def _refuse_awaitable(operation: Operation, value: Any) -> Raised:
    """The function gave back something to await, and nobody here awaits: it has not run."""
    if inspect.iscoroutine(value):
        value.close()
        operation.started = False
    return Raised(ConfigurationError("the function returned something to await, and this gate blocks; use AsyncGate"))


def _unreachable(operation: Operation) -> Any:
    raise ConfigurationError("this flow calls no function")
