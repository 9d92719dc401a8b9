"""
The attempts of one call as a loop: `for attempt in policy.attempts(): with attempt: ...`, and with `async for`.

It runs the same flow as a call, and resumes it from outside: the loop takes the next attempt, and the block reports how
it ended. Every `attempts()` is a call of its own. The policy is not iterable, so that no loop is shared by mistake.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from onceward._core.errors import ConfigurationError
from onceward._core.flow import AttemptResult, Flow, Raised, Returned, Try
from onceward._core.retry_flow import Attempt
from onceward.retry.call_context import CURRENT, CallContext
from onceward.retry.function_shape import FunctionShape
from onceward.retry.retry_runner_base import RetryRunnerBase
from onceward.runtime.flow_driver import rest_of

if TYPE_CHECKING:
    from contextvars import Token

    from onceward.retry.policy_base import RetryBase

Kind = TypeVar("Kind", bound=RetryRunnerBase)

_SHAPE = FunctionShape()


class AttemptBlock:
    """One attempt as a block. `attempt.number`, `attempt.key` and `attempt.timeout` are those of `Attempt`."""

    def __init__(self, attempts: AttemptLoopBase, attempt: Attempt, ticket: int | None) -> None:
        self._attempts = attempts
        self._ticket = ticket
        self._token: Token[CallContext | None] | None = None
        self.number, self.key, self.timeout = attempt.number, attempt.key, attempt.timeout
        self.deadline = attempt.deadline

    def __enter__(self) -> Self:
        self._token = CURRENT.set(self._attempts.frame)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._token is not None:
            CURRENT.reset(self._token)
        return self._attempts.ended(error, self._ticket)


class AttemptLoopBase:
    """The state of a loop over one call's attempts. `AttemptLoop` adds the iteration."""

    work: RetryRunnerBase
    """Performs the effects of the retry flow, blocking or awaiting as the loop does."""

    def __init__(self, policy: RetryBase) -> None:
        self._policy = policy
        self._flow: Flow[Any] | None = None
        self._error: Exception | None = None
        self._outstanding: int | None = None
        self._begun = self._done = False

    def ended(self, error: BaseException | None, ticket: int | None) -> bool:
        """Note how the block ended. Returns whether its error is kept from the caller for now."""
        self._outstanding = None
        policy = self._policy
        if error is None:
            self._finish()
            if ticket is not None and policy.breaker is not None:
                policy.breaker.report(ticket, "succeeded")
            if policy.budget is not None:
                policy.budget.succeeded()
            return False
        if not isinstance(error, Exception):
            self._finish()
            if ticket is not None and policy.breaker is not None:
                policy.breaker.let_go(ticket)
            return False
        self._error = error
        return True

    def _once(self) -> None:
        if self._begun or self._done:
            raise ConfigurationError("this loop has been used already. Call attempts() again for another call")

    def _begin(self, kind: type[Kind]) -> Kind:
        """Begin the call. Returns the runner that performs its effects."""
        self._begun = True
        policy = self._policy
        began = policy.environment.monotonic()
        self.frame = CallContext(began + policy.elapsed, policy.max_attempts, policy.name or "")
        outer = CURRENT.get()
        if outer is not None:
            policy._go_under(outer, self.frame, loop_body)
        self.work = work = kind(policy, self.frame, began, (loop_body, _SHAPE, (), {}, policy.key), None)
        return work

    def _is_late(self) -> bool:
        """Whether there is no time left, so that the call ends here."""
        if self.frame.limit > self.work.began:
            return False
        self._finish()
        return True

    def _first(self, ticket: int | None) -> AttemptBlock:
        self.work.ticket = ticket
        return self._block(1, min(self._policy.timeout, self.frame.limit - self.work.began), ticket)

    def _block(self, number: int, timeout: float, ticket: int | None) -> AttemptBlock:
        self._outstanding = number
        policy = self._policy
        return AttemptBlock(self, Attempt(number, policy.key, timeout, self.frame.limit, policy.name or ""), ticket)

    def _end(self, end: AttemptResult) -> BaseException | None:
        self._finish()
        if isinstance(end, Raised) and isinstance(end.error, StopIteration | StopAsyncIteration):
            # It would end the loop as if all were well; Python makes the same of it in a generator.
            error = RuntimeError(f"the block raised {type(end.error).__name__}")
            error.__cause__ = end.error
            return error
        return end.error if isinstance(end, Raised) else None

    def _resumed(self) -> Flow[Try | AttemptResult]:
        """The flow from the end of one attempt to the beginning of the next, or to its own end."""
        if self._outstanding is not None:
            self._finish()
            raise ConfigurationError(
                "the loop's body did not use its attempt. Write `with attempt:` around what it does"
            )
        error, self._error = self._error, None
        if error is None:
            raise ConfigurationError("the loop went on after its call had ended")
        ended = Raised(error)
        if self._flow is None:
            self._flow = self.work.flow(ended)
            return rest_of(self._flow, partial(next, self._flow), until=Try)
        return rest_of(self._flow, partial(self._flow.send, ended), until=Try)

    def _finish(self) -> None:
        self._done = True
        if self._begun:
            self.frame.live = False
        if self._flow is not None:
            self._flow.close()


def refusal_error(ended: AttemptResult) -> BaseException:
    """The error for a call that was not made. A loop has no value to return, so no fallback is called."""
    return (
        ended.error
        if isinstance(ended, Raised)
        else ConfigurationError("a call that was not made cannot be reported as successful")
    )


def loop_body() -> Returned:
    """Stands for the loop's body, which has no name of its own."""
    return Returned(None)
