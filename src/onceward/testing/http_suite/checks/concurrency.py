"""
Several requests at the same time: a crowd of duplicates, and one that meets a request that still runs.
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
"""Of the first request over those that are to meet it: time for a busy server to take it up."""

OVERLAP_SECONDS = 0.05
"""How long the first must still run when a duplicate is sent, for the two to have met for certain."""

HOLDS_MAX = 3
"""Slow requests that are sent, if what met them cannot be told from what came too late."""

SLOW = "a request that takes half a second or more"


@dataclass(frozen=True, slots=True)
class OverlappingRequest:
    """A request that was sent while another ran: when, and its answer or why there is none."""

    sent: float
    answer: TargetResponse | None
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
        """Whether an answer came only after the first had ended, without being meant to."""
        judged = (self.changed,) if duplicate_waits else (self.duplicate, self.changed)
        met = [one.answer for one in judged if one is not None and one.answer is not None]
        return any(answer.at > self.first.at for answer in met)


@check(
    "crowd",
    sends="8 duplicates at once (`--crowd`), each on a connection of its own; those told to wait ask again",
    must="one execution, and everybody gets its answer",
)
def crowd(detector: ExecutionDetector) -> None:
    client = detector.client
    asked = client.ask()
    tally = detector.tally()
    ready = threading.Barrier(client.target.crowd)
    connections = [client.opened() for _ in range(client.target.crowd)]
    waiting = [run_in_thread(_arrive, detector, connection, asked, ready) for connection in connections]
    answers = [future.result() for future in waiting]
    for answer in answers:
        is_sensible = answer.succeeded or client.is_in_flight(answer)
        require(is_sensible, f"one of {client.target.crowd} duplicates sent at once was answered {answer}")
    settled = [
        client.again(asked, seconds=client.target.timeout) if client.is_in_flight(answer) else answer
        for answer in answers
    ]
    for answer in settled:
        require(client.is_done(answer), f"one of {client.target.crowd} duplicates was never answered but with {answer}")
    executions = tally.executions(settled)
    require(executions == 1, f"{client.target.crowd} duplicates at once ran {executions} times")
    require(len({answer.body for answer in settled}) == 1, "they were not all answered alike")


@check(
    "in-flight",
    sends="a slow request, and its duplicate while it runs",
    must="the duplicate is answered at once, with the profile's status (`persql`: it waits for the first one's answer)",
)
def in_flight(detector: ExecutionDetector) -> None:
    held = _held(detector)
    answer = _must_be_answered(held.duplicate, "the duplicate")
    if detector.client.expected.in_flight_waits:
        _must_have_learned(detector, held, answer)
        return
    status = detector.client.expected.in_flight_status
    if answer.status == status and not detector.client.is_done(answer):
        return
    _must_have_met(held, held.duplicate)
    waited = answer.at - held.duplicate.sent
    has_waited = answer.succeeded and answer.at > held.first.at
    require(not has_waited, f"the duplicate had to wait for the first ({waited:.1f} s), and was then answered {answer}")
    require(answer.status != status, f"a duplicate in flight was answered {answer}, as if it had run")
    must_be_refused(detector, answer, status, "a duplicate in flight")


@check(
    "in-flight-advice",
    sends="a slow request, and its duplicate while it runs",
    must="the refusal says how long to wait, in whole seconds, and has the profile's code",
    when=lambda expected: not expected.in_flight_waits,
)
def in_flight_advice(detector: ExecutionDetector) -> None:
    held, expected = _held(detector), detector.client.expected
    answer = held.duplicate.answer
    if answer is None or answer.status != expected.in_flight_status:
        raise NotShown("the duplicate was not told that the first is in flight")
    if expected.wait_in_body:
        wait = answer.json.get("retryAfterSeconds") if isinstance(answer.json, dict) else None
        require(isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0, "no retryAfterSeconds")
    else:
        text = answer.header("Retry-After")
        require(text is not None, "no Retry-After")
        require(text is not None and text.isascii() and text.isdecimal(), f"Retry-After is {text!r}")
    if expected.in_flight_codes:
        known = " or ".join(expected.in_flight_codes)
        require(answer.code in expected.in_flight_codes, f"the code is {answer.code or 'missing'}; expected {known}")


@check(
    "in-flight-changed",
    sends="a slow request, and another body under its key while it runs",
    must="the other body is refused as another request, and not told to wait",
)
def in_flight_changed(detector: ExecutionDetector) -> None:
    held = _held(detector)
    if held.changed is None:
        raise NotShown("it is not known how to change the body; give --changed-body")
    answer = _must_be_answered(held.changed, "another body")
    if not answer.succeeded:
        _must_have_met(held, held.changed)
    must_be_refused(detector, answer, detector.client.expected.mismatch_status, "another body under a key in flight")
    if answer.at > held.first.at:
        raise NotShown("the other body was answered only after the first request had ended")


@check(
    "tenant-in-flight",
    sends="a slow request, and another tenant's under the same key while it runs",
    must="the other tenant's runs on its own",
)
def tenant_in_flight(detector: ExecutionDetector) -> None:
    require_other_tenant(detector)
    held = _held(detector)
    met = held.other
    if met is None or met.answer is None:
        raise NotShown("the other tenant had no answer" if met is None else f"the other tenant: {met.trouble}")
    answer = require_admitted(detector, met.answer)
    require(detector.client.is_done(answer), f"while one tenant's key is in flight, the other's was answered {answer}")
    require(not detector.client.is_marked(answer), "another tenant got a replay")
    if detector.blind is None:
        is_apart = detector.mark_of(answer) != detector.mark_of(held.first)
        require(is_apart, "another tenant got the first one's answer")
    elif held.ran is None:
        raise NotShown(detector.blind)
    else:
        require(held.ran >= 2, "another tenant's request did not run")


def in_flight_refusal(detector: ExecutionDetector) -> TargetResponse | None:
    """What a duplicate was told while the first ran; None if that was not to be had."""
    with suppress(NotShown):
        answer = _held(detector).duplicate.answer
        if answer is not None and answer.status == detector.client.expected.in_flight_status:
            return answer
    return None


def _held(detector: ExecutionDetector) -> OverlapResult:
    return detector.client.found_once("held", lambda: _hold_until_clear(detector))


def _hold_until_clear(detector: ExecutionDetector) -> OverlapResult:
    """
    On a busy machine an answer comes late for other reasons than waiting, and a duplicate overtakes the first: only
    what is seen every time is believed.
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
    asked = client.ask(require_template(client.target.slow, "--slow", SLOW))
    try:
        changed = client.changed(asked)
    except NotShown:
        changed = None
    tally = detector.tally()
    began = client.environment.monotonic()
    first = run_in_thread(client.read, client.connect(asked), asked)
    client.environment.sleep(HEAD_START_SECONDS)
    meeting = {"duplicate": run_in_thread(_meet, detector, asked, False)}
    if changed is not None:
        meeting["changed"] = run_in_thread(_meet, detector, changed, False)
    if client.target.other_headers is not None:
        meeting["other"] = run_in_thread(_meet, detector, asked, True)
    met = {name: future.result() for name, future in meeting.items()}
    answer = first.result()
    if not answer.succeeded:
        raise NotShown(f"the slow request was answered {describe_response(detector, answer)}")
    return OverlapResult(
        answer.at - began, tally.counted(), answer, met["duplicate"], met.get("changed"), met.get("other")
    )


