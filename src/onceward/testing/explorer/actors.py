"""
Who acts in a scenario, and where each of them stands.

An actor is a flow of the engine, unchanged. A flow is deterministic: where it stands is given by the answers it got, so
a `Position` is a node in a tree of answers, made once and shared by every schedule that leads there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha384
from typing import Any, NamedTuple

from onceward._core.errors import NothingHappened, StoreUnavailable
from onceward._core.flow import (
    AfterCommit,
    Boottime,
    CallFunction,
    Emit,
    Flow,
    Load,
    LoadInTransaction,
    Monotonic,
    Probe,
    Raised,
    RandomBytes,
    Returned,
)
from onceward._core.holders import Process, encode_process, identity_digest
from onceward._core.operation import NOT_FOUND, Found, Operation
from onceward._core.record import PutResult, Record

SKEW = 3_600.0
"""Seconds by which each caller's clock is ahead of the one before: nothing may depend on it."""


class Unknown(Exception):
    """A failure that says nothing about what happened."""


class Interrupted(BaseException):
    """Ctrl-C, or a cancellation."""


class Barred(Exception):
    """A fenced resource refused a fence lower than one it has seen."""


class Behaviour(NamedTuple):
    """What an actor's function does."""

    fails: str = ""
    """Where it raises: "" (nowhere), "before" its effect, "inside" it, or "after" it."""
    error: type[Exception] = Unknown
    marked: bool = False
    """Whether it marks its effect."""
    happens: bool = True
    """If it fails inside: whether the effect took place all the same."""
    mutates: bool = False
    """Whether it changes its own request while it runs."""
    keepable: bool = True
    """Whether its answer can be stored."""
    probe_fails: bool = False
    """Whether its probe raises instead of answering."""
    inside: str = "commits"
    """
    With settle="inside", how it ends its transaction: "commits"; "forgets" to settle, and commits; "undoes" it and
    returns; "again": undoes it once, and does it once more; "raises" after its commit.
    """

    @property
    def acts(self) -> bool:
        """Whether the effect takes place."""
        return self.fails in ("", "after") or (self.fails == "inside" and self.happens)

    @property
    def proves_nothing_happened(self) -> bool:
        """Whether its failure proves that it had no effect."""
        if self.fails == "before":
            return self.marked or self.error is NothingHappened
        says_so = self.error is NothingHappened or (self.marked and self.error is ConnectionRefusedError)
        return self.fails == "inside" and says_so


SUCCEEDS = Behaviour()
"""Has its effect, and returns."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who acts: a caller, an operator who reconciles, a renewer of somebody's lease."""

    name: str
    play: Callable[[Actor, dict[str, Any]], Flow[Any]]
    """Makes its flow. The flow returns the answers it acknowledges: pairs of an id and an outcome."""
    body: Behaviour = SUCCEEDS
    order: str = "17"
    """What it asks for. Two actors with the same order ask for the same."""
    after: str = ""
    """Begins once that actor is over. "*": once everybody is, all faults are past, and some time has gone by."""
    background: bool = False
    """Need not come to an end."""
    named: bool = False
    """Whether its claims say which process it is, so that others can see whether it lives."""
    index: int = 0

    @property
    def process(self) -> bytes | None:
        """What its claims say of who holds them."""
        here = (identity_digest("machine", "one"), identity_digest("boot", "one"), identity_digest("space", "one"))
        return encode_process(Process("explorer", *here, self.index + 1, 1, 0)) if self.named else None


class CallResult(NamedTuple):
    """What the outside world answered a function."""

    answer: str
    barred: bool
    held_until: float
    interrupted: bool = False
    """Struck while it ran, after its effect."""


class MissingResult(Enum):
    """What comes in the place of an answer."""

    LOST = "no answer comes"
    STRUCK = "an interrupt strikes"


LOST, STRUCK = MissingResult.LOST, MissingResult.STRUCK


class FlowEnd(NamedTuple):
    """How a flow ended."""

    value: Any
    error: BaseException | None


class _Run:
    """One generator, being driven. The request is its own, so that its function may change it."""

    __slots__ = ("actor", "effect", "ended", "flow", "request")

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.request: dict[str, Any] = {"order": actor.order}
        self.flow = actor.play(actor, self.request)
        self.effect: Any = None
        self.ended: FlowEnd | None = None
        self._on(lambda: next(self.flow))

    def feed(self, answer: Any) -> None:
        """Go on to the next effect."""
        if answer is LOST:
            self._on(lambda: self.flow.throw(StoreUnavailable("no answer came")))
        elif answer is STRUCK:
            self._on(lambda: self.flow.throw(Interrupted()))
        elif type(self.effect) is CallFunction:
            ended = _enact(self.actor, self.effect.operation, answer, self.request)
            self._on(lambda: self.flow.send(ended))
        elif type(self.effect) is Probe:
            probed = Raised(Unknown("the probe failed")) if answer is None else Returned(answer)
            self._on(lambda: self.flow.send(probed))
        else:
            self._on(lambda: self.flow.send(answer))

    def _on(self, go: Callable[[], Any]) -> None:
        try:
            self.effect = go()
        except StopIteration as stop:
            self.effect, self.ended = None, FlowEnd(stop.value, None)
        except (Exception, Interrupted) as error:
            self.effect, self.ended = None, FlowEnd(None, error.with_traceback(None))


