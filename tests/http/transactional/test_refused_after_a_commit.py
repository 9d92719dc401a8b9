"""A 4xx that is answered after something was committed is remembered: nothing is written twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onceward import Operation, Reply
from onceward._core.record import Record
from onceward.http import profile
from onceward.http.server.handler_outcomes import (
    FailedResponse,
    TransientResponse,
    UnstoredResponse,
    handler_result,
    remembers,
)

SCRIPT = Path(__file__).with_name("django_refusals.py")
COLOURS = ("plain", "async", "async-blocking-gate")


@pytest.fixture(scope="module", params=COLOURS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every view of the script, asked twice under one key."""
    folder = tmp_path_factory.mktemp("refusals")
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder), request.param]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.fault("a-refusal-after-a-commit-frees-the-key", "a-stream-does-not-say-what-was-committed")
@pytest.mark.parametrize("view", ["returned", "streamed", "autocommitted"])
def test_a_refusal_that_was_committed_with_its_rows_is_remembered(told: Any, view: str) -> None:
    """
    ATOMIC_REQUESTS commits what is returned, and so does autocommit. The retry gets the refusal, and writes nothing.
    """

    assert told["told"][view] == [[409, None], [409, "true"]]
    assert (told["rows"].get(view), told["runs"][view]) == (1, 1)


@pytest.mark.parametrize(("view", "status"), [("marked", 409), ("raised", 404), ("read", 409), ("undone", 409)])
def test_a_refusal_that_left_nothing_behind_frees_its_key(told: Any, view: str, status: int) -> None:
    """
    A rollback mark, an exception, no write at all, or one that was undone: it may be sent again.
    """

    assert told["told"][view] == [[status, None], [status, None]]
    assert (told["rows"].get(view), told["runs"][view]) == (None, 2)


def test_what_raised_after_its_own_commit_is_in_doubt_though_its_route_says_atomic(told: Any) -> None:
    """
    guarantee="atomic" says that a failure rolls everything back; here a commit was seen.
    """

    assert told["told"]["committed_then_raised"] == [[500, None], [409, None]]
    assert (told["rows"]["committed_then_raised"], told["runs"]["committed_then_raised"]) == (1, 1)


def test_doubt_of_an_earlier_attempt_stays(told: Any) -> None:
    """
    A refusal speaks for its own attempt: what the first one may have done is not decided by it.
    """

    assert told["told"]["doubtful"] == [[500, None], [409, None], [409, None]]
    assert told["runs"]["doubtful"] == 3


# --- where the wire cannot tell: one word on the route ---


def operation(*, doubt: int = 0) -> Operation:
    fields = dict.fromkeys(Record._fields)
    return Operation(Record(**{**fields, "doubt": doubt}))  # type: ignore[arg-type]


@pytest.mark.fault("remember-4xx-forgets")
def test_remember_4xx_stores_refusals_and_leaves_failures_to_the_guarantee() -> None:
    """
    The word for routes behind ASGI and WSGI, whose handlers may have written before they refuse.
    """
    chosen = profile(remember="4xx")

    assert [remembers(chosen, status) for status in (200, 404, 409, 422, 500, 503)] == [True] * 4 + [False] * 2
    assert type(handler_result(chosen, Reply(409), operation())) is Reply
    with pytest.raises(FailedResponse):
        handler_result(chosen, Reply(500), operation())


@pytest.mark.fault("a-rate-limit-is-remembered")
@pytest.mark.parametrize("name", ["stripe", "default"])
def test_a_429_is_never_what_a_key_is_remembered_by(name: str) -> None:
    """
    It says that nothing was done and when to come again. Stripe's own API does not remember it, either.
    """
    for chosen in (profile("stripe"), profile(name, remember="4xx"), profile(name, remember="all")):
        found = handler_result(chosen, Reply(429), operation())

        assert isinstance(found, TransientResponse)


@pytest.mark.parametrize("status", [404, 422])
@pytest.mark.parametrize("remember", ["4xx", "all"])
def test_a_refusal_does_not_settle_what_an_earlier_attempt_left_open(remember: Any, status: int) -> None:
    """
    While an earlier attempt may have had its effect, there is nothing final to remember.
    """
    chosen = profile(remember=remember)

    assert isinstance(handler_result(chosen, Reply(status), operation(doubt=1)), TransientResponse)
    assert handler_result(chosen, UnstoredResponse(status, None), operation(doubt=1)) == UnstoredResponse(
        status, None, True
    )
    assert type(handler_result(chosen, Reply(201), operation(doubt=1))) is Reply
