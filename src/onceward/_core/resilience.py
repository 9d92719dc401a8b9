"""
What goes around an operation: a retry policy, a breaker, a budget; in one order, whoever calls.

    replay      what has an answer is answered, also while the circuit is open
    breaker     an open circuit, or a deadline that is over, refuses here: nothing was claimed, nothing is in doubt
    budget      a run that follows one that failed is a retry, whoever asked for it, and is paid for
    claim
    attempts    all of them under this one claim, its key and its fence; one that may have had its effect is repeated
                only where the guarantee allows it

The parts themselves are in `onceward.retry`, which is above the gate; here is what a gate asks of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from onceward._core.errors import ConfigurationError, OncewardError


class Resilience(Protocol):
    """Policy, breaker and budget of one operation, as a gate uses them."""

    @property
    def repeats(self) -> bool:
        """Whether there is a policy, which may call the function again."""

    def refusal(self) -> OncewardError | None:
        """Why it may not be claimed now; None if it may. Takes nothing: no probe's slot, no token."""

    def pay(self) -> bool:
        """Pay for a run that follows a failed one; False: the budget is used up."""

    async def apay(self) -> bool:
        """Await the payment for a run that follows a failed one; False: the budget is used up."""

    def run(self, operation: Any, prepared: Any) -> Any:
        """Call the function under the claim, and again if need be."""

    async def arun(self, operation: Any, prepared: Any) -> Any:
        """Run the function under policy and breaker, and await it."""

    def enter(self, operation: Any) -> Callable[[Any], None]:
        """Begin work that the caller does itself, or refuse it. Call what it returns with how the work ended."""

    async def aenter(self, operation: Any) -> Callable[[Any], Awaitable[None]]:
        """Begin one attempt, awaiting breaker and budget, or refuse it."""


@runtime_checkable
class ResiliencePart(Protocol):
    """A retry policy, a breaker or a budget: what may be said about an operation."""

    def resilience(self, retry: Any, breaker: Any, budget: Any) -> Resilience:
        """This one and the others (None where there is none), put together for a gate."""


def resilience_of(retry: Any, breaker: Any, budget: Any) -> Resilience | None:
    """What is said about an operation, put together; None if nothing is."""
    for one in (retry, breaker, budget):
        if one is not None:
            found: Resilience = one.resilience(retry, breaker, budget)
            return found
    return None


def check_resilience_option(name: str, value: Any) -> Any:
    """A policy, a breaker or a budget, or None: refused otherwise."""
    if value is not None and (isinstance(value, type) or not isinstance(value, ResiliencePart)):
        kind = {"retry": "a Retry", "breaker": "a Breaker", "budget": "a Budget"}[name]
        raise ConfigurationError(f"{name} is {kind} of onceward.retry, or None; not {str(value)[:40]!r}")
    return value
