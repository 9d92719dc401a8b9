"""
`Budget.shared` and `Breaker.shared`: one for every process that names it on the same store.

What a process may do by itself is bounded: it reports successes late, it trusts a refusal for `staleness` seconds, and
while the store is away it uses its own count. Only the store grants a retry, so all processes have one budget together.
"""

from __future__ import annotations

from onceward.retry.shared_mixins import SharedBreakerMixin, SharedBudgetMixin
from onceward.retry.shared_mixins_async import AsyncSharedBreakerMixin, AsyncSharedBudgetMixin


class SharedBudget(SharedBudgetMixin, AsyncSharedBudgetMixin):
    """A retry budget that several processes share through a store."""


class SharedBreaker(SharedBreakerMixin, AsyncSharedBreakerMixin):
    """A circuit breaker that several processes share through a store."""
