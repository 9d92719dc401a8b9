"""
`Budget.shared` and `Breaker.shared`: one for every process that names it on the same store.

What each process may do without asking is bounded: it hands in successes late, it believes a refusal for `staleness`
seconds, and while the store is away it goes by its own count. A retry is granted by the store alone, so however many
processes there are, they have one budget between them.
"""

from __future__ import annotations

from onceward.retry.sharing import BlockingSharedBreaker, BlockingSharedBudget
from onceward.retry.sharing_async import AwaitingSharedBreaker, AwaitingSharedBudget


class SharedBudget(BlockingSharedBudget, AwaitingSharedBudget):
    """See `Budget.shared`."""


class SharedBreaker(BlockingSharedBreaker, AwaitingSharedBreaker):
    """See `Breaker.shared`."""
