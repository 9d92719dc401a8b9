"""
Trying again: every decision about it, as a flow that begins when the first attempt has failed.

The first attempt itself is run by the shell, outside of any flow: most calls succeed, and they should not pay for the
ones that do not. What is decided here, in this order, after each failed attempt:

    not ours to retry         an outer policy owns the retries of this call tree      attempts
    nothing to gain           the verdict says so, or the other side does             never, server_said_no, breaker
    may have happened         and no key, no probe, not safe by nature                no_key
    cannot be sent again      its body was a stream                                   not_replayable
    often enough              attempts                                                attempts
    no time                   the wait would go past the limit: stop now              deadline, elapsed
    not welcome               circuit open; too many retries for this much traffic    breaker, budget

Doubt is sticky: once an attempt may have had its effect, the final verdict says so, whatever came later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from onceward._core.attempt_history import TRIES_KEPT, AttemptSummary, summarize_attempt
from onceward._core.backoff import Backoff, wait_after_server
from onceward._core.circuit import BreakerRefusal, is_failure
from onceward._core.classifier import Classifier, date_of
from onceward._core.display_text import format_seconds
from onceward._core.errors import BudgetExhausted, CircuitOpen, DeadlineExceeded, OncewardError, OutcomeUnknown
from onceward._core.flow import (
    CLOCKS,
    Admit,
    AttemptResult,
    CallHook,
    Flow,
    Probe,
    PutDeadLetter,
    Raised,
    Refund,
    ReportAttempt,
    Returned,
    Sleep,
    Try,
    Withdraw,
    new_tuple,
)
from onceward._core.operation import Found, NotFound
from onceward._core.stops import GIVEN_UP, Stop, StopReason, attach_stop, time_after
from onceward._core.verdict import Action, Certainty, Kind, Verdict

_UNKNOWN, _AUTH, _SAME_KEY = Certainty.UNKNOWN, Kind.AUTH, Action.SAME_KEY

JUDGE_FAILED = Verdict(Certainty.UNKNOWN, Kind.OTHER, Action.NEVER)
"""The verdict when a classifier itself fails: nobody knows, and nobody tries again."""


class Attempt:
    """One attempt, as the function sees it that asks for it (a parameter named `attempt`)."""

    __slots__ = ("deadline", "key", "name", "number", "timeout")

    def __init__(self, number: int, key: str | None, timeout: float, deadline: float, name: str) -> None:
        self.number = number
        """1 for the first."""
        self.key = key
        """The key of this call: the same on every attempt. None if it has none."""
        self.timeout = timeout
        """Seconds that this attempt may take: the policy's timeout, or less if less is left."""
        self.deadline = deadline
        """When the whole call must be over, on the environment's monotonic clock."""
        self.name = name
        """What the call is called in messages."""

    def __repr__(self) -> str:
        return f"<attempt {self.number} of {self.name}, {self.timeout:.3g} s left for it>"


class SupportsJudge(Protocol):
    """What retry, breaker and gate share: one object that says what a failure means."""

    def judge(self, problem: Any, *, now: datetime | None = None) -> Verdict:
        """What is known about an error or an answer."""


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """What a policy says, in the flow's own units."""

    attempts: int
    timeout: float
    backoff: Backoff
    judge: SupportsJudge
    has_budget: bool
    has_breaker: bool
    has_probe: bool
    has_retry_hook: bool
    has_dead_letters: bool


class CallFacts(Protocol):
    """What is known about one call when its first attempt has ended. Found out when it is asked for, if it can be."""

    key: str | None
    replayable: bool
    owner: bool
    """Whether this policy owns the retries of its call tree."""
    began: float
    limit: float
    """When it must be over, on the monotonic clock."""
    ticket: int | None
    """The breaker's ticket of the first attempt."""

    @property
    def name(self) -> str:
        """What the call is called in messages."""

    @property
    def secured(self) -> bool:
        """Whether an unknown outcome may be repeated: keyed, or safe by nature."""

    @property
    def declared(self) -> bool:
        """Whether it is an operation of a gate: what the gate itself refuses may be asked again, under its key."""

    @property
    def limit_is_own(self) -> bool:
        """Whether the limit is the policy's own elapsed time, and not a caller's deadline."""

    @property
    def amplification(self) -> int:
        """How many calls one call at the top of the call tree may become, at this depth."""


