# Made from atomic_line_async.py by `make halves`: change that file, not this one.
"""
The usual course of an operation in the caller's transaction, in a straight line: the claim lands, the function returns,
the record is settled and committed; or its result is found, and replayed.

It is to `operate_atomic` what `straight_line.py` is to `operate`: the same steps in the same order, without a
flow; and at any other answer the flow, led to where we stand by the answers so far. Nothing is decided here. The
explorer walks its schedules of atomic mode on both ways at once.

    begin, claim (or look) ----> landed: call the function ----> returned: settle and commit ----> landed: the outcome
                           ----> found a result: commit, the outcome
                           ----> anything else, at any of these: the flow, from here on
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceward._core import record
from onceward._core.atomic_flow import (
    AtomicRun,
    after_commit,
    claimed,
    event_in_transaction,
    keep_result,
    operate_atomic,
    unclaimed,
)
from onceward._core.caller_transaction import CallerTransaction
from onceward._core.errors import ResultInvalid
from onceward._core.events import EventType
from onceward._core.finish_flow import outcome_of
from onceward._core.flow import CallFunction, Flow, Raised, Returned
from onceward._core.operation import AtomicOperation, Outcome
from onceward._core.operation_flow import settled_outcome
from onceward._core.record import Replay, Start
from onceward._core.unrun_results import may_be_unrun
from onceward.gate.call_factory import PreparedCall
from onceward.gate.effect_runner import EffectRunner
from onceward.gate.paused_flow import end_after_call, pause_at_call, resume_after_call
from onceward.runtime import failpoints
from onceward.runtime.flow_driver import UnusualAnswer, rest_after

if TYPE_CHECKING:
    from onceward.gate.gate import Gate


class AtomicLine(EffectRunner):
    """One call in the caller's transaction, straight ahead while the answers are the usual ones."""

    __slots__ = ("_about", "_answers", "_paused")

    def __init__(self, gate: Gate, prepared: PreparedCall, joined: CallerTransaction) -> None:
        super().__init__(gate, prepared, joined)
        self._answers: list[Any] = []
        """What was answered so far: it says where the flow would stand, whatever strikes."""
        self._paused: Flow[Outcome[Any]] | None = None
        self._about: AtomicRun | None = None
        """What may run, once the key is ours."""

    def run(self) -> Outcome[Any]:
        """Run the operation once, or return the result of the run before."""
        if self._needs_flow():
            return self.drive(operate_atomic(self._prepared.request))
        try:
            came = self._claim()
            if isinstance(came, AtomicRun):
                came = self._settle(self._call(came.operation))
        except BaseException as error:
            rest = self._rest(error)
        else:
            return came
        return self.drive(rest)

    def hold(self) -> AtomicOperation | Outcome[Any]:
        """Claim the operation, and leave its work to a block."""
        if self._needs_flow():
            return self._pause(operate_atomic(self._prepared.request))
        try:
            came = self._claim()
            if not isinstance(came, AtomicRun):
                return came
            self._begin_call(came.operation)
            return came.operation  # In here: nobody else would undo what was begun.
        except BaseException as error:
            rest = self._rest(error)
        return self._pause(rest)

    def end(self, ended: Returned | Raised) -> Outcome[Any]:
        """After `hold`: how the block ended."""
        try:
            if self._paused is None:
                return self._settle(ended)
            rest = resume_after_call(self._paused, ended)
        except BaseException as error:
            rest = end_after_call(self._rest(error))
        return self.drive(rest)

    def close(self) -> None:
        """After `hold`: the block was thrown away, and nothing more can be awaited."""
        if self._paused is not None:
            self._paused.close()

    def _needs_flow(self) -> bool:
        request = self._prepared.request
        return request.terms.remember == "all" or request.claimant.family is not None or failpoints.armed()

    def _claim(self) -> AtomicRun | Outcome[Any]:
        """Make the key ours, or find what is to be replayed."""
        request, answers = self._prepared.request, self._answers
        chance = self._gate.environment.random(48)
        answers.append(chance)
        if request.listening:
            answers.append(self._now())
        opened = self._begin()
        answers.append(opened)
        run: AtomicRun | None = None
        answer: Any
        if request.terms.claim == "last":
            answer = found = self._look(request.claimant.id)
            decision = record.decide(found, request.claimant)
            if type(decision) is Start:
                run = unclaimed(request, decision, chance, opened)
        else:
            write = record.claim(request.claimant, record.FRESH, token=chance[:16], version=chance[16:32])
            answer = put = self._put("claim", write, None)
            found = put.record
            if not put.landed:
                decision = record.decide(found, request.claimant)
            elif found is not None:
                run = claimed(request, found, chance, opened)
            else:
                raise UnusualAnswer(put)
        if run is None:
            if type(decision) is not Replay:
                raise UnusualAnswer(answer)
            return self._replay(answer, decision)
        self._about = run
        answers.append(answer)
        return run

    def _replay(self, answer: Any, decision: Replay) -> Outcome[Any]:
        """The result that was found; nothing was written."""
        request = self._prepared.request
        try:
            outcome = outcome_of(decision.record, request.restore)
        except Exception:
            raise UnusualAnswer(answer) from None  # It is a failure, or cannot be read: the flow says so.
        self._answers.append(answer)
        self._commit()
        if request.listening:
            self._answers.append(None)
            self._tell(EventType.REPLAYED, outcome)
        return outcome

    def _settle(self, ended: Returned | Raised) -> Outcome[Any]:
        """Store what the function returned, and commit it with the caller's rows."""
        request, run, answers = self._prepared.request, self._about, self._answers
        if failpoints.armed():  # Since the claim.
            failpoints.hit("call.after")
            raise UnusualAnswer(ended)
        if run is None or isinstance(ended, Raised) or may_be_unrun(ended.value):
            raise UnusualAnswer(ended)
        try:
            kept = keep_result(request, ended.value)
        except ResultInvalid:
            raise UnusualAnswer(ended) from None
        answers.append(ended)
        put = self._finish(run.ending(codec=kept.codec, result=kept.data), run.expect)
        if not put.landed or put.record is None:
            raise UnusualAnswer(put)
        outcome = settled_outcome(request, kept, put.record)
        answers.append(put)
        took = 0.0
        if request.listening:
            answers.append(self._now())
            took = answers[-1] - answers[1]
        self._follow(after_commit(request, answers[0], run.opened, outcome.attempt, outcome.fence, took))
        return outcome

    def _tell(self, happening: EventType, about: Outcome[Any]) -> None:
        event = event_in_transaction(self._prepared.request, happening, about.attempt, about.fence)
        self._gate._call_factory.tell(event)

    def _rest(self, error: BaseException) -> Flow[Outcome[Any]]:
        """Not the usual course: its flow, from where we stand; an error is what befell us there."""
        flow = operate_atomic(self._prepared.request, None if self._about is None else self._about.operation)
        return rest_after(flow, self._answers, error)

    def _pause(self, flow: Flow[Outcome[Any]]) -> AtomicOperation | Outcome[Any]:
        self._paused = flow
        came = self.drive(pause_at_call(flow))
        return came.operation if isinstance(came, CallFunction) else came
