"""
Checks of a key that is used again: for the same request in other words, or for another request.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from onceward.testing.http_suite.check_support import NotShown, check, must_be_refused, must_be_replayed
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.target import body_members
from onceward.testing.http_suite.target_client import TargetRequest

LARGE_BYTES = 2 * 1024 * 1024
"""Past the limits of one megabyte at which some servers stop comparing."""


@check(
    "json-same",
    sends="a request, and then its JSON with the members in another order and other whitespace",
    must="it is the same request: the second response is a replay",
)
def json_same(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request()
    members = _members(request)
    spelled = ", \n\t".join(f"{json.dumps(name)} :  {json.dumps(value)}" for name, value in reversed(members.items()))
    tally = detector.tally()
    first = client.first(request)
    again = client.again(replace(request, body=f" {{ {spelled}\n}}\n".encode()))
    must_be_replayed(detector, tally, first, again, "another spelling of the same JSON")


@check(
    "body-changed",
    sends="a request, and then another body under the same key",
    must="the second is refused with the profile's status",
)
def body_changed(detector: ExecutionDetector) -> None:
    request = detector.client.new_request()
    other = detector.client.changed(request)
    detector.client.first(request)
    response = detector.client.again(other)
    must_be_refused(detector, response, detector.client.expected.mismatch_status, "another body under the same key")


@check(
    "body-changed-original",
    sends="a request, another body under the same key, and the first request again",
    must="the first response is still replayed",
)
def body_changed_original(detector: ExecutionDetector) -> None:
    request = detector.client.new_request()
    other = detector.client.changed(request)
    tally = detector.tally()
    first = detector.client.first(request)
    detector.client.again(other)
    again = detector.client.again(request)
    must_be_replayed(detector, tally, first, again, "afterwards the original")


@check(
    "query-changed",
    sends="a request, and then the same body with another query under the same key",
    must="the second is refused with the profile's status",
)
def query_changed(detector: ExecutionDetector) -> None:
    request = detector.client.new_request()
    detector.client.first(request)
    path = f"{request.path}{'&' if '?' in request.path else '?'}onceward={request.number}"
    response = detector.client.again(replace(request, path=path))
    must_be_refused(detector, response, detector.client.expected.mismatch_status, "another query under the same key")


@check(
    "path-changed",
    sends="a request, and then the same body to another path under the same key",
    must="the second is refused with the profile's status",
)
def path_changed(detector: ExecutionDetector) -> None:
    path = detector.client.target.other_path
    if path is None:
        raise NotShown("give --other-path: another path that takes the same body")
    request = detector.client.new_request()
    detector.client.first(request)
    response = detector.client.again(replace(request, path=path))
    must_be_refused(detector, response, detector.client.expected.mismatch_status, "another path under the same key")


@check(
    "large-body",
    sends="a body of 2 MiB (whitespace inside the JSON) twice, and then another body under the same key",
    must="the second response is a replay, and the other body is refused with the profile's status",
)
def large_body(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request()
    large, other = _padded(request), _padded(client.changed(request))
    tally = detector.tally()
    first = client.send(large)
    if not first.succeeded:
        raise NotShown(f"a body of 2 MiB was answered {first}")
    must_be_replayed(detector, tally, first, client.again(large), "the second large body")
    must_be_refused(detector, client.again(other), client.expected.mismatch_status, "another large body")


def _members(request: TargetRequest) -> dict[str, Any]:
    members = body_members(request.body)
    if members is None:
        raise NotShown("the body is not a JSON object with members")
    return members


def _padded(request: TargetRequest) -> TargetRequest:
    _members(request)
    # In front, so that what differs lies behind whatever is compared of a beginning.
    return replace(request, body=b"{" + b" " * LARGE_BYTES + (request.body or b"").strip()[1:])


CHECKS = (json_same, body_changed, body_changed_original, query_changed, path_changed, large_body)
