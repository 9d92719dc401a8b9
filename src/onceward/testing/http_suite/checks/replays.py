"""
Checks of replays: a request that is sent again gets the first response, and does not run again.
"""

from __future__ import annotations

from dataclasses import replace

from onceward.testing.http_suite.check_support import (
    NotShown,
    check,
    describe_response,
    must_replay,
    must_run_apart,
    must_run_once,
    require,
    require_template,
)
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.raw_http import NoTargetResponse
from onceward.testing.http_suite.target_client import PAUSE_SECONDS

CUT_AFTER_SECONDS = 0.1
"""Into a slow request: long enough to have begun, on a busy machine too."""


@check(
    "replay-equal",
    sends="a request twice under one key",
    must="it runs once, and the second response has the first's status and body, byte for byte",
)
def replay_equal(detector: ExecutionDetector) -> None:
    request = detector.client.new_request()
    tally = detector.tally()
    first, again = detector.client.first(request), detector.client.again(request)
    require(
        again.status == first.status, f"the first was answered {first}, the second {describe_response(detector, again)}"
    )
    must_run_once(tally, [first, again])
    require(again.body == first.body, "it ran once, but the second body is not the first, byte for byte")


@check(
    "replay-content-type",
    sends="a request twice under one key",
    must="the second response has the first's `Content-Type`",
)
def replay_content_type(detector: ExecutionDetector) -> None:
    request = detector.client.new_request()
    first, again = detector.client.first(request), detector.client.again(request)
    if not again.succeeded:
        raise NotShown(f"the second was answered {again}")
    kinds = [response.header("Content-Type") for response in (first, again)]
    require(kinds[0] == kinds[1], f"the first is {kinds[0] or 'without one'}, the second {kinds[1] or 'without one'}")


@check(
    "replay-marked",
    sends="a request twice under one key",
    must="the second response carries the profile's marker with the value `true`",
)
def replay_marked(detector: ExecutionDetector) -> None:
    request = detector.client.new_request()
    tally = detector.tally()
    first, again = detector.client.first(request), detector.client.again(request)
    marker = detector.client.expected.marker
    if detector.client.is_marked(again):
        return
    if not again.succeeded or tally.executions([first, again]) != 1:
        raise NotShown(f"the second was answered {again} and is not a replay")
    value = again.header(marker)
    require(False, f"a replay has no {marker}" if value is None else f"{marker} is {value!r} on a replay")


@check(
    "first-unmarked",
    sends="a request under a fresh key",
    must="the response does not carry the marker at all (not even `false`)",
)
def first_unmarked(detector: ExecutionDetector) -> None:
    value = detector.client.first(detector.client.new_request()).header(detector.client.expected.marker)
    require(value is None, f"a first response carries {detector.client.expected.marker}: {value!r}")


@check(
    "answer-lost",
    sends="a request; when its response begins to arrive, the connection is reset and the request is sent again",
    must="the second is a replay: nothing ran again",
)
def answer_lost(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request()
    tally = detector.tally()
    connection = client.connect(request)
    connection.wait_for_first_byte()
    connection.reset()
    again = client.again(request)
    require(client.is_done(again), f"after a lost response the retry was answered {again}")
    _must_not_have_run_again(detector, tally.counted(), marked=client.is_marked(again))
    require(client.again(request).body == again.body, "two retries were answered differently")


@check(
    "cut-while-running",
    sends="a slow request; the connection is reset while it runs, and the request is sent again until a response comes",
    must="it does not run again: the response is a replay, or says that the outcome is in doubt",
)
def cut_while_running(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request(
        require_template(client.target.slow, "--slow", "a request that takes half a second or more")
    )
    tally = detector.tally()
    connection = client.connect(request)
    client.environment.sleep(CUT_AFTER_SECONDS)
    was_running = connection.is_silent()
    connection.reset()
    if not was_running:
        raise NotShown("the slow request was answered at once; it must take half a second or more")
    client.environment.sleep(PAUSE_SECONDS)
    again = client.again(request, seconds=client.target.timeout)
    if client.is_in_flight(again):
        raise NotShown(f"still in flight {client.target.timeout:g} s after the cut; a longer --timeout may show more")
    if again.code == "in_doubt":
        return
    require(again.succeeded, f"after the cut the retry was answered {again}")
    _must_not_have_run_again(detector, tally.counted(), marked=client.is_marked(again))


@check(
    "unkeyed",
    sends="a request twice without a key",
    must="both run, and neither response carries the marker",
    when=lambda expected: not expected.key_required,
)
def unkeyed(detector: ExecutionDetector) -> None:
    request = detector.client.new_request(lines=())
    tally = detector.tally()
    responses = [detector.client.send(request), detector.client.send(request)]
    must_run_apart(detector, tally, responses, "a request without a key")


@check(
    "no-content",
    sends="a request whose response has no body, twice under one key",
    must="both get 204, and the second is a replay",
)
def no_content(detector: ExecutionDetector) -> None:
    shape = require_template(detector.client.target.no_content, "--no-content", "a request that is answered 204")
    must_replay(detector, detector.client.new_request(shape), status=204)


@check(
    "stream",
    sends="a request whose response is streamed, twice under one key",
    must="the second response is a replay, byte for byte",
)
def stream(detector: ExecutionDetector) -> None:
    shape = require_template(detector.client.target.stream, "--stream", "a request whose response is streamed")
    must_replay(detector, detector.client.new_request(shape))


@check(
    "safe-methods",
    sends="GET, HEAD and OPTIONS without a key, and with a key that a request has used",
    must="the key changes nothing: the same status with and without it, and no marker",
)
def safe_methods(detector: ExecutionDetector) -> None:
    client = detector.client
    used = client.new_request()
    client.first(used)
    for method in ("GET", "HEAD", "OPTIONS"):
        bare = replace(used, method=method, body=None, lines=())
        try:
            plain, keyed = client.send(bare), client.send(bare.under(used.lines))
        except NoTargetResponse as error:
            raise NotShown(f"{method}: {error}") from None
        require(plain.status == keyed.status, f"{method} is answered {plain} without the key and {keyed} with it")
        require(not client.is_marked(keyed), f"{method} with a key is marked as a replay")


def _must_not_have_run_again(detector: ExecutionDetector, counted: int | None, *, marked: bool) -> None:
    if counted is not None:
        require(counted == 1, f"it ran {counted} times")
    elif detector.marks:
        require(marked, "the retry is not a replay: it ran again")
    else:
        raise NotShown("the target marks no replays, and the first response was not read; give --count-url")


CHECKS = (
    replay_equal,
    replay_content_type,
    replay_marked,
    first_unmarked,
    answer_lost,
    cut_while_running,
    unkeyed,
    no_content,
    stream,
    safe_methods,
)
