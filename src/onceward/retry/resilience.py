"""
`OperationResilience`: a policy, a breaker and a budget around a gate's operation, in both colours.
"""

from __future__ import annotations

from onceward.retry.resilience_mixin import ResilienceMixin
from onceward.retry.resilience_mixin_async import AsyncResilienceMixin


class OperationResilience(ResilienceMixin, AsyncResilienceMixin):
    """Policy, breaker and budget of one operation."""
