"""
The straight line beside the flow: whatever the schedule, both want the same, tell the same and end the same.

The straight line is the gate's own (`gate/straight_line_async.py`; in the caller's transaction
`gate/atomic_line_async.py`), a coroutine. Here its puts and its function are effects, as a flow's are, so the explorer
answers both, each with the same. Where they differ, both end with `WaysDiffer`, and an invariant notices that.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, cast

from onceward._core.atomic_flow import event_in_transaction, operate_atomic
from onceward._core.caller_transaction_async import AsyncCallerTransaction
from onceward._core.errors import OncewardError
from onceward._core.events import Event, EventType
from onceward._core.finish_flow import event_about
from onceward._core.flow import (
    MONOTONIC,
    AfterCommit,
    Begin,
    CallFunction,
    Commit,
    Effect,
    Emit,
    Finish,
    Flow,
    LoadInTransaction,
    Probe,
    Put,
    Raised,
    Returned,
)
from onceward._core.operation import Operation, Outcome
from onceward._core.operation_flow import OperationRequest, operate
from onceward._core.record import PutResult, Record, Write
from onceward.gate.atomic_line_async import AsyncAtomicLine
from onceward.gate.call_factory import PreparedCall, unreachable
from onceward.gate.gate_async import AsyncGate
from onceward.gate.straight_line_async import AsyncStraightLine
from onceward.testing.clock import StillEnvironment
from onceward.testing.explorer.actors import Interrupted


class WaysDiffer(Exception):
    """At some step the straight line did what the flow does not."""


def go_both_ways(request: OperationRequest) -> Flow[Outcome[Any]]:
    """What `operate` does; beside it goes the straight line, which must do the same."""
    return _go(request._replace(listening=True), operate, _Line)


def go_both_ways_joined(request: OperationRequest) -> Flow[Outcome[Any]]:
    """What `operate_atomic` does, beside the straight line of atomic mode; the flow alone, where that has no line."""
    if request.terms.remember == "all":
        return operate_atomic(request)
    return _go(request._replace(listening=True), operate_atomic, _JoinedLine)


def _go(
    request: OperationRequest,
    flow_of: Callable[[OperationRequest], Flow[Outcome[Any]]],
    line_of: type[_Line] | type[_JoinedLine],
) -> Flow[Outcome[Any]]:
    flow = _Way(flow_of(request))
    chance = yield flow.effect
    flow.send(chance)
    line = line_of(request, chance)
    straight = _Way(line.run(), line.told)
    while True:
        _compare(flow, straight)
        if flow.is_over:
            return flow.end()  # type: ignore[no-any-return]
        try:
            answer = yield flow.effect
        except GeneratorExit:
            raise
        except BaseException as error:
            _share_operation(flow.effect, straight.effect)
            flow.throw(error)
            straight.throw(error)
        else:
            _share_operation(flow.effect, straight.effect)
            flow.send(answer)
            straight.send(answer)


class _Way:
    """One of the two: where it stands, and what it has told."""

    def __init__(self, steps: Flow[Any] | Coroutine[Any, Any, Any], told: list[Event] | None = None) -> None:
        self._steps = steps
        self.told: list[Event] = [] if told is None else told
        self.effect: Any = None
        self.is_over = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.send(None)

    def send(self, answer: Any) -> None:
        """Go on with this answer."""
        self._go(self._steps.send, answer)

    def throw(self, error: BaseException) -> None:
        """Go on with this error."""
        self._go(self._steps.throw, error)

    def _go(self, on: Callable[[Any], Any], with_: Any) -> None:
        """To the next effect that is not an event."""
        try:
            self.effect = on(with_)
            while type(self.effect) is Emit:
                self.told.append(self.effect.event)
                self.effect = self._steps.send(None)
        except StopIteration as stop:
            self.effect, self.is_over, self.value = None, True, stop.value
        except (Exception, Interrupted) as error:
            self.effect, self.is_over, self.error = None, True, error

    def end(self) -> Any:
        """What it came to."""
        if self.error is not None:
            raise self.error
        return self.value


class _Line(AsyncStraightLine):
    """The gate's straight line, whose puts and function are left to the explorer."""

    __slots__ = ("told",)

    def __init__(self, request: OperationRequest, chance: bytes) -> None:
        super().__init__(cast("AsyncGate", _Gate(chance)), PreparedCall(request, unreachable))
        self.told: list[Event] = []

    async def drive(self, flow: Flow[Any]) -> Any:
        """Off the line: the effects of its flow are the explorer's, too."""
        return await _Asked(flow)

    async def _put(self, at: str, write: Write, expect: bytes | None) -> PutResult:
        return cast("PutResult", await _Asked(_one(Put(at, write, expect))))

    async def _call(self, operation: Operation) -> Returned | Raised:
        return cast("Returned | Raised", await _Asked(_one(CallFunction("call", operation))))

    def _tell(self, happening: EventType, about: Record) -> None:
        self.told.append(event_about(happening, about))


