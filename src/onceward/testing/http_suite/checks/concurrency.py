"""
Checks with several requests at the same time: many duplicates at once, and duplicates of a request that still runs.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from onceward.testing.http_suite.check_support import (
    DoesNotHold,
    HttpCheck,
    NotShown,
    check,
    describe_response,
    must_be_refused,
    require,
    require_admitted,
    require_other_tenant,
    require_template,
)
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.raw_http import NoTargetResponse, TargetConnection, TargetResponse
from onceward.testing.http_suite.target_client import TargetRequest, run_in_thread

HEAD_START_SECONDS = 0.1
"""How long before the others the first request is sent: time for a busy server to start it."""

ARRIVAL_SECONDS = 60.0
"""How long the first of a crowd waits for the last: for threads of ours, so a busy machine is no fault of the API's."""

OVERLAP_SECONDS = 0.05
"""How long the first must still run after a duplicate is sent, so that the two certainly overlap."""

HOLDS_MAX = 3
"""How many slow requests are sent at most, until one clearly overlaps with its duplicate."""

SLOW = "a request that takes half a second or more"


@dataclass(frozen=True, slots=True)
class OverlappingRequest:
    """A request that was sent while another ran: when, and its response or why there is none."""

    sent: float
    response: TargetResponse | None
    trouble: str


@dataclass(frozen=True, slots=True)
class OverlapResult:
    """A slow request, and those that were sent while it ran."""

    took: float
    ran: int | None
    first: TargetResponse
    duplicate: OverlappingRequest
    changed: OverlappingRequest | None
    other: OverlappingRequest | None

    def is_unclear(self, *, duplicate_waits: bool) -> bool:
        """Whether a response came only after the first had ended, without being meant to."""
        judged = (self.changed,) if duplicate_waits else (self.duplicate, self.changed)
        met = [one.response for one in judged if one is not None and one.response is not None]
        return any(response.at > self.first.at for response in met)


@check(
    "crowd",
    sends="8 duplicates at once (`--crowd`), each on its own connection; those that are told to wait retry",
    must="one execution, and all get its response",
)
def crowd(detector: ExecutionDetector) -> None:
    client = detector.client
    request = client.new_request()
    tally = detector.tally()
    ready = threading.Barrier(client.target.crowd)
    connections = [client.opened() for _ in range(client.target.crowd)]
    waiting = [run_in_thread(_arrive, detector, connection, request, ready) for connection in connections]
    responses = [future.result() for future in waiting]
    for response in responses:
        is_sensible = response.succeeded or client.is_in_flight(response)
        require(is_sensible, f"one of {client.target.crowd} duplicates sent at once was answered {response}")
    settled = [
        client.again(request, seconds=client.target.timeout) if client.is_in_flight(response) else response
        for response in responses
    ]
    for response in settled:
        require(
            client.is_done(response), f"one of {client.target.crowd} duplicates never got the result, only {response}"
        )
    executions = tally.executions(settled)
    require(executions == 1, f"{client.target.crowd} duplicates at once ran {executions} times")
    require(len({response.body for response in settled}) == 1, "they did not all get the same response")


@check(
    "in-flight",
    sends="a slow request, and its duplicate while it runs",
    must="the duplicate gets the profile's status at once (`persql`: it waits for the first response)",
)
def in_flight(detector: ExecutionDetector) -> None:
    held = _held(detector)
    response = _must_be_answered(held.duplicate, "the duplicate")
    if detector.client.expected.in_flight_waits:
        _must_have_learned(detector, held, response)
        return
    status = detector.client.expected.in_flight_status
    if response.status == status and not detector.client.is_done(response):
        return
    _must_have_met(held, held.duplicate)
    waited = response.at - held.duplicate.sent
    has_waited = response.succeeded and response.at > held.first.at
    require(
        not has_waited, f"the duplicate had to wait for the first ({waited:.1f} s), and was then answered {response}"
    )
    require(response.status != status, f"a duplicate in flight was answered {response}, as if it had run")
    must_be_refused(detector, response, status, "a duplicate in flight")


@check(
    "in-flight-advice",
    sends="a slow request, and its duplicate while it runs",
    must="the refusal says how long to wait, in whole seconds, and has the profile's code",
    when=lambda expected: not expected.in_flight_waits,
)
def in_flight_advice(detector: ExecutionDetector) -> None:
    held, expected = _held(detector), detector.client.expected
    response = held.duplicate.response
    if response is None or response.status != expected.in_flight_status:
        raise NotShown("the duplicate was not told that the first is in flight")
    if expected.wait_in_body:
        wait = response.json.get("retryAfterSeconds") if isinstance(response.json, dict) else None
        require(isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0, "no retryAfterSeconds")
    else:
        text = response.header("Retry-After")
        require(text is not None, "no Retry-After")
        require(text is not None and text.isascii() and text.isdecimal(), f"Retry-After is {text!r}")
    if expected.in_flight_codes:
        known = " or ".join(expected.in_flight_codes)
        require(
            response.code in expected.in_flight_codes, f"the code is {response.code or 'missing'}; expected {known}"
        )


