# Made from straight_line_async.py by `make halves`: change that file, not this one.
"""
The usual course of an operation, in a straight line: the claim lands, the function returns, the settle lands; or the
claim finds that it has run before, and its result is replayed.

A flow is pure: the same answers lead it to the same place. So the usual course needs no flow, and is done here without
one: the same puts in the same order, each written by `record.py`. When any other answer comes, the flow is made after
all, is led to where we stand by the answers so far (`rest_after`), is given this one, and goes on. So nothing is
decided here. The explorer walks every schedule on both ways at once, and compares every put, event and outcome.

    claim ----> landed: call the function ----> returned: settle ----> landed: the outcome
          ----> found a result: the outcome
          ----> anything else, at any of these: the flow, from here on
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceward._core import record
from onceward._core.codec import KeptResult
from onceward._core.events import EventType
from onceward._core.finish_flow import event_about, outcome_of
from onceward._core.flow import CallFunction, Flow, Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.operation_flow import is_short, operate, settled_outcome, settling
from onceward._core.record import Record, Replay
from onceward._core.settle_inside_flow import INSIDE, choose_flow
from onceward._core.terms import remembers_always
from onceward._core.unrun_results import DATA, may_be_unrun
from onceward.gate.call_factory import PreparedCall
from onceward.gate.effect_runner import EffectRunner
from onceward.gate.paused_flow import pause_at_call, resume_after_call
from onceward.runtime import failpoints
from onceward.runtime.flow_driver import UnusualAnswer, rest_after

if TYPE_CHECKING:
    from onceward.gate.gate import Gate


class StraightLine(EffectRunner):
    """One call, straight ahead while the answers are the usual ones; from the first other one on, by its flow."""

    __slots__ = ("_answers", "_paused", "operation")

    def __init__(self, gate: Gate, prepared: PreparedCall) -> None:
        # Not by `super().__init__`: a call for each call.
        self._gate, self._prepared, self._joined, self._sent = gate, prepared, None, 0.0
        self._answers: list[Any] = []
        """What was answered so far: it says where the flow would stand, whatever strikes."""
        self._paused: Flow[Outcome[Any]] | None = None
        self.operation: Operation | None = None
        """The operation, once it is claimed."""

    def run(self) -> Outcome[Any]:
        """Run the operation once, or return the result of the run before."""
        request = self._prepared.request
        if request.terms.settle == INSIDE or failpoints.ARMED:
            return self.drive(choose_flow(request))
        try:
            found = self._claim()
            if self.operation is not None:
                kept, stored = self._settle(self._call(self.operation))
        except BaseException as error:
            rest = self._rest(error)
        else:
            return (
                outcome_of(found, request.restore) if self.operation is None else settled_outcome(request, kept, stored)
            )
        return self.drive(rest)

    def hold(self) -> Operation | Outcome[Any]:
        """Claim the operation, and leave its work to whoever holds it."""
        request = self._prepared.request
        if request.terms.settle == INSIDE or failpoints.ARMED:
            return self._pause(choose_flow(request))
        try:
            found = self._claim()
            if self.operation is not None:
                self._begin_call(self.operation)
        except BaseException as error:
            rest = self._rest(error)
        else:
            return outcome_of(found, request.restore) if self.operation is None else self.operation
        return self._pause(rest)

    def end(self, ended: Returned | Raised) -> Outcome[Any]:
        """After `hold`: how the work ended."""
        if self._paused is not None:
            return self.drive(resume_after_call(self._paused, ended))
        try:
            kept, stored = self._settle(ended)
        except BaseException as error:
            rest = self._rest(error)
        else:
            return settled_outcome(self._prepared.request, kept, stored)
        return self.drive(rest)

    def _claim(self) -> Record:
        """Claim the key, or find the record to replay: then there is no operation."""
        gate, request, answers = self._gate, self._prepared.request, self._answers
        chance = gate.environment.random(48)
        answers.append(chance)
        if request.resilience is not None:
            refused = request.resilience.refusal()
            if refused is not None:
                raise UnusualAnswer(refused)
            answers.append(None)
        write = record.claim(request.claimant, record.FRESH, token=chance[:16], version=chance[16:32])
        self._sent = gate.environment.boottime()
        put = gate.store.put(write, None)
        found = put.record
        if found is None:
            raise UnusualAnswer(put)
        if put.landed:
            if found.lease_left is not write.lease and is_short(found, request):  # The same object: all of it is left.
                raise UnusualAnswer(put)
            answers.append(put)
            if request.listening:
                self._tell(EventType.CLAIMED, found)
            self.operation = Operation(found, request.given)
        elif type(record.decide(found, request.claimant)) is not Replay:
            raise UnusualAnswer(put)
        elif request.listening:
            self._tell(EventType.REPLAYED, found)
        return found

    def _settle(self, ended: Returned | Raised) -> tuple[KeptResult, Record]:
        """Store what the function returned."""
        request, operation, answers = self._prepared.request, self.operation, self._answers
        held = answers[-1].record
        if failpoints.ARMED:  # Since the claim.
            failpoints.hit("call.after")
            raise UnusualAnswer(ended)
        if (
            isinstance(ended, Raised)
            or operation is None
            or operation.record is not held  # It was renewed meanwhile.
            or (callable(remember := request.terms.remember) and not remembers_always(remember, ended.value))
            or (type(ended.value) not in DATA and may_be_unrun(ended.value))
        ):
            raise UnusualAnswer(ended)
        kept, write = settling(request, held, answers[0][32:], ended.value)
        if kept.codec is None:
            raise UnusualAnswer(ended)
        answers.append(ended)
        put = self._gate.store.put(write, held.version)
        if put.landed:
            self._gate._waiters.notify(write.id)
        stored = put.record
        if not put.landed or stored is None or stored.codec is None:
            raise UnusualAnswer(put)
        if request.listening:
            self._tell(EventType.SETTLED, stored)
        return kept, stored

    def _tell(self, happening: EventType, about: Record) -> None:
        self._gate._call_factory.tell(event_about(happening, about))

    def _rest(self, error: BaseException) -> Flow[Outcome[Any]]:
        """Not the usual course: its flow, from where we stand; an error is what befell us there."""
        flow = operate(self._prepared.request, self.operation)
        return rest_after(flow, self._answers, error)

    def _pause(self, flow: Flow[Outcome[Any]]) -> Operation | Outcome[Any]:
        self._paused = flow
        came = self.drive(pause_at_call(flow))
        return came.operation if isinstance(came, CallFunction) else came
