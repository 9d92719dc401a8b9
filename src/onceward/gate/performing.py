"""
How a blocking gate does what a flow asks for.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from onceward._core.errors import ConfigurationError
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
from onceward._core.inside import INSIDE
from onceward._core.operation import Operation
from onceward._core.record import Record
from onceward.gate.asking import DATA, Called, refuse_awaitable
from onceward.gate.inside import SettlesInside
from onceward.gate.joining import Joined, finish, peek
from onceward.gate.strict import begin

if TYPE_CHECKING:
    from onceward.gate.blocking import Gate


class Performer:
    """Performs the effects of one call, by blocking."""

    __slots__ = ("_called", "_gate", "_joined")

    def __init__(self, gate: Gate, called: Called, joined: Joined | None) -> None:
        self._gate = gate
        self._called = called
        self._joined = joined

    def perform(self, effect: Effect) -> Any:
        """Do one thing."""
        kind = type(effect)
        if kind is Put:
            return self._put(effect)  # type: ignore[arg-type]
        if kind is Call:
            return self._call(effect.operation)  # type: ignore[union-attr]
        if kind is Chance:
            return self._gate.environment.random(48)
        if kind is Load:
            return self._load(effect)  # type: ignore[arg-type]
        return self._seldom(effect)

    def _put(self, effect: Put) -> Any:
        if self._joined is not None and effect.at != "parted":
            return self._joined.put(effect.write, effect.expect)
        standing = self._gate.store.put(effect.write, effect.expect)
        if standing.landed and effect.at != "claim":
            self._gate._bell.ring(effect.write.id)
        return standing

    def _load(self, effect: Load) -> Record | None:
        if effect.at == "inside.load":
            self._gate._bell.ring(effect.id)  # Whoever waits can see as much as we.
        return self._gate.store.load(effect.id)

    def begin_call(self, operation: Operation) -> None:
        """The function is about to be called."""
        gate, ask = self._gate, self._called.ask
        operation.started = True
        if ask.terms.settle == INSIDE:
            operation.inside = SettlesInside(ask, operation, gate.store, gate.environment, awaits=False)
        if self._joined is None:
            gate._housekeeping.count()
            gate._renewer.watch(ask, operation, operation.record)

    def _call(self, operation: Operation) -> Returned | Raised:
        gate = self._gate
        self.begin_call(operation)
        running = begin(operation)
        try:
            around = self._called.ask.around
            value = self._called.invoke(operation) if around is None else around.run(operation, self._called)
        except BaseException as error:
            return Raised(error)
        finally:
            running.end()
            if self._joined is None:
                gate._renewer.unwatch(operation)
        return refuse_awaitable(value) if type(value) not in DATA and inspect.isawaitable(value) else Returned(value)

    def _seldom(self, effect: Effect) -> Any:
        gate, joined = self._gate, self._joined
        match effect:
            case Monotonic():
                return gate.environment.monotonic()
            case Consult():
                return effect.around.refusal()
            case Pay():
                return effect.around.pay()
            case Pause():
                return gate._bell.pause(effect.id, effect.seconds)
            case Sleep():
                return gate.environment.sleep(effect.seconds)
            case Emit():
                return gate._asking.tell(effect.event)
            case Extend():
                register = gate.store if joined is None else joined
                return register.extend(effect.family, effect.replay, effect.forget)
            case Probe():
                return self._ask_probe(effect.operation)
            case Begin() if joined is not None:
                return joined.begin()
            case Peek() if joined is not None:
                return peek(joined, gate.store, effect)
            case Finish() if joined is not None:
                return finish(joined, effect)
            case Commit() if joined is not None:
                return joined.commit()
            case Rollback() if joined is not None:
                return joined.rollback()
        raise ConfigurationError(f"a blocking gate cannot perform {type(effect).__name__}")

    def _ask_probe(self, operation: Operation) -> Returned | Raised:
        gate, probe = self._gate, self._called.probe
        gate._renewer.watch(self._called.ask, operation, operation.record)
        try:
            return Returned(probe(operation) if probe is not None else None)
        except BaseException as error:
            return Raised(error)
        finally:
            gate._renewer.unwatch(operation)
