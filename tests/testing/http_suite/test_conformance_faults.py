"""
The suite can fail: each planted fault turns the right checks red, and no other.

A check that stayed green under its fault, or turned red under somebody else's, would be found here. The faults of one
group are examined at the same time, on a server each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import reference_api

from onceward.testing.http_suite import CHECKS, CheckVerdict, describe, examine

# fault -> the checks that must find it. The profile is `default` unless the fault's name is listed below.
FAULTS: dict[str, dict[str, set[str]]] = {
    "replays": {
        "runs-again": {
            *("replay-equal", "stream", "json-same", "body-changed", "body-changed-original", "query-changed"),
            *("path-changed", "large-body", "key-longest", "key-quoted", "crowd", "in-flight", "in-flight-changed"),
        },
        "body-respelled": {"replay-equal", "stream", "crowd"},
        "status-200": {"replay-equal", "stream", "no-content"},
        "content-type-lost": {"replay-content-type"},
        "marker-missing": {"replay-marked"},
        "replay-marked-false": {"replay-marked"},
        "first-marked-false": {"first-unmarked"},
        "unread-forgotten": {"answer-lost"},
        "cut-frees": {"cut-while-running"},
        "unkeyed-deduplicated": {"unkeyed"},
        "204-not-kept": {"no-content"},
        "stream-not-kept": {"stream"},
        "get-compared": {"safe-methods"},
    },
    "changes": {
        "fingerprint-forgotten": {
            *("body-changed", "query-changed", "path-changed", "large-body", "in-flight-changed"),
        },
        "mismatch-409": {"body-changed", "query-changed", "path-changed", "large-body", "in-flight-changed"},
        "mismatch-forgets": {"body-changed-original"},
        "query-ignored": {"query-changed"},
        "path-ignored": {"path-changed"},
        "raw-bytes": {"json-same"},
        "large-bypassed": {"large-body"},
    },
    "keys": {
        "key-optional": {"key-missing"},
        "empty-key-ignored": {"key-empty"},
        "odd-key-breaks": {"key-characters"},
        "odd-key-cuts": {"key-characters"},
        "long-keys-accepted": {"key-too-long"},
        "short-keys-only": {"key-longest"},
        "first-key-wins": {"key-twice"},
        "quotes-matter": {"key-quoted", "key-empty"},
        "case-folded": {"key-case"},
        "key-truncated": {"key-prefix"},
    },
    "crowds": {
        "claims-late": {"crowd", "in-flight", "in-flight-changed", "cut-while-running"},
        "in-flight-423": {"in-flight"},
        "in-flight-waits": {"in-flight"},
        "in-flight-refused": {"in-flight"},
        "in-flight-hangs": {"in-flight", "cut-while-running"},
        "retry-after-words": {"in-flight-advice"},
        "pending-unsaid": {"in-flight", "in-flight-advice", "cut-while-running"},
        "wait-unsaid": {"in-flight-advice"},
    },
    "failures": {
        "4xx-remembered": {"after-4xx"},
        "4xx-sticks": {"after-4xx"},
        "5xx-frees": {"after-5xx"},
        "5xx-sticks": {"after-5xx"},
        "failures-forgotten": {"after-4xx", "after-5xx"},
    },
    "tenants": {
        "tenants-shared": {"tenant-apart", "tenant-silent", "tenant-in-flight"},
        "header-tells": {"tenant-silent"},
        "time-tells": {"tenant-silent"},
        "plans-shared": {"plan-tenant"},
    },
    "refusals": {
        "plain-errors": {"problem-shape"},
        "advice-missing": {"problem-shape"},
        "stripe-errors-as-problems": {"stripe-shape"},
        "stripe-type-other": {"stripe-shape"},
        "other-codes": {"refusal-codes"},
        "dead-link": {"problem-link"},
        "link-missing": {"problem-link"},
        "unpublished": {"retention-published"},
        "retention-unsaid": {"retention-published"},
    },
    "bodies": {
        "json-lenient": {"json-member-twice", "json-surrogate", "json-nan"},
        "surrogate-breaks": {"json-surrogate"},
        "unfinished-accepted": {"json-unfinished"},
    },
    "plans": {
        "plan-marker": {"plan-replay"},
        "steps-alike": {"plan-steps"},
        "half-a-plan": {"plan-incomplete"},
        "plan-wins": {"plan-and-key"},
    },
}

PROFILES = {
    **dict.fromkeys(("key-optional", "link-missing"), "ietf"),
    **dict.fromkeys(("failures-forgotten", "stripe-errors-as-problems", "stripe-type-other"), "stripe"),
    **dict.fromkeys(("pending-unsaid", "wait-unsaid"), "pacspace"),
    **dict.fromkeys((*FAULTS["plans"], "plans-shared", "in-flight-refused"), "persql"),
}

SECONDS = 2.5
"""For an exchange: longer than a busy machine needs, and no longer than a test for a server that hangs should take."""


def red(fault: str) -> set[str]:
    """The checks that find something wrong with an API that has this fault."""
    profile = PROFILES.get(fault, "default")
    # What must meet a slow request has to meet it on a busy machine, too.
    hold = 1.0 if fault in FAULTS["crowds"] or fault == "cut-frees" else reference_api.HOLD_SECONDS
    with reference_api.serving(profile, fault, hold) as (url, _):
        described = {**reference_api.DESCRIPTION, "url": f"{url}/orders", "profile": profile, "timeout": SECONDS}
        return {*examine(describe(described, {}), jobs=8).named(CheckVerdict.BROKEN)}


@pytest.mark.parametrize("group", FAULTS)
@pytest.mark.dose(4)
def test_each_fault_is_found_by_the_checks_that_are_about_it(group: str) -> None:
    """
    The negative control: one fault at a time, and exactly these checks say that something does not hold.
    """
    faults = FAULTS[group]
    with ThreadPoolExecutor(max_workers=4) as several:
        found = dict(zip(faults, several.map(red, faults), strict=True))

    assert faults == found


def test_every_check_has_a_fault_that_it_finds() -> None:
    """
    No check is green whatever happens.
    """
    found = {name for group in FAULTS.values() for names in group.values() for name in names}

    assert {check.name for check in CHECKS} == found


def test_every_fault_of_the_reference_api_is_examined() -> None:
    """
    A fault that nobody examines would look like a check that works.
    """
    assert reference_api.fault_names() == {fault for group in FAULTS.values() for fault in group}
