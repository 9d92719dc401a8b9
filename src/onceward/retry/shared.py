"""
`Budget.shared` and `Breaker.shared`: one for every process that names it on the same store.

What each process may do without asking is bounded: it hands in successes late, it believes a refusal for `staleness`
seconds, and while the store is away it goes by its own count. A retry is granted by the store alone, so however many
processes there are, they have one budget between them.
"""

from __future__ import annotations

from onceward.retry.shared_mixins import SharedBreakerMixin, SharedBudgetMixin
from onceward.retry.shared_mixins_async import AsyncSharedBreakerMixin, AsyncSharedBudgetMixin


class SharedBudget(SharedBudgetMixin, AsyncSharedBudgetMixin):
    """See `Budget.shared`."""


class SharedBreaker(SharedBreakerMixin, AsyncSharedBreakerMixin):
    """See `Breaker.shared`."""