class _RetriedCall:
    """One call under way: what its attempts have left behind."""

    __slots__ = ("doubt", "facts", "last", "number", "paid", "problem", "terms", "tries", "waited")

    def __init__(self, terms: RetryTerms, facts: CallFacts) -> None:
        self.terms, self.facts = terms, facts
        self.number = 1
        self.doubt: Verdict | None = None
        self.last = JUDGE_FAILED
        self.problem: Any = None
        self.paid: float | None = None
        self.waited = 0.0
        self.tries: list[AttemptSummary] = []

    def note(self, began: float, now: float, wall_us: int) -> None:
        """Write down how the last attempt ended."""
        if len(self.tries) >= TRIES_KEPT:
            del self.tries[1]
        self.tries.append(summarize_attempt(self.number, wall_us, now - began, self.last, self.problem))

    def judge(self, ended: AttemptResult, wall_us: int) -> Verdict:
        """What the end of an attempt means. Doubt stays."""
        self.problem = ended.error if isinstance(ended, Raised) else ended.value
        self.last = verdict = verdict_on(self.terms.judge, self.problem, wall_us)
        if verdict.certainty is _UNKNOWN and self.doubt is None:
            self.doubt = verdict
        return verdict

    def next_wait(self, chance: float) -> float:
        """Seconds until the next attempt: never less than the other side asked for."""
        own = self.waited = self.terms.backoff.wait(self.number - 1, chance, self.waited)
        asked = self.last.wait
        return wait_after_server(asked, own) if asked else own

    def stop(self, reason: StopReason, now: float, wall_us: int, after: float | None = None) -> Stop:
        """The stop, as it stands now. `after`: seconds until somebody wants to be asked again."""
        facts = self.facts
        asked = after if after is not None else self.last.wait
        return Stop(
            reason=reason,
            attempts=self.number,
            elapsed=now - facts.began,
            verdict=self.last if self.doubt is None else self.doubt,
            last=self.last,
            name=facts.name,
            key=facts.key,
            retry_at=time_after(wall_us, asked),
            retry_after_seconds=asked,
            amplification=facts.amplification,
            problem=self.problem,
            tries=tuple(self.tries),
        )


def run_retries(
    terms: RetryTerms, facts: CallFacts, ended: AttemptResult, clocks: tuple[float, int, float]
) -> Flow[AttemptResult]:
    """
    From the failed end of the first attempt to the call's end: what is to be returned or raised.

    `clocks` is what `CLOCKS` is answered with, at that end: most calls end well after it, and save an effect.
    It raises nothing itself: an error that passed through here would hold this frame, which holds the error.
    """
    call = _RetriedCall(terms, facts)
    ticket, attempt_began = facts.ticket, facts.began
    while True:
        now, wall_us, chance = clocks
        verdict = call.judge(ended, wall_us)
        if terms.has_dead_letters:
            call.note(attempt_began, now, wall_us)
        if ticket is not None or terms.has_budget:
            yield ReportAttempt(ticket, "failed" if is_failure(verdict) else "ended", call.number == 1, call.paid)
        if verdict.kind is _AUTH and facts.owner:
            yield CallHook("auth", call.stop(_nothing_to_gain(verdict), now, wall_us))
        reason = _final_stop_reason(call)
        if reason is not None and terms.has_probe and reason is StopReason.NO_KEY and facts.owner:
            found, reason = yield from _probed(call)
            if found is not None:
                return Returned(found.value)
        if reason is not None:
            return (yield from _end(call, call.stop(reason, now, wall_us), ended))
        wait = call.next_wait(chance)
        if now + wait >= facts.limit:
            return (yield from _end(call, call.stop(_out_of_time(call), now, wall_us), ended))
        if terms.has_breaker or terms.has_budget or terms.has_retry_hook:
            stop = yield from _request_retry(call, wait, now, wall_us)
            if stop is not None:
                return (yield from _end(call, stop, ended))
        try:
            now = yield new_tuple(Sleep, (wait,))
        except BaseException:
            yield from _refund_retry(call)
            raise
        ticket = None
        if terms.has_breaker:
            admitted = yield Admit()
            if isinstance(admitted, BreakerRefusal):
                yield from _refund_retry(call)
                now, wall_us, _ = yield CLOCKS
                stop = call.stop(StopReason.BREAKER, now, wall_us, admitted.retry_after)
                return (yield from _end(call, stop, ended))
            ticket = admitted
        left = facts.limit - now
        if left <= 0:  # Whatever slept, slept longer than it was asked to.
            if ticket is not None:
                yield ReportAttempt(ticket, "ended", False, None)
            yield from _refund_retry(call)
            now, wall_us, _ = yield CLOCKS
            return (yield from _end(call, call.stop(_own_or_callers(facts), now, wall_us), ended))
        call.number += 1
        attempt_began = now
        ended = yield new_tuple(Try, (call.number, terms.timeout if terms.timeout < left else left, ticket))
        if isinstance(ended, Returned):
            if ticket is not None or terms.has_budget:
                yield ReportAttempt(ticket, "succeeded", False, call.paid)
            return ended
        clocks = yield CLOCKS


