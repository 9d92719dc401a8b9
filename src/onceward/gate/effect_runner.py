"""
Performs what a flow yields: calls the store, the caller's function, the clock. One class for each colour.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from onceward._core.caller_transaction import CallerTransaction
from onceward._core.caller_transaction_async import AsyncCallerTransaction, AsyncFinishing
from onceward._core.errors import ConfigurationError
from onceward._core.flow import (
    LEASE_BEGINS,
    OUTSIDE_TRANSACTION,
    AfterCommit,
    Begin,
    Boottime,
    CallFunction,
    CheckProcess,
    CheckRefusal,
    Commit,
    Effect,
    Emit,
    Extend,
    Finish,
    Flow,
    HandOver,
    Load,
    LoadInTransaction,
    Monotonic,
    Pause,
    PayForRerun,
    Probe,
    Put,
    PutBack,
    Raised,
    RandomBytes,
    Returned,
    Rollback,
    Sleep,
)
from onceward._core.operation import Operation
from onceward._core.record import PutResult, Record, Write, new_tuple
from onceward._core.settle_inside_flow import INSIDE
from onceward._core.unrun_results import DATA
from onceward.adapters._transaction import finish
from onceward.adapters._transaction_async import finish_async
from onceward.gate.call_factory import PreparedCall
from onceward.gate.running_operation import RunningOperation
from onceward.gate.transaction_settler import GateTransactionSettler, identify_store
from onceward.runtime import failpoints
from onceward.runtime.flow_driver import PendingCancellation, arun, await_to_end, leave_behind, run, running_loop

if TYPE_CHECKING:
    from onceward.gate.gate import Gate
    from onceward.gate.gate_async import AsyncGate

T = TypeVar("T")


class EffectRunner:
    """Performs the effects of one call, by blocking."""

    __slots__ = ("_gate", "_joined", "_prepared", "_sent")

    def __init__(self, gate: Gate, prepared: PreparedCall, joined: CallerTransaction | None) -> None:
        self._gate = gate
        self._prepared = prepared
        self._joined = joined
        self._sent = 0.0
        """When the last claim was sent, on the clock that counts suspension: its lease began no earlier."""

    def drive(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return run(flow, self.perform)

    def perform(self, effect: Effect) -> Any:
        """Do one thing."""
        kind = type(effect)
        if kind is Put:
            return self._put(*effect)
        if kind is CallFunction:
            return self._call(effect.operation)  # type: ignore[union-attr]
        if kind is RandomBytes:
            return self._gate.environment.random(48)
        if kind is Load:
            return self._load(effect)  # type: ignore[arg-type]
        return self._perform_other(effect)

    def _put(self, at: str, write: Write, expect: bytes | None) -> PutResult:
        if self._joined is not None and at not in OUTSIDE_TRANSACTION:
            return self._joined.put(write, expect)
        if at in LEASE_BEGINS:
            self._sent = self._gate.environment.boottime()
        result = self._gate.store.put(write, expect)
        if result.landed and at != "claim":
            self._gate._waiters.notify(write.id)
        return result

    # What the straight line of atomic mode does without a flow, in the caller's transaction.

    def _now(self) -> float:
        return self._gate.environment.monotonic()

    def _begin(self) -> bool:
        return self._transaction().begin()

    def _look(self, id: bytes) -> Record | None:
        return self._transaction().load(id)

    def _finish(self, write: Write, expect: bytes | None) -> PutResult:
        return finish(self._transaction(), write, expect)

    def _commit(self) -> None:
        self._transaction().commit()

    def _follow(self, after: AfterCommit) -> None:
        if self._gate._after(after, self._joined):
            self._gate._purger.follow()

    def _transaction(self) -> CallerTransaction:
        if self._joined is None:
            raise ConfigurationError("this is not in a transaction of the caller's")
        return self._joined

    def _load(self, effect: Load) -> Record | None:
        if effect.at == "inside.load":
            self._gate._waiters.notify(effect.id)  # Whoever waits can see as much as we.
        return self._gate.store.load(effect.id)

    def _begin_call(self, operation: Operation) -> None:
        """The function is about to be prepared, or whoever holds the operation does its work."""
        gate, request = self._gate, self._prepared.request
        if request.terms.settle == INSIDE:
            operation.inside = GateTransactionSettler(request, operation, gate.store, gate.environment, awaits=False)
        if self._joined is None:
            operation.confirm(self._sent, request.claimant.lease)
            gate._purge_schedule.left -= 1
            gate._renewer.watch(request, operation, operation.record)
        operation.started = True  # Last: until here, whatever is raised has kept it from running.

    def _call(self, operation: Operation) -> Returned | Raised:
        gate = self._gate
        self._begin_call(operation)
        running = RunningOperation(operation)
        try:
            around = self._prepared.request.resilience
            value = self._prepared.invoke(operation) if around is None else around.run(operation, self._prepared)
        except BaseException as error:
            return Raised(error)
        finally:
            running.end()
            if self._joined is None:
                gate._renewer.unwatch(operation)
        returned: Returned = new_tuple(Returned, (value,))
        return returned

    def _perform_other(self, effect: Effect) -> Any:
        gate, joined = self._gate, self._joined
        match effect:
            case Monotonic():
                return gate.environment.monotonic()
            case Boottime():
                return gate.environment.boottime()
            case PutBack():
                result = gate.store.put_back(effect.write, effect.marks)
                gate._waiters.notify(effect.write.id)
                return result
            case CheckProcess():
                return gate.environment.lives(effect.process)
            case CheckRefusal():
                return effect.resilience.refusal()
            case PayForRerun():
                return effect.resilience.pay()
            case Pause():
                return gate._waiters.pause(effect.id, effect.seconds)
            case Sleep():
                return gate.environment.sleep(effect.seconds)
            case Emit():
                return gate._call_factory.tell(effect.event)
            case HandOver():
                failpoints.hit("call.before")
                return self._begin_call(effect.operation)
            case AfterCommit():
                return self._follow(effect)
            case Extend():
                register = gate.store if joined is None else joined
                return register.extend(effect.family, effect.replay, effect.forget)
            case Probe():
                return self._run_probe(effect.operation)
            case Begin() if joined is not None:
                return joined.begin()
            case LoadInTransaction() if joined is not None:
                return joined.load(effect.id)
            case Finish() if joined is not None:
                return finish(joined, effect.write, effect.expect)
            case Commit() if joined is not None:
                return joined.commit()
            case Rollback() if joined is not None:
                return joined.rollback()
        raise ConfigurationError(f"a blocking gate cannot perform {type(effect).__name__}")

    def _run_probe(self, operation: Operation) -> Returned | Raised:
        gate, probe = self._gate, self._prepared.probe
        operation.confirm(self._sent, self._prepared.request.claimant.lease)
        gate._renewer.watch(self._prepared.request, operation, operation.record)
        try:
            return Returned(probe(operation) if probe is not None else None)
        except BaseException as error:
            return Raised(error)
        finally:
            gate._renewer.unwatch(operation)


class AsyncEffectRunner:
    """Performs the effects of one call, by awaiting."""

    __slots__ = ("_gate", "_joined", "_kept", "_prepared", "_sent", "_work")

    def __init__(self, gate: AsyncGate, prepared: PreparedCall, joined: AsyncCallerTransaction | None) -> None:
        self._gate = gate
        self._prepared = prepared
        self._joined = joined
        self._sent = 0.0
        """When the last claim was sent, on the clock that counts suspension: its lease began no earlier."""
        self._kept: PendingCancellation | None = None
        """A cancellation that came while a put was under way outside of a flow."""
        self._work: asyncio.Future[Any] | None = None
        """That put."""

    async def drive(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return await arun(flow, self._instant, self.perform, self._kept)

    def _instant(self, effect: Effect) -> Any:
        """Do one thing that takes no time."""
        kind = type(effect)
        if kind is RandomBytes:
            return self._gate.environment.random(48)
        if kind is Monotonic:
            return self._gate.environment.monotonic()
        if kind is Boottime:
            return self._gate.environment.boottime()
        if kind is Emit:
            return self._gate._call_factory.tell(effect.event)  # type: ignore[union-attr]
        if kind is CheckProcess:
            return self._gate.environment.lives(effect.process)  # type: ignore[union-attr]
        if kind is CheckRefusal:
            return effect.resilience.refusal()  # type: ignore[union-attr]
        raise ConfigurationError(f"{type(effect).__name__} takes time")

    def perform(self, effect: Effect) -> Awaitable[Any]:
        """Begin one thing; the answer is to be awaited. A store's future is already under way when this returns."""
        kind = type(effect)
        if kind is Put:
            return self._begin_put(*effect)
        if kind is CallFunction:
            return self._call(effect.operation)  # type: ignore[union-attr]
        if kind is Load:
            return self._load(effect)  # type: ignore[arg-type]
        if self._joined is not None:
            if kind is LoadInTransaction:
                return self._joined.load(effect.id)  # type: ignore[union-attr]
            if kind is Begin:
                return self._joined.begin()
            if kind is Finish and isinstance(self._joined, AsyncFinishing):
                return self._joined.finish(effect.write, effect.expect)  # type: ignore[union-attr]
        return self._perform_other(effect)

    def _begin_put(self, at: str, write: Write, expect: bytes | None) -> Awaitable[PutResult]:
        gate = self._gate
        if self._joined is not None and at not in OUTSIDE_TRANSACTION:
            return self._joined.put(write, expect)
        if at in LEASE_BEGINS:
            self._sent = gate.environment.boottime()
        result = gate.store.put(write, expect)
        if at == "claim" or not gate._waiters.has_waiters(write.id):
            return result  # Whoever begins to wait from now on looks again by himself, soon.
        future = asyncio.ensure_future(result)
        future.add_done_callback(lambda _: gate._waiters.notify(write.id))
        return future

    def _put(self, at: str, write: Write, expect: bytes | None) -> Awaitable[PutResult]:
        """Put outside of a flow, to the end."""
        running_loop()
        return self._to_end(self._begin_put(at, write, expect))

    def _to_end(self, begun: Awaitable[T]) -> Awaitable[T]:
        """Something outside of a flow, awaited to its end: a cancellation that comes meanwhile is kept."""
        work = self._work = begun if isinstance(begun, asyncio.Future) else asyncio.ensure_future(begun)
        if work.done():
            return work
        if self._kept is None:
            self._kept = PendingCancellation()
        return await_to_end(work, self._kept)

    # What the straight line of atomic mode does without a flow, in the caller's transaction.

    async def _now(self) -> float:
        return self._gate.environment.monotonic()

    def _begin(self) -> Awaitable[bool]:
        running_loop()
        return self._to_end(self._transaction().begin())

    def _look(self, id: bytes) -> Awaitable[Record | None]:
        return self._to_end(self._transaction().load(id))

    def _finish(self, write: Write, expect: bytes | None) -> Awaitable[PutResult]:
        return self._to_end(finish_async(self._transaction(), write, expect))

    def _commit(self) -> Awaitable[None]:
        return self._to_end(self._transaction().commit())

    async def _follow(self, after: AfterCommit) -> None:
        if self._gate._after(after, self._joined):
            await self._gate._purger.follow()

    def _transaction(self) -> AsyncCallerTransaction:
        if self._joined is None:
            raise ConfigurationError("this is not in a transaction of the caller's")
        return self._joined

    def _abandon(self, flow: Flow[Any], answers: list[Any]) -> None:
        """The coroutine is being closed: what the flow would want written after these answers is left to the loop."""
        if self._work is not None:
            leave_behind(self._work.get_loop(), flow, self._work, self._instant, self.perform, answers)

    def _load(self, effect: Load) -> Awaitable[Any]:
        if effect.at == "inside.load":
            self._gate._waiters.notify(effect.id)  # Whoever waits can see as much as we.
        return self._gate.store.load(effect.id)

    async def _begin_call(self, operation: Operation) -> None:
        """The function is about to be prepared, or whoever holds the operation does its work."""
        gate, request = self._gate, self._prepared.request
        if request.terms.settle == INSIDE:
            await identify_store(gate.store)
            operation.inside = GateTransactionSettler(request, operation, gate.store, gate.environment, awaits=True)
        if self._joined is None:
            operation.confirm(self._sent, request.claimant.lease)
            gate._purge_schedule.left -= 1
            gate._renewer.watch(request, operation, operation.record)
        operation.started = True  # Last: until here, whatever is raised has kept it from running.

    async def _call(self, operation: Operation) -> Returned | Raised:
        gate = self._gate
        if self._joined is None or self._prepared.request.terms.settle == INSIDE:
            await self._begin_call(operation)
        else:
            operation.started = True
        running = RunningOperation(operation)
        try:
            around = self._prepared.request.resilience
            value = self._prepared.invoke(operation) if around is None else around.arun(operation, self._prepared)
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
        returned: Returned = new_tuple(Returned, (value,))
        return returned

    def _perform_other(self, effect: Effect) -> Awaitable[Any]:
        gate, joined = self._gate, self._joined
        match effect:
            case Pause():
                return gate._waiters.pause(effect.id, effect.seconds)
            case Sleep():
                return gate.environment.asleep(effect.seconds)
            case PayForRerun(around):
                paid: Awaitable[bool] = around.apay()
                return paid
            case PutBack():
                return self._put_back(effect)
            case HandOver():
                failpoints.hit("call.before")
                return self._begin_call(effect.operation)
            case AfterCommit():
                return self._follow(effect)
            case Extend() if joined is not None:
                return joined.extend(effect.family, effect.replay, effect.forget)
            case Extend():
                return gate.store.extend(effect.family, effect.replay, effect.forget)
            case Probe():
                return self._run_probe(effect.operation)
            case Finish() if joined is not None:
                return finish_async(joined, effect.write, effect.expect)
            case Commit() if joined is not None:
                return joined.commit()
            case Rollback() if joined is not None:
                return joined.rollback()
        raise ConfigurationError(f"an awaiting gate cannot perform {type(effect).__name__}")

    async def _put_back(self, effect: PutBack) -> PutResult:
        result = await self._gate.store.put_back(effect.write, effect.marks)
        self._gate._waiters.notify(effect.write.id)
        return result

    async def _run_probe(self, operation: Operation) -> Returned | Raised:
        gate = self._gate
        operation.confirm(self._sent, self._prepared.request.claimant.lease)
        gate._renewer.watch(self._prepared.request, operation, operation.record)
        try:
            answer = self._prepared.probe(operation) if self._prepared.probe is not None else None
            return Returned(await answer if inspect.isawaitable(answer) else answer)
        except GeneratorExit:
            raise
        except BaseException as error:
            return Raised(error)
        finally:
            gate._renewer.unwatch(operation)
