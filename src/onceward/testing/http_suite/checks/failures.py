"""
Checks of failures: what a retry gets under the key of a request that failed.
"""

from __future__ import annotations

from onceward.testing.http_suite.check_support import (
    NotShown,
    check,
    describe_response,
    require,
    require_template,
    was_replayed,
)
from onceward.testing.http_suite.execution_detector import ExecutionDetector


@check(
    "after-4xx",
    sends="a request that is refused (4xx), twice under one key, and once more after a repair",
    must="the key is free again: it runs each time, and succeeds after the repair (`stripe`: the refusal is replayed)",
)
def after_4xx(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request(
        require_template(client.target.fail_4xx, "--fail-4xx", "a request that is refused with a 4xx")
    )
    tally = detector.tally()
    first = client.send(request)
    if not 400 <= first.status < 500:
        raise NotShown(f"the request that should be refused was answered {first}")
    again = client.again(request)
    require(again.status == first.status, f"first {first}, and under the same key {describe_response(detector, again)}")
    if client.expected.after_4xx == "replay":
        require(was_replayed(detector, tally, first, again), "the refusal was not remembered: it ran again")
        return
    if client.target.repair is None:
        require(not was_replayed(detector, tally, first, again), "the refusal is replayed; the key should be free")
        return
    require(not client.is_marked(again), "the refusal is replayed; the key should be free")
    repaired = client.send(client.new_request(client.target.repair, number=request.number))
    if not repaired.succeeded:
        raise NotShown(f"the repair was answered {repaired}")
    healed = client.again(request)
    is_fresh = healed.succeeded and not client.is_marked(healed)
    require(is_fresh, f"when it could succeed, it was answered {describe_response(detector, healed)}")


@check(
    "after-5xx",
    sends="a request that fails with a 5xx, twice under one key",
    must="it does not run again: 409 `in_doubt`, or the marked replay (`stripe`: the replay)",
)
def after_5xx(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request(
        require_template(client.target.fail_5xx, "--fail-5xx", "a request that breaks with a 5xx")
    )
    tally = detector.tally()
    first = client.send(request)
    if first.status < 500:
        raise NotShown(f"the request that should break was answered {first}")
    again = client.again(request)
    policy = client.expected.after_5xx
    if policy == "run":
        is_run = not client.is_marked(again) and (again.succeeded or again.status >= 500)
        require(
            is_run, f"under the same key it was answered {describe_response(detector, again)}; expected it to run again"
        )
        return
    if policy == "doubt" and again.status == 409:
        require(again.code == "in_doubt" or not client.expected.codes, f"the 409 says {again.code}; expected in_doubt")
        return
    require(not again.succeeded, f"it ran again under the same key, and was answered {again}")
    require(again.status == first.status, f"first {first}, and under the same key {describe_response(detector, again)}")
    require(was_replayed(detector, tally, first, again), "it ran again under the same key")


CHECKS = (after_4xx, after_5xx)