class _JoinedLine(AsyncAtomicLine):
    """The gate's straight line of atomic mode, whose transaction, function and clock are left to the explorer."""

    __slots__ = ("told",)

    def __init__(self, request: OperationRequest, chance: bytes) -> None:
        gate, prepared = cast("AsyncGate", _Gate(chance)), PreparedCall(request, unreachable)
        super().__init__(gate, prepared, cast("AsyncCallerTransaction", None))
        self.told: list[Event] = []

    async def drive(self, flow: Flow[Any]) -> Any:
        """Off the line: the effects of its flow are the explorer's, too."""
        return await _Asked(flow)

    async def _now(self) -> float:
        return cast("float", await _Asked(_one(MONOTONIC)))

    async def _begin(self) -> bool:
        return cast("bool", await _Asked(_one(Begin("begin"))))

    async def _look(self, id: bytes) -> Record | None:
        return cast("Record | None", await _Asked(_one(LoadInTransaction("peek", id))))

    async def _put(self, at: str, write: Write, expect: bytes | None) -> PutResult:
        return cast("PutResult", await _Asked(_one(Put(at, write, expect))))

    async def _finish(self, write: Write, expect: bytes | None) -> PutResult:
        return cast("PutResult", await _Asked(_one(Finish("settle", write, expect))))

    async def _commit(self) -> None:
        await _Asked(_one(Commit("commit")))

    async def _follow(self, after: AfterCommit) -> None:
        await _Asked(_one(after))

    async def _call(self, operation: Operation) -> Returned | Raised:
        return cast("Returned | Raised", await _Asked(_one(CallFunction("call", operation))))

    def _tell(self, happening: EventType, about: Outcome[Any]) -> None:
        self.told.append(event_in_transaction(self._prepared.request, happening, about.attempt, about.fence))


class _Gate:
    """As much of a gate as the straight line needs here: chance, which the flow was given, too."""

    def __init__(self, chance: bytes) -> None:
        self.environment = _Chance(chance)


class _Chance(StillEnvironment):
    def __init__(self, chance: bytes) -> None:
        super().__init__()
        self._chance = chance

    def random(self, size: int) -> bytes:
        """What the flow was given."""
        return self._chance[:size]


class _Asked:
    """Awaits a generator: what that yields, whoever drives the coroutine is asked for."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps


def _one(effect: Effect) -> Generator[Effect, Any, Any]:
    return (yield effect)


def _share_operation(one: Any, other: Any) -> None:
    """A function ran once, with the flow's operation: the other way's has lived through the same."""
    if isinstance(one, CallFunction | Probe) and one.operation is not other.operation:
        for name in _LIVED:
            setattr(other.operation, name, getattr(one.operation, name))


_LIVED = tuple(name for name in Operation.__slots__ if name not in ("__weakref__", "record"))


def _compare(flow: _Way, straight: _Way) -> None:
    for what, one, other in (
        ("wants", _shown(flow.effect), _shown(straight.effect)),
        ("has told", flow.told, straight.told),
        ("ends with", _ended(flow), _ended(straight)),
    ):
        if one != other:
            raise WaysDiffer(f"the flow {what} {one!r}, and the straight line {what} {other!r}")


def _shown(effect: Any) -> Any:
    """An effect as it can be compared: an operation by its record and its key."""
    if isinstance(effect, CallFunction | Probe):
        return (type(effect), effect.at, effect.operation.record, effect.operation.key)
    return effect


def _ended(way: _Way) -> Any:
    error = way.error
    if error is None:
        return (way.is_over, way.value)
    about = (error.digest, error.fence, error.first_at) if isinstance(error, OncewardError) else None
    return (type(error), str(error), about, getattr(error, "__notes__", None))
