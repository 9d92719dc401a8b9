"""
What a check is, and the assertions that several checks share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from onceward.testing.http_suite.execution_detector import ExecutionDetector, ExecutionTally
from onceward.testing.http_suite.expectations import Expectations
from onceward.testing.http_suite.raw_http import TargetResponse
from onceward.testing.http_suite.target import RequestTemplate
from onceward.testing.http_suite.target_client import DoesNotHold, NotShown, TargetRequest, require

CheckFunction: TypeAlias = Callable[[ExecutionDetector], None]


@dataclass(frozen=True, slots=True)
class HttpCheck:
    """One promise: what is sent, what must hold, and the function that finds out."""

    name: str
    sends: str
    must: str
    run: CheckFunction
    applies: Callable[[Expectations], bool]


def check(
    name: str, *, sends: str, must: str, when: Callable[[Expectations], bool] = lambda _: True
) -> Callable[[CheckFunction], HttpCheck]:
    """Make a check of a function."""
    return lambda run: HttpCheck(name, sends, must, run, when)


def describe_response(detector: ExecutionDetector, response: TargetResponse) -> str:
    """A response in a sentence."""
    return f"{response}, marked as a replay" if detector.client.is_marked(response) else str(response)


def must_run_once(tally: ExecutionTally, responses: list[TargetResponse]) -> None:
    """These responses are of one execution."""
    executions = tally.executions(responses)
    require(executions == 1, f"it ran {executions} times")


def must_be_replayed(
    detector: ExecutionDetector, tally: ExecutionTally, first: TargetResponse, again: TargetResponse, what: str
) -> None:
    """The second response is of the first one's execution. (Whether it is alike, byte for byte, is another check.)"""
    require(detector.client.is_done(again), f"{what} was answered {describe_response(detector, again)}")
    must_run_once(tally, [first, again])


def must_run_apart(
    detector: ExecutionDetector, tally: ExecutionTally, responses: list[TargetResponse], what: str
) -> None:
    """These responses are of one execution each."""
    for response in responses:
        require(not detector.client.is_marked(response), f"{what} got a replay")
        require(detector.client.is_done(response), f"{what} was answered {response}")
    executions = tally.executions(responses)
    require(executions == len(responses), f"{what} did not run on its own ({executions} of {len(responses)} ran)")


def must_be_refused(detector: ExecutionDetector, response: TargetResponse, status: int, what: str) -> None:
    """This response is a refusal."""
    require(
        response.status == status, f"{what} was answered {describe_response(detector, response)}; expected {status}"
    )


def was_replayed(
    detector: ExecutionDetector, tally: ExecutionTally, first: TargetResponse, again: TargetResponse
) -> bool:
    """Whether the second response is a replay of the first. Works for equal responses and failures, too."""
    if detector.client.is_marked(again):
        return True
    if detector.marks:
        return False
    counted = tally.counted()
    if counted is not None:
        return counted <= 1 and (first.status, first.body) == (again.status, again.body)
    if (first.status, first.body) != (again.status, again.body):
        return False
    raise NotShown("the target marks no replays, and these two responses are equal; give --count-url")


def must_replay(detector: ExecutionDetector, request: TargetRequest, status: int | None = None) -> None:
    """Send a request twice: both responses are equal, and the second is a replay."""
    tally = detector.tally()
    first = detector.client.first(request)
    if status is not None and first.status != status:
        raise NotShown(f"the request was answered {first}, not {status}")
    again = detector.client.again(request)
    require(was_replayed(detector, tally, first, again), f"the second was answered {again}, and is not a replay")
    require(first.status == again.status, f"the first was answered {first}, the replay {again}")
    require(first.body == again.body, "the replay has another body")


def require_template(shape: RequestTemplate | None, flag: str, what: str) -> RequestTemplate:
    """A part of the description that a check cannot do without."""
    if shape is None:
        raise NotShown(f"give {flag}: {what}")
    return shape


def require_admitted(detector: ExecutionDetector, response: TargetResponse) -> TargetResponse:
    """A response to the other tenant, who must have been let in."""
    if response.status in (401, 403):
        raise NotShown(f"the other tenant is not let in ({response.status}); check --other-header")
    return response


def require_other_tenant(detector: ExecutionDetector) -> None:
    """Go on only if there are two tenants."""
    if detector.client.target.other_headers is None:
        raise NotShown("give --other-header: the credentials of another tenant")


__all__ = [
    "DoesNotHold",
    "HttpCheck",
    "NotShown",
    "check",
    "describe_response",
    "must_be_refused",
    "must_be_replayed",
    "must_replay",
    "must_run_apart",
    "must_run_once",
    "require",
    "require_admitted",
    "require_other_tenant",
    "require_template",
    "was_replayed",
]