def refuse_call(facts: CallFacts, reason: StopReason, after: float | None) -> Flow[AttemptResult]:
    """Before the first attempt: no time, or an open circuit. Nothing is called."""
    now, wall_us, _ = yield CLOCKS
    stop = Stop(
        reason=reason,
        attempts=0,
        elapsed=now - facts.began,
        verdict=_NOT_CALLED,
        last=_NOT_CALLED,
        name=facts.name,
        key=facts.key,
        retry_at=time_after(wall_us, after),
        retry_after_seconds=after,
        amplification=facts.amplification,
    )
    if facts.owner:
        yield CallHook("stop", stop)
        yield PutDeadLetter(stop)
    return Raised(attach_stop(_error_of(stop), stop))


_NOT_CALLED = Verdict(Certainty.NOT_SENT, Kind.OTHER, Action.NEVER)


def verdict_on(judge: SupportsJudge, problem: Any, wall_us: int) -> Verdict:
    """The verdict on a problem; if the judge itself fails: nobody knows, and nobody tries again."""
    try:
        if type(judge) is Classifier:  # Not a subclass, which may have a `judge` of its own.
            return judge.judge_at(problem, wall_us)
        verdict = judge.judge(problem, now=date_of(wall_us))
    except Exception:
        return JUDGE_FAILED
    return verdict if isinstance(verdict, Verdict) else JUDGE_FAILED


def _final_stop_reason(call: _RetriedCall) -> StopReason | None:
    """Whether the call ends here, whatever time, budget and breaker say."""
    terms, facts, verdict = call.terms, call.facts, call.last
    if verdict.action is not _SAME_KEY:
        return _nothing_to_gain(verdict)
    if not facts.owner:
        return StopReason.ATTEMPTS
    if verdict.certainty is _UNKNOWN and not facts.secured:
        asks_again = facts.declared and isinstance(call.problem, OncewardError)
        if not asks_again:
            return StopReason.NO_KEY
    if not facts.replayable:
        return StopReason.NOT_REPLAYABLE
    return StopReason.ATTEMPTS if call.number >= terms.attempts else None


def _nothing_to_gain(verdict: Verdict) -> StopReason:
    if verdict.code == CircuitOpen.code:
        return StopReason.BREAKER
    if verdict.action is Action.NEVER and verdict.kind in (Kind.RATE_LIMIT, Kind.UPSTREAM, Kind.NETWORK):
        return StopReason.SERVER_SAID_NO
    return StopReason.NEVER


def _probed(call: _RetriedCall) -> Flow[tuple[Found | None, StopReason | None]]:
    """Ask the outside world whether the last attempt happened: its result, or whether to go on."""
    facts = call.facts
    answer = yield Probe("probe", Attempt(call.number, facts.key, call.terms.timeout, facts.limit, facts.name))
    said = answer.value if isinstance(answer, Returned) else None
    if isinstance(said, Found):
        return said, None
    if not isinstance(said, NotFound):
        return None, StopReason.NO_KEY  # It raised, or it does not know, either.
    if not facts.replayable:
        return None, StopReason.NOT_REPLAYABLE
    call.doubt = None
    return None, StopReason.ATTEMPTS if call.number >= call.terms.attempts else None


