"""
What actors do: the project's own flows, as callers, operators and renewers use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from onceward._core import operation_flow, sequence_flow, settle_inside_flow
from onceward._core.errors import IllegalMove, OncewardError, OwnershipLost, StoreForgot
from onceward._core.flow import (
    Begin,
    CallFunction,
    Commit,
    Effect,
    Extend,
    Flow,
    Load,
    Raised,
    Returned,
    Rollback,
)
from onceward._core.keys import record_id
from onceward._core.operation import NOT_FOUND, Found, Operation, TransactionSettler
from onceward._core.record import Record
from onceward._core.record_types import peek_of
from onceward._core.terms import Terms
from onceward.gate.call_factory import KEY, STEP, CallFactory
from onceward.testing.explorer.actors import Actor, Interrupted, confirm_lease
from onceward.testing.explorer.both_ways import go_both_ways, go_both_ways_joined
from onceward.testing.explorer.scenario import LookUp, Watch

SCOPE = "test:explorer"
NAME = "charge"

CALL_FACTORY = CallFactory(SCOPE, environment=None, listeners=())

ActorFlow: TypeAlias = Callable[[Actor, dict[str, Any]], Flow[Any]]


def scenario_terms(guarantee: str, **options: Any) -> Terms:
    """Terms for a scenario: a lease of ten seconds, and waiting for at most thirty."""
    return CALL_FACTORY.agreed({"guarantee": guarantee, "lease": 10, "wait": 30, **options})


def _ask(
    actor: Actor, parts: tuple[str, ...], request: Any, terms: Terms, **options: Any
) -> operation_flow.OperationRequest:
    """What an actor asks for. Actors are no processes, so each of them says by itself who it is."""
    ask = CALL_FACTORY.request_for(parts, request, terms, **options)
    return ask._replace(claimant=ask.claimant._replace(holder=actor.process))


def calls(terms: Terms, key: str = NAME, *, peeks: bool = False) -> ActorFlow:
    """Call an operation, as `gate.call` does; `peeks`: over a store where it looks first."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        probes = terms.guarantee == "probed"
        ask = _ask(actor, (key,), request, terms, marked=actor.body.marked, probes=probes)
        if peeks:
            found: Record | None = yield Load("peek", ask.claimant.id)
            seen = (
                operation_flow.peeked_outcome(peek_of(found), ask.claimant.fingerprint, None)
                if found is not None
                else None
            )
            if seen is not None:
                return ((ask.claimant.id, seen),)
        outcome = yield from go_both_ways(ask._replace(peeks=peeks))
        return ((ask.claimant.id, outcome),)

    return play


def calls_joined(terms: Terms) -> ActorFlow:
    """Call an operation inside one's own transaction, as `gate.atomic` does."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        ask = _ask(actor, (NAME,), request, terms)
        outcome = yield from go_both_ways_joined(ask)
        return ((ask.claimant.id, outcome),)

    return play


def calls_inside(terms: Terms) -> ActorFlow:
    """Call an operation whose function settles it inside a transaction of its own."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        ask = _ask(actor, (NAME,), request, terms)
        flow = settle_inside_flow.choose_flow(ask)
        effect = next(flow)
        try:
            while True:
                if isinstance(effect, CallFunction):
                    effect = flow.send((yield from _function(actor, ask, effect.operation)))
                    continue
                try:
                    answer = yield effect
                except (Exception, Interrupted) as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            return ((ask.claimant.id, stop.value),)

    return play


def _function(actor: Actor, ask: operation_flow.OperationRequest, operation: Operation) -> Flow[Returned | Raised]:
    """The function of an actor, statement by statement: it may die, be stopped or go unanswered between any two."""
    operation.started, operation.inside = True, TransactionSettler()
    try:
        if actor.body.inside == "again":
            yield from _transaction(ask, operation, undone=True)
        answer = yield from _transaction(
            ask, operation, settles=actor.body.inside != "forgets", undone=actor.body.inside == "undoes"
        )
        if actor.body.inside == "raises":
            raise actor.body.error("after the commit")
    except (Exception, Interrupted) as error:
        return Raised(error)
    return Returned(answer)


def _transaction(
    ask: operation_flow.OperationRequest, operation: Operation, *, settles: bool = True, undone: bool = False
) -> Flow[Any]:
    yield Begin("begin")
    try:
        ran: Returned | Raised = yield CallFunction("call", operation)
        if isinstance(ran, Raised):
            raise ran.error
        if settles:
            yield from settle_inside_flow.settle_inside(ask, operation, ran.value)
            cast(TransactionSettler, operation.inside).called = True
        yield Rollback("rollback") if undone else Commit("commit")
    except (Exception, Interrupted):
        yield Rollback("rollback")
        raise
    return ran.value


def plans(terms: Terms) -> ActorFlow:
    """Go through a plan of two steps, as `gate.plan` does."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        family = record_id("plan", SCOPE, NAME)
        answers = []
        yield Extend("touch", family, terms.retain, terms.forget)
        for step in ("one", "two"):
            ask = _ask(actor, (NAME, step), request, terms, kind=STEP, family=family)
            answers.append((ask.claimant.id, (yield from go_both_ways(ask))))
        return tuple(answers)

    return play


def numbers(terms: Terms, *which: int) -> ActorFlow:
    """Send these numbers of a sequence, one after the other, as `gate.sequence` does."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        answers = []
        for number in which:
            ask = _ask(actor, (NAME, str(number)), request, terms, kind=sequence_flow.ENTRY)
            answers.append((ask.claimant.id, (yield from sequence_flow.operate_in_sequence(ask, NAME, number))))
        return tuple(answers)

    return play


def reconciles(terms: Terms, *, bound: bool = True) -> ActorFlow:
    """
    Check in the system it acts on, then say what became of it, as `gate.reconcile` does.

    Bound, the answer is about the attempt that was looked into (its fence is given), as errors advise.
    """

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        ask = _ask(actor, (NAME,), None, terms)
        fence: int | None = None
        if bound:
            found: Record | None = yield Load("reconcile.load", ask.claimant.id)
            if found is None:
                return ()  # There is nothing to decide yet.
            fence = found.fence
        answer = yield cast(Effect, LookUp("look", ask.claimant.id))
        decision = Found(answer.value) if isinstance(answer, Found) else NOT_FOUND
        try:
            yield from operation_flow.reconcile(ask, decision, fence)
        except IllegalMove:
            return ()  # Somebody was quicker.
        return ()

    return play


def renews(terms: Terms, name: str, times: int = 1) -> ActorFlow:
    """Renew the lease of an actor while its function runs, as the gate's renewer does."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        ask = _ask(actor, (NAME,), request, terms)
        held: Record | None = None
        for _ in range(times):
            found = yield cast(Effect, Watch("watch", name))
            held = held or found
            operation = Operation(held)
            confirm_lease(actor, operation)
            try:
                held = yield from operation_flow.renew(ask, held, operation)
            except (OwnershipLost, StoreForgot):
                raise
            except IllegalMove:
                return ()  # It has ended: its function has settled it.
            except OncewardError:
                continue  # The store was away: the next look tries again.
        return ()

    return play


def id_of(order: str) -> bytes:
    """The id that a careless library would make of a request."""
    return record_id(KEY, SCOPE, f"{NAME}-{order}")