def confirm_lease(actor: Actor, operation: Operation) -> None:
    """What the store said of the lease, and when, on the actor's own clock."""
    held = operation.record
    operation.confirm(actor_clock(actor, held.first_at + held.age), held.lease_left or 0)


def _enact(actor: Actor, operation: Operation, ran: CallResult, request: dict[str, Any]) -> Returned | Raised:
    """Run the function for real, against what the outside world answered."""
    body = actor.body
    operation.started = True
    operation.held_until = ran.held_until
    confirm_lease(actor, operation)
    try:
        return Returned(_function(body, operation, ran, request))
    except (Exception, Interrupted) as error:
        return Raised(error)


def _function(body: Behaviour, operation: Operation, ran: CallResult, request: dict[str, Any]) -> Any:
    if body.mutates:
        request["order"] = "changed by the function"
    if body.fails == "before":
        raise body.error("before the effect")
    if body.marked:
        with operation.effect():
            _act(body, ran)
    else:
        _act(body, ran)
    if body.fails == "after":
        raise body.error("after the effect")
    return ran.answer if body.keepable else object()


def _act(body: Behaviour, ran: CallResult) -> None:
    if ran.barred:
        raise Barred
    if ran.interrupted:
        raise Interrupted
    if body.fails == "inside":
        raise body.error("inside the effect")


class Position:
    """Where an actor stands: what it wants next, or how it ended."""

    __slots__ = (
        "_answer",
        "_chances",
        "_children",
        "_parent",
        "_run",
        "actor",
        "effect",
        "ended",
        "not_found",
        "ran",
        "seen",
    )

    def __init__(self, actor: Actor, parent: Position | None = None, answer: Any = None, run: _Run | None = None):
        run = run or _Run(actor)
        self.actor = actor
        self._parent = parent
        self._answer = answer
        self._children: dict[Any, Position] = {}
        self._run: _Run | None = run
        self.effect: Any = run.effect
        self.ended = run.ended
        self._chances: int = parent._chances if parent else 0
        self.seen: Record | None = parent.seen if parent else None
        """What it was last shown."""
        self.not_found: bool = bool(parent and parent.not_found)
        """Whether a probe has told it that nothing happened."""
        self.ran: bool = bool(parent and parent.ran)
        """Whether its function was entered, or its probe found that an earlier one was."""
        if parent is not None:
            self._learn(parent.effect, answer)

    def _learn(self, effect: Any, answer: Any) -> None:
        if type(answer) is PutResult:
            self.seen = answer.record
        elif type(effect) in (Load, LoadInTransaction) and not isinstance(answer, MissingResult):
            self.seen = answer
        elif type(effect) is RandomBytes:
            self._chances += 1
        elif type(effect) is Probe:
            self.not_found = answer is NOT_FOUND
            self.ran = isinstance(answer, Found)
        elif type(effect) is CallFunction and type(answer) is CallResult:
            self.ran = True

    def told(self, answer: Any, now: int) -> Position:
        """Where it stands after this answer; chance and its own clock are answered on the spot."""
        position = self._next(answer)
        while True:
            match position.effect:
                case RandomBytes():
                    position = position._next(position._chance())
                case Monotonic() | Boottime():
                    position = position._next(actor_clock(position.actor, now))
                case Emit() | AfterCommit():
                    position = position._next(None)
                case _:
                    return position

    def begun(self, now: int) -> Position:
        """Where it stands before its first visible effect. Called on the root."""
        match self.effect:
            case RandomBytes():
                return self.told(self._chance(), now)
            case Monotonic() | Boottime():
                return self.told(actor_clock(self.actor, now), now)
        return self

    def _chance(self) -> bytes:
        return sha384(f"{self.actor.name}/{self._chances}".encode()).digest()

    def _next(self, answer: Any) -> Position:
        child = self._children.get(answer)
        if child is None:
            run, self._run = self._run or self._replayed(), None
            run.feed(answer)
            child = self._children[answer] = Position(self.actor, self, answer, run)
        return child

    def _replayed(self) -> _Run:
        """A generator that has come this far again."""
        answers = []
        position = self
        while position._parent is not None:
            answers.append(position._answer)
            position = position._parent
        run = _Run(self.actor)
        for answer in reversed(answers):
            run.feed(answer)
        return run

    @property
    def is_over(self) -> bool:
        """Whether its flow has ended."""
        return self.ended is not None


def actor_clock(actor: Actor, now: int) -> float:
    """That actor's own clock, in seconds."""
    return now / 1e6 + SKEW * (actor.index + 1)
