"""
Checks of a policy's options: one that cannot work is refused, by name, when the policy is made.
"""

from __future__ import annotations

from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError
from onceward._core.terms import Seconds

ATTEMPTS = 3
"""The first and two retries: what the SDKs of providers do, too."""

ATTEMPTS_UNSAID_MAX = 5
"""More must be said twice (`allow_many=True`): past five, a retry hides an outage instead of bridging a hiccup."""

ATTEMPTS_MAX = 100
"""The most that is allowed: a policy without an end is a loop."""

ELAPSED_MAX = 86_400.0


def checked_attempts(attempts: int | None, max_retries: int | None, allow_many: bool) -> int:
    """How many attempts, the first included."""
    if max_retries is not None:
        if attempts is not None:
            raise ConfigurationError("give attempts or max_retries, not both: max_retries=2 means attempts=3")
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ConfigurationError("max_retries is a whole number, 0 or more: the attempts after the first")
        attempts = max_retries + 1
    count = ATTEMPTS if attempts is None else attempts
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigurationError("attempts is a whole number, at least 1: the first one counts")
    if count > ATTEMPTS_MAX:
        raise ConfigurationError(f"attempts is at most {ATTEMPTS_MAX}. For work that needs more attempts, use a queue")
    if count > ATTEMPTS_UNSAID_MAX and allow_many is not True:
        raise ConfigurationError(
            f"more than {ATTEMPTS_UNSAID_MAX} attempts hide an outage. If you mean it, say it twice: "
            f"attempts={count}, allow_many=True"
        )
    return count


def checked_seconds(value: Seconds, name: str) -> float:
    """A duration in seconds; None and more than a day are refused."""
    if value is None:
        raise ConfigurationError(f"{name} cannot be None, because everything has a limit. Give seconds or a timedelta")
    seconds = microseconds(value, name) / 1e6
    if seconds > ELAPSED_MAX:
        raise ConfigurationError(f"{name} is at most a day. For longer waits, use a queue")
    return seconds


def checked_flag(value: bool, name: str) -> bool:
    """True or False; anything else is refused."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is True or False")
    return value
