"""
What is the same request, and what is another one under a key that is taken.
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
    must="it is the same request: the second answer is the first's",
)
def json_same(detector: ExecutionDetector) -> None:
    client = detector.client
    asked = client.ask()
    members = _members(asked)
    spelled = ", \n\t".join(f"{json.dumps(name)} :  {json.dumps(value)}" for name, value in reversed(members.items()))
    tally = detector.tally()
    first = client.first(asked)
    again = client.again(replace(asked, body=f" {{ {spelled}\n}}\n".encode()))
    must_be_replayed(detector, tally, first, again, "another spelling of the same JSON")


@check(
    "body-changed",
    sends="a request, and then another body under the same key",
    must="the second is refused with the profile's status",
)
def body_changed(detector: ExecutionDetector) -> None:
    asked = detector.client.ask()
    other = detector.client.changed(asked)
    detector.client.first(asked)
    answer = detector.client.again(other)
    must_be_refused(detector, answer, detector.client.expected.mismatch_status, "another body under the same key")


@check(
    "body-changed-original",
    sends="a request, another body under the same key, and the first request again",
    must="the first answer is still replayed",
)
def body_changed_original(detector: ExecutionDetector) -> None:
    asked = detector.client.ask()
    other = detector.client.changed(asked)
    tally = detector.tally()
    first = detector.client.first(asked)
    detector.client.again(other)
    again = detector.client.again(asked)
    must_be_replayed(detector, tally, first, again, "afterwards the original")


@check(
    "query-changed",
    sends="a request, and then the same body with another query under the same key",
    must="the second is refused with the profile's status",
)
def query_changed(detector: ExecutionDetector) -> None:
    asked = detector.client.ask()
    detector.client.first(asked)
    path = f"{asked.path}{'&' if '?' in asked.path else '?'}onceward={asked.number}"
    answer = detector.client.again(replace(asked, path=path))
    must_be_refused(detector, answer, detector.client.expected.mismatch_status, "another query under the same key")


@check(
    "path-changed",
    sends="a request, and then the same body to another path under the same key",
    must="the second is refused with the profile's status",
)
def path_changed(detector: ExecutionDetector) -> None:
    path = detector.client.target.other_path
    if path is None:
        raise NotShown("give --other-path: another path that takes the same body")
    asked = detector.client.ask()
    detector.client.first(asked)
    answer = detector.client.again(replace(asked, path=path))
    must_be_refused(detector, answer, detector.client.expected.mismatch_status, "another path under the same key")


@check(
    "large-body",
    sends="a body of 2 MiB (whitespace inside the JSON) twice, and then another one under the same key",
    must="the second answer is the first's, and the other body is refused with the profile's status",
)
def large_body(detector: ExecutionDetector) -> None:
    client = detector.client
    asked = client.ask()
    large, other = _padded(asked), _padded(client.changed(asked))
    tally = detector.tally()
    first = client.send(large)
    if not first.succeeded:
        raise NotShown(f"a body of 2 MiB was answered {first}")
    must_be_replayed(detector, tally, first, client.again(large), "the second large body")
    must_be_refused(detector, client.again(other), client.expected.mismatch_status, "another large body")


def _members(asked: TargetRequest) -> dict[str, Any]:
    members = body_members(asked.body)
    if members is None:
        raise NotShown("the body is no JSON object with members")
    return members


def _padded(asked: TargetRequest) -> TargetRequest:
    _members(asked)
    # In front, so that what differs lies behind whatever is compared of a beginning.
    return replace(asked, body=b"{" + b" " * LARGE_BYTES + (asked.body or b"").strip()[1:])


CHECKS = (json_same, body_changed, body_changed_original, query_changed, path_changed, large_body)
