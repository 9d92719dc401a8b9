"""
Trying again: policies, budgets, breakers, deadlines. Thin shells over `_core/attempts.py` and its arithmetic.
"""

from onceward._core.attempts import Attempt, Retrying
from onceward._core.backoff import Backoff
from onceward._core.breaker import BreakerRule, CircuitState
from onceward._core.budget import BudgetRule
from onceward._core.sent import SentRequest
from onceward._core.stops import DeadLetters, GivenUp, Stop, StopReason
from onceward.retry.breaker import Breaker, breaker, forget_breakers
from onceward.retry.budget import Budget
from onceward.retry.frames import DEADLINE_HEADER, deadline, deadline_header, parse_deadline, time_left
from onceward.retry.functions import is_replayable
from onceward.retry.policy import Nested, Retry, stop_of

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
    "Nested",
    "Retry",
    "Retrying",
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
