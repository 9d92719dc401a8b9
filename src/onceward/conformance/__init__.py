"""
A suite for any HTTP API that claims idempotency, ours or a stranger's: it judges from outside.

    describe(...)   what is examined: an address, requests, credentials, a profile    -> Target
    examine(target) every check that applies                                         -> Examination

`onceward conformance` is the same on the command line.
"""

from __future__ import annotations

from onceward.conformance.checking import Check
from onceward.conformance.checks import CHECKS
from onceward.conformance.expectations import PROFILES, Expectations
from onceward.conformance.running import Examination, Finding, Verdict, examine
from onceward.conformance.target import Target, describe
from onceward.conformance.wire import TargetUnreachable

__all__ = [
    "CHECKS",
    "PROFILES",
    "Check",
    "Examination",
    "Expectations",
    "Finding",
    "Target",
    "TargetUnreachable",
    "Verdict",
    "describe",
    "examine",
]
