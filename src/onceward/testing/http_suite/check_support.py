"""
What a check is, and the few judgements that many of them share.
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


def describe_response(detector: ExecutionDetector, answer: TargetResponse) -> str:
    """An answer in a sentence."""
    return f"{answer}, marked as a replay" if detector.client.is_marked(answer) else str(answer)


def must_run_once(tally: ExecutionTally, answers: list[TargetResponse]) -> None:
    """These answers are of one execution."""
    executions = tally.executions(answers)
    require(executions == 1, f"it ran {executions} times")


def must_be_replayed(
    detector: ExecutionDetector, tally: ExecutionTally, first: TargetResponse, again: TargetResponse, what: str
) -> None:
    """The second answer is of the first one's execution. (Whether it is alike, byte for byte, is another check.)"""
    require(detector.client.is_done(again), f"{what} was answered {describe_response(detector, again)}")
    must_run_once(tally, [first, again])


def must_run_apart(
    detector: ExecutionDetector, tally: ExecutionTally, answers: list[TargetResponse], what: str
) -> None:
    """These answers are of one execution each."""
    for answer in answers:
        require(not detector.client.is_marked(answer), f"{what} got a replay")
        require(detector.client.is_done(answer), f"{what} was answered {answer}")
    executions = tally.executions(answers)
    require(executions == len(answers), f"{what} did not run on its own ({executions} of {len(answers)} ran)")


def must_be_refused(detector: ExecutionDetector, answer: TargetResponse, status: int, what: str) -> None:
    """This answer is a refusal."""
    require(answer.status == status, f"{what} was answered {describe_response(detector, answer)}; expected {status}")


def was_replayed(
    detector: ExecutionDetector, tally: ExecutionTally, first: TargetResponse, again: TargetResponse
) -> bool:
    """Whether the second answer is the first one told again, also where answers are alike or failures."""
    if detector.client.is_marked(again):
        return True
    if detector.marks:
        return False
    counted = tally.counted()
    if counted is not None:
        return counted <= 1 and (first.status, first.body) == (again.status, again.body)
    if (first.status, first.body) != (again.status, again.body):
        return False
    raise NotShown("the target marks no replays, and these two answers are alike; give --count-url")


def must_replay(detector: ExecutionDetector, asked: TargetRequest, status: int | None = None) -> None:
    """Sent twice, it is answered alike, and the second answer is a replay."""
    tally = detector.tally()
    first = detector.client.first(asked)
    if status is not None and first.status != status:
        raise NotShown(f"the request was answered {first}, not {status}")
    again = detector.client.again(asked)
    require(was_replayed(detector, tally, first, again), f"the second was answered {again}, and is no replay")
    require(first.status == again.status, f"the first was answered {first}, the replay {again}")
    require(first.body == again.body, "the replay's body is another")


def require_template(shape: RequestTemplate | None, flag: str, what: str) -> RequestTemplate:
    """A part of the description that a check cannot do without."""
    if shape is None:
        raise NotShown(f"give {flag}: {what}")
    return shape


def require_admitted(detector: ExecutionDetector, answer: TargetResponse) -> TargetResponse:
    """An answer to the other tenant, who must have been let in."""
    if answer.status in (401, 403):
        raise NotShown(f"the other tenant is not let in ({answer.status}); check --other-header")
    return answer


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
