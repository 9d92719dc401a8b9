"""
Every check, in the order in which they are made.
"""

from __future__ import annotations

from onceward.conformance.checking import Check
from onceward.conformance.checks import bodies, changes, crowds, failures, keys, plans, refusals, replays, tenants

CHECKS: tuple[Check, ...] = (
    *replays.CHECKS,
    *changes.CHECKS,
    *keys.CHECKS,
    *crowds.CHECKS,
    *failures.CHECKS,
    *tenants.CHECKS,
    *refusals.CHECKS,
    *bodies.CHECKS,
    *plans.CHECKS,
)
