"""
Retries: policies, back-off, budgets, circuit breakers and deadlines.

The decisions are made in `_core` (`retry_flow`, `backoff`, `token_bucket`, `circuit`). This package sleeps, calls and
measures for them, in both colours, and shares budgets and breakers between processes through a store.

It imports `_core`, `runtime` and `gate`. Start reading with `policy` (`Retry`), then `policy_mixin_async` (the
first attempt) and `retry_runner_async` (the ones after it). `breaker` and `budget` are for use without a policy, too.
"""

from onceward._core.backoff import Backoff
from onceward._core.circuit import BreakerRule, CircuitState
from onceward._core.retry_flow import Attempt, RetryEvent
from onceward._core.sent_request import SentRequest
from onceward._core.stops import DeadLetters, GivenUp, Stop, StopReason
from onceward._core.token_bucket import BudgetRule
from onceward.retry.breaker import Breaker, breaker, forget_breakers
from onceward.retry.budget import Budget
from onceward.retry.call_context import DEADLINE_HEADER, deadline, deadline_header, parse_deadline, time_left
from onceward.retry.function_shape import is_replayable
from onceward.retry.policy import NestedRetryEvent, Retry, stop_of

__all__ = [
    "DEADLINE_HEADER",
    "Attempt",
    "Backoff",
    "Breaker",
    "BreakerRule",
    "Budget",
    "BudgetRule",
    "CircuitState",
    "DeadLetters",
    "GivenUp",
    "NestedRetryEvent",
    "Retry",
    "RetryEvent",
    "SentRequest",
    "Stop",
    "StopReason",
    "breaker",
    "deadline",
    "deadline_header",
    "forget_breakers",
    "is_replayable",
    "parse_deadline",
    "stop_of",
    "time_left",
]