def _request_retry(call: _RetriedCall, wait: float, now: float, wall_us: int) -> Flow[Stop | None]:
    """Ask breaker and budget for another attempt, and tell of it: why there is none, before anything is waited for."""
    terms, facts = call.terms, call.facts
    if terms.has_breaker:
        refused = yield Admit(peek=True)
        if isinstance(refused, BreakerRefusal) and refused.retry_after > wait:
            return call.stop(StopReason.BREAKER, now, wall_us, refused.retry_after)
    if terms.has_budget:
        call.paid = yield Withdraw(throttled=call.last.kind is Kind.RATE_LIMIT)
        if call.paid is None:
            return call.stop(StopReason.BUDGET, now, wall_us)
    if terms.has_retry_hook:
        yield CallHook("retry", RetryEvent(call.number, wait, call.last, facts.name, facts.key))
        now, wall_us, _ = yield CLOCKS  # Whoever was told took some time, too.
        if now + wait >= facts.limit:
            yield from _refund_retry(call)
            return call.stop(_out_of_time(call), now, wall_us)
    return None


def _refund_retry(call: _RetriedCall) -> Flow[None]:
    """The retry that was paid for is not made after all."""
    if call.paid is not None:
        yield Refund(call.paid)
        call.paid = None


class RetryEvent(NamedTuple):
    """What `on_retry` is told: an attempt failed, and another will be made."""

    attempt: int
    """The number of the attempt that failed."""
    wait: float
    """Seconds until the next one."""
    verdict: Verdict
    name: str
    key: str | None


def _out_of_time(call: _RetriedCall) -> StopReason:
    """Why a wait does not fit: a server's is held against the deadline, whoever set it."""
    return StopReason.DEADLINE if call.last.wait else _own_or_callers(call.facts)


def _own_or_callers(facts: CallFacts) -> StopReason:
    return StopReason.ELAPSED if facts.limit_is_own else StopReason.DEADLINE


def _end(call: _RetriedCall, stop: Stop, ended: AttemptResult) -> Flow[AttemptResult]:
    """Tell who wants to know, keep what is undone, and say what to raise: the last error, or one that says more."""
    if call.facts.owner:
        yield CallHook("stop", stop)
        if call.terms.has_dead_letters and (stop.reason in GIVEN_UP or stop.verdict.happened is None):
            yield PutDeadLetter(stop)
    cause = ended.error if isinstance(ended, Raised) else None
    if stop.reason in _ERRORS_BY_REASON and not (
        cause is not None and isinstance(cause, _ERRORS_BY_REASON[stop.reason])
    ):
        error = attach_stop(_error_of(stop), stop)
        error.__cause__ = cause
        return Raised(error)
    if call.facts.owner:
        # An answer carries its stop as an error does: whoever returns it can say why there was no further attempt.
        # Without the problem: an error that holds what holds the error is freed late.
        attach_stop(call.problem, stop._replace(problem=None))
    return ended


_ERRORS_BY_REASON: dict[StopReason, type[OncewardError]] = {
    StopReason.DEADLINE: DeadlineExceeded,
    StopReason.BUDGET: BudgetExhausted,
    StopReason.BREAKER: CircuitOpen,
    StopReason.NO_KEY: OutcomeUnknown,
}


def _error_of(stop: Stop) -> OncewardError:
    kind = _ERRORS_BY_REASON[stop.reason]
    doubt = " An attempt may have had its effect." if stop.verdict.happened is None else ""
    when = "" if stop.retry_after_seconds is None else f" Retry in {format_seconds(stop.retry_after_seconds)}."
    messages = {
        StopReason.DEADLINE: f"{stop.name} was given up: the deadline leaves no time for another attempt.",
        StopReason.BUDGET: f"{stop.name} was not retried: the retry budget is used up. The last error is the cause.",
        StopReason.BREAKER: f"{stop.name} was not called{' again' if stop.attempts else ''}: the circuit is open.",
        StopReason.NO_KEY: (
            f"{stop.name} may have happened, and a retry could do it twice. Check whether it happened. To make retries "
            "safe, give it a key or a probe, or declare it safe."
        ),
    }
    text = messages[stop.reason] + ("" if stop.reason is StopReason.NO_KEY else doubt) + when
    error = kind(text, retry_after_seconds=stop.retry_after_seconds, retry_at=stop.retry_at)
    return error.about(key=stop.key, operation=stop.name)
