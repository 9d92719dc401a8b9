"""The two documents' tables of what to retry, line by line, on errors and on plain objects with a status."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest

from onceward._core.classifier import DEFAULT, RETRIED_STATUSES
from onceward.verdicts import Action, Certainty, Classifier, Kind, should_retry


class Response:
    """Anything with a status will do."""

    def __init__(self, status: Any, headers: Any = (), body: Any = None) -> None:
        self.status_code = status
        self.headers = headers
        self.body = body


class StatusError(Exception):
    """An exception that carries a status, as SDKs raise them."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status_code = status


class WrappingError(Exception):
    """An exception that carries its response, as HTTP clients raise them."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.response = Response(status)


SHAPES = [Response, StatusError, WrappingError]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("status", "retried"),
    [
        pytest.param(408, True, marks=pytest.mark.requirement("C25")),
        pytest.param(500, True, marks=pytest.mark.requirement("C27")),
        pytest.param(502, True, marks=pytest.mark.requirement("C27")),
        pytest.param(503, True, marks=pytest.mark.requirement("C27")),
        pytest.param(504, True, marks=pytest.mark.requirement("C27")),
        pytest.param(400, False, marks=pytest.mark.requirement("C28")),
        pytest.param(401, False),
        pytest.param(403, False),
        pytest.param(404, False, marks=pytest.mark.requirement("C30")),
        pytest.param(409, False, marks=pytest.mark.requirement("C31")),
    ],
)
def test_the_third_documents_table(shape: Any, status: int, retried: bool) -> None:
    """
    "What to retry", for keyed writes (that document has no others).
    """
    assert retried is DEFAULT.retryable(shape(status), keyed=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("status", "kind", "action"),
    [
        pytest.param(429, Kind.RATE_LIMIT, Action.SAME_KEY, marks=pytest.mark.requirement("D38")),
        pytest.param(502, Kind.UPSTREAM, Action.SAME_KEY, marks=pytest.mark.requirement("D39")),
        pytest.param(503, Kind.UPSTREAM, Action.SAME_KEY, marks=pytest.mark.requirement("D39")),
        pytest.param(504, Kind.UPSTREAM, Action.SAME_KEY, marks=pytest.mark.requirement("D39")),
        pytest.param(408, Kind.NETWORK, Action.SAME_KEY, marks=pytest.mark.requirement("D40")),
        pytest.param(400, Kind.CLIENT, Action.NEVER, marks=pytest.mark.requirement("D42")),
        pytest.param(422, Kind.CLIENT, Action.NEVER, marks=pytest.mark.requirement("D42")),
        pytest.param(401, Kind.AUTH, Action.REFRESH, marks=pytest.mark.requirement("D43")),
        pytest.param(403, Kind.AUTH, Action.ESCALATE, marks=pytest.mark.requirement("D43")),
        pytest.param(404, Kind.CLIENT, Action.NEVER, marks=pytest.mark.requirement("D44")),
        pytest.param(409, Kind.STATE, Action.NEVER, marks=pytest.mark.requirement("D45")),
    ],
)
@pytest.mark.requirement("D49")
def test_the_fourth_documents_table(shape: Any, status: int, kind: Kind, action: Action) -> None:
    """
    Class and action of each status; "no" is told apart by what helps instead.
    """
    verdict = DEFAULT.judge(shape(status))

    assert (kind, action) == (verdict.kind, verdict.action)
    assert str(status) == verdict.code


@pytest.mark.requirement("D46", "D47")
@pytest.mark.parametrize("shape", SHAPES)
def test_should_retry_takes_these_statuses_and_no_other(shape: Any) -> None:
    """
    Of all statuses exactly 408, 429, 502, 503 and 504; 500 is not among them.
    """
    taken = {status for status in range(100, 600) if should_retry(shape(status))}

    assert {408, 429, 502, 503, 504} == taken == RETRIED_STATUSES
    assert should_retry(Response(HTTPStatus.BAD_GATEWAY))


@pytest.mark.requirement("D46", "D48")
@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (ConnectionRefusedError(), True),
        (BrokenPipeError(), True),
        (ValueError(), False),
        (KeyError(), False),
        (RuntimeError("who knows"), False),
        (Exception(), False),
        (PermissionError(), False),
        (FileNotFoundError(), False),
        (object(), False),
        (None, False),
        (503, False),
    ],
)
def test_infrastructure_errors_are_retried_and_unknown_ones_are_not(error: Any, retried: bool) -> None:
    """
    What is not known to be weather is taken for a mistake: trying again would only repeat it.
    """
    assert retried is should_retry(error)


@pytest.mark.requirement("D47")
@pytest.mark.parametrize("status", [500, 520, 599])
def test_whether_500_is_tried_again_is_a_policy(status: int) -> None:
    """
    By default under a key only, because the outcome is unknown; with the flag, never.
    """
    verdict = DEFAULT.judge(Response(status))

    assert verdict[0:3:2] == (Certainty.UNKNOWN, Action.SAME_KEY)
    assert not DEFAULT.retryable(Response(status))
    assert DEFAULT.retryable(Response(status), keyed=True)
    assert not Classifier(retry_500=False).retryable(Response(status), keyed=True)
    assert Classifier(retry_500=False).retryable(Response(503), keyed=True)


@pytest.mark.requirement("C31", "D45")
@pytest.mark.parametrize("body", [{"code": "in_flight"}, {"error": {"code": "in_flight"}}])
def test_a_conflict_is_judged_by_its_code(body: Any) -> None:
    """
    409 with `in_flight` means: the same key, later. Any other 409 means: not again.
    """
    waiting = DEFAULT.judge(Response(409, {"Retry-After": "2"}, body))
    other = DEFAULT.judge(Response(409, {}, {"code": "version_conflict"}))

    assert (waiting.action, waiting.wait, waiting.code) == (Action.SAME_KEY, 2.0, "in_flight")
    assert waiting.happened is None
    assert (other.action, other.code) == (Action.NEVER, "version_conflict")


@pytest.mark.parametrize("code", ["pending", "in_flight"])
def test_accepted_and_still_running_is_not_success(code: str) -> None:
    """
    202 with our code is asked again under the same key; 202 of anybody else is what it says.
    """
    pending, accepted = DEFAULT.judge(Response(202, {}, {"code": code})), DEFAULT.judge(Response(202))

    assert (pending.certainty, pending.action) == (Certainty.UNKNOWN, Action.SAME_KEY)
    assert Certainty.DONE is accepted.certainty


CERTAIN = {
    Certainty.DONE: {*range(200, 300)},
    Certainty.NOT_SENT: {425, 429},
    Certainty.UNKNOWN: {*range(100, 200), *range(300, 400), 408, *range(500, 600)} - {501, 505},
}


def test_what_each_status_says_about_the_effect() -> None:
    """
    Success happened; 4xx did not; whatever breaks in the middle is unknown.
    """
    for status in range(100, 600):
        expected = next((one for one, members in CERTAIN.items() if status in members), Certainty.REJECTED)

        assert expected is DEFAULT.judge(Response(status)).certainty, status


def test_no_status_is_tried_again_without_a_key_unless_nothing_happened() -> None:
    """
    425 and 429 only: everything else that is worth another try leaves the outcome open.
    """
    assert {status for status in range(100, 600) if DEFAULT.retryable(Response(status))} == {425, 429}


@pytest.mark.parametrize("status", [0, 99, 600, 999, -1, True, "503", None, 5.03, 10**30])
def test_a_status_that_is_none_is_not_believed(status: Any) -> None:
    """
    Text, truth values and numbers out of range are not statuses.
    """
    assert DEFAULT.judge(Response(status))[:3] == (Certainty.UNKNOWN, Kind.OTHER, Action.NEVER)
