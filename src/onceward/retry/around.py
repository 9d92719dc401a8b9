"""
`Around`: a policy, a breaker and a budget around a gate's operation, in both colours.
"""

from __future__ import annotations

from onceward.retry.running import BlockingAround
from onceward.retry.running_async import AwaitingAround


class Around(BlockingAround, AwaitingAround):
    """Policy, breaker and budget of one operation."""