def _meet(detector: ExecutionDetector, asked: TargetRequest, other: bool) -> OverlappingRequest:
    sent = detector.client.environment.monotonic()
    try:
        return OverlappingRequest(sent, detector.client.send(asked, other=other), "")
    except NoTargetResponse as error:
        return OverlappingRequest(sent, None, str(error))


def _must_be_answered(met: OverlappingRequest, who: str) -> TargetResponse:
    if met.answer is None:
        raise DoesNotHold(f"{who}: {met.trouble}")
    return met.answer


def _must_have_learned(detector: ExecutionDetector, held: OverlapResult, answer: TargetResponse) -> None:
    _must_have_met(held, held.duplicate)
    require(detector.client.is_done(answer), f"a duplicate that should wait was answered {answer}")
    if detector.blind is None:
        is_same = detector.mark_of(answer) == detector.mark_of(held.first)
        require(is_same, "the duplicate ran as well, and was not answered with the first one's answer")
    elif held.ran is None:
        raise NotShown(detector.blind)
    else:
        require(held.ran == (1 if held.other is None else 2), f"they ran {held.ran} times")


def _must_have_met(held: OverlapResult, met: OverlappingRequest) -> None:
    if held.first.at < met.sent + OVERLAP_SECONDS:
        raise NotShown(f"the slow request took only {held.took:.2f} s; it must take half a second or more")


def _arrive(
    detector: ExecutionDetector, connection: TargetConnection, asked: TargetRequest, ready: threading.Barrier
) -> TargetResponse:
    ready.wait(detector.client.target.timeout)
    connection.send(detector.client.written(asked))
    return detector.client.read(connection, asked)


CHECKS: tuple[HttpCheck, ...] = (crowd, in_flight, in_flight_advice, in_flight_changed, tenant_in_flight)
