"""
Checks from outside any HTTP API that claims idempotency, not only Onceward's.

    describe(...)   what is examined: an address, requests, credentials, a profile    -> HttpTarget
    examine(target) every check that applies                                         -> Examination

`onceward conformance` is the same on the command line.
"""

from __future__ import annotations

from onceward.testing.http_suite.check_support import HttpCheck
from onceward.testing.http_suite.checks import CHECKS
from onceward.testing.http_suite.examination import CheckFinding, CheckVerdict, Examination, examine
from onceward.testing.http_suite.expectations import PROFILES, Expectations
from onceward.testing.http_suite.raw_http import TargetUnreachable
from onceward.testing.http_suite.target import HttpTarget, describe

__all__ = [
    "CHECKS",
    "PROFILES",
    "CheckFinding",
    "CheckVerdict",
    "Examination",
    "Expectations",
    "HttpCheck",
    "HttpTarget",
    "TargetUnreachable",
    "describe",
    "examine",
]
