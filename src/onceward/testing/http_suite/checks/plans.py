"""
Checks of plans: steps that are named by two headers, each replayed on its own.
"""

from __future__ import annotations

from onceward.testing.http_suite.check_support import (
    check,
    must_be_refused,
    must_run_apart,
    must_run_once,
    require,
    require_admitted,
    require_other_tenant,
)
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.expectations import Expectations
from onceward.testing.http_suite.target_client import HeaderLines

MARKER = "Plan-Replayed"
BAD_REQUEST = 400


def _has_plans(expected: Expectations) -> bool:
    return expected.plans


@check(
    "plan-replay",
    sends="a step (`Plan-Key`, `Plan-Step`) twice",
    must="it runs once; the second response is a replay and says `Plan-Replayed: true`, the first does not",
    when=_has_plans,
)
def plan_replay(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request(lines=_step(client.key(), "charge"))
    tally = detector.tally()
    first, again = client.first(request), client.again(request)
    require(again.status == first.status, f"the first was answered {first}, the second {again}")
    must_run_once(tally, [first, again])
    require(first.header(MARKER) is None, f"a first response carries {MARKER}: {first.header(MARKER)!r}")
    require(client.is_marked(again, MARKER), f"{MARKER} is {again.header(MARKER)!r} on a replay")


@check(
    "plan-steps",
    sends="a step, another step of the same plan, and the same step of another plan",
    must="all three run",
    when=_has_plans,
)
def plan_steps(detector: ExecutionDetector) -> None:
    client = detector.client
    plan, other = client.key(), client.key()
    request = client.new_request(lines=_step(plan, "charge"))
    tally = detector.tally()
    responses = [client.first(request)]
    responses += [client.send(request.under(lines)) for lines in (_step(plan, "mail"), _step(other, "charge"))]
    must_run_apart(detector, tally, responses, "another step")


@check(
    "plan-incomplete",
    sends="`Plan-Key` without `Plan-Step`, and the reverse",
    must="both are refused with 400 `plan_incomplete`",
    when=_has_plans,
)
def plan_incomplete(detector: ExecutionDetector) -> None:
    for line in _step(detector.client.key(), "charge"):
        _must_refuse(detector, (line,), f"{line[0]} alone", "plan_incomplete")


@check(
    "plan-and-key",
    sends="`Plan-Key` and `Plan-Step` together with a key",
    must="it is refused with 400 `ambiguous_identity`",
    when=_has_plans,
)
def plan_and_key(detector: ExecutionDetector) -> None:
    client = detector.client
    lines = (*_step(client.key(), "charge"), *client.keyed(client.key()))
    _must_refuse(detector, lines, "a step with a key", "ambiguous_identity")


@check(
    "plan-tenant",
    sends="a step, and the same step by another tenant",
    must="both run, and each gets its own response",
    when=_has_plans,
)
def plan_tenant(detector: ExecutionDetector) -> None:
    require_other_tenant(detector)
    client = detector.client
    request = client.new_request(lines=_step(client.key(), "charge"))
    tally = detector.tally()
    responses = [client.first(request), require_admitted(detector, client.send(request, other=True))]
    require(not client.is_marked(responses[1], MARKER), "another tenant got a replay")
    must_run_apart(detector, tally, responses, "another tenant's step")


def _step(plan: str, step: str) -> HeaderLines:
    return (("Plan-Key", plan.encode("ascii")), ("Plan-Step", step.encode("ascii")))


def _must_refuse(detector: ExecutionDetector, lines: HeaderLines, what: str, code: str) -> None:
    client = detector.client
    response = client.send(client.new_request(lines=lines))
    must_be_refused(detector, response, BAD_REQUEST, what)
    require(
        response.code == code or not client.expected.codes,
        f"{what}: the code is {response.code or 'missing'}, not {code}",
    )


CHECKS = (plan_replay, plan_steps, plan_incomplete, plan_and_key, plan_tenant)
