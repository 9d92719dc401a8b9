"""
Every check, in the order in which they are made.
"""

from __future__ import annotations

from onceward.testing.http_suite.check_support import HttpCheck
from onceward.testing.http_suite.checks import (
    changed_requests,
    concurrency,
    failures,
    keys,
    malformed_json,
    plans,
    refusals,
    replays,
    tenants,
)

CHECKS: tuple[HttpCheck, ...] = (
    *replays.CHECKS,
    *changed_requests.CHECKS,
    *keys.CHECKS,
    *concurrency.CHECKS,
    *failures.CHECKS,
    *tenants.CHECKS,
    *refusals.CHECKS,
    *malformed_json.CHECKS,
    *plans.CHECKS,
)
"""Every check, in the order in which they are made."""