@check(
    "in-flight-changed",
    sends="a slow request, and another body under its key while it runs",
    must="the other body is refused as a different request, and not told to wait",
)
def in_flight_changed(detector: ExecutionDetector) -> None:
    held = _held(detector)
    if held.changed is None:
        raise NotShown("the suite cannot change this body itself; give --changed-body")
    response = _must_be_answered(held.changed, "another body")
    if not response.succeeded:
        _must_have_met(held, held.changed)
    must_be_refused(detector, response, detector.client.expected.mismatch_status, "another body under a key in flight")
    if response.at > held.first.at:
        raise NotShown("the other body was answered only after the first request had ended")


@check(
    "tenant-in-flight",
    sends="a slow request, and another tenant's request under the same key while it runs",
    must="the other tenant's request runs on its own",
)
def tenant_in_flight(detector: ExecutionDetector) -> None:
    require_other_tenant(detector)
    held = _held(detector)
    met = held.other
    if met is None or met.response is None:
        raise NotShown("the other tenant had no response" if met is None else f"the other tenant: {met.trouble}")
    response = require_admitted(detector, met.response)
    require(
        detector.client.is_done(response),
        f"while one tenant's key was in flight, the other tenant was answered {response}",
    )
    require(not detector.client.is_marked(response), "another tenant got a replay")
    if detector.blind is None:
        is_apart = detector.mark_of(response) != detector.mark_of(held.first)
        require(is_apart, "another tenant got the first tenant's response")
    elif held.ran is None:
        raise NotShown(detector.blind)
    else:
        require(held.ran >= 2, "another tenant's request did not run")


def in_flight_refusal(detector: ExecutionDetector) -> TargetResponse | None:
    """The refusal of a duplicate while the first ran; None if there was none."""
    with suppress(NotShown):
        response = _held(detector).duplicate.response
        if response is not None and response.status == detector.client.expected.in_flight_status:
            return response
    return None


def _held(detector: ExecutionDetector) -> OverlapResult:
    return detector.client.found_once("held", lambda: _hold_until_clear(detector))


def _hold_until_clear(detector: ExecutionDetector) -> OverlapResult:
    """
    Try again if a result is unclear: on a busy machine a response may be late without having waited, and a duplicate
    may overtake the first request.
    """
    require_template(detector.client.target.slow, "--slow", SLOW)
    for _ in range(HOLDS_MAX - 1):
        with suppress(NotShown):
            held = _hold(detector)
            if not held.is_unclear(duplicate_waits=detector.client.expected.in_flight_waits):
                return held
    return _hold(detector)


def _hold(detector: ExecutionDetector) -> OverlapResult:
    client = detector.client
    request = client.new_request(require_template(client.target.slow, "--slow", SLOW))
    try:
        changed = client.changed(request)
    except NotShown:
        changed = None
    tally = detector.tally()
    began = client.environment.monotonic()
    first = run_in_thread(client.read, client.connect(request), request)
    client.environment.sleep(HEAD_START_SECONDS)
    meeting = {"duplicate": run_in_thread(_meet, detector, request, False)}
    if changed is not None:
        meeting["changed"] = run_in_thread(_meet, detector, changed, False)
    if client.target.other_headers is not None:
        meeting["other"] = run_in_thread(_meet, detector, request, True)
    met = {name: future.result() for name, future in meeting.items()}
    response = first.result()
    if not response.succeeded:
        raise NotShown(f"the slow request was answered {describe_response(detector, response)}")
    return OverlapResult(
        response.at - began, tally.counted(), response, met["duplicate"], met.get("changed"), met.get("other")
    )


def _meet(detector: ExecutionDetector, request: TargetRequest, other: bool) -> OverlappingRequest:
    sent = detector.client.environment.monotonic()
    try:
        return OverlappingRequest(sent, detector.client.send(request, other=other), "")
    except NoTargetResponse as error:
        return OverlappingRequest(sent, None, str(error))


def _must_be_answered(met: OverlappingRequest, who: str) -> TargetResponse:
    if met.response is None:
        raise DoesNotHold(f"{who}: {met.trouble}")
    return met.response


def _must_have_learned(detector: ExecutionDetector, held: OverlapResult, response: TargetResponse) -> None:
    _must_have_met(held, held.duplicate)
    require(detector.client.is_done(response), f"a duplicate that should wait was answered {response}")
    if detector.blind is None:
        is_same = detector.mark_of(response) == detector.mark_of(held.first)
        require(is_same, "the duplicate ran as well, and did not get the first response")
    elif held.ran is None:
        raise NotShown(detector.blind)
    else:
        require(held.ran == (1 if held.other is None else 2), f"they ran {held.ran} times")


def _must_have_met(held: OverlapResult, met: OverlappingRequest) -> None:
    if held.first.at < met.sent + OVERLAP_SECONDS:
        raise NotShown(f"the slow request took only {held.took:.2f} s; it must take half a second or more")


def _arrive(
    detector: ExecutionDetector, connection: TargetConnection, request: TargetRequest, ready: threading.Barrier
) -> TargetResponse:
    ready.wait(ARRIVAL_SECONDS)
    connection.send(detector.client.written(request))
    return detector.client.read(connection, request)


CHECKS: tuple[HttpCheck, ...] = (crowd, in_flight, in_flight_advice, in_flight_changed, tenant_in_flight)
