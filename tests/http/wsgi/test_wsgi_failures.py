"""What goes wrong behind the middleware, and in front of it: nothing is lost, nothing doubled, nothing unexplained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from wsgi_desk import Answered, Desk, Handler, boom, ok

from onceward import NOT_FOUND, ConfigurationError, Found, Gate, StoreUnavailable
from onceward._core.reply import Reply
from onceward.errors import ScopeMissing
from onceward.runtime import failpoints


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


class TestFailures:
    """Nothing is lost, nothing is doubled, and no 500 is without a reason in the log."""

    def test_a_store_that_is_away_runs_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        503, to be tried again with the same key; the handler was not asked.
        """
        handler = Handler()
        with Gate("redis://127.0.0.1:1", scope="test:a") as gate:
            got = Desk(handler, gate=gate).send()

        assert (got.status[:3], got.code, got.headers["retry-after"]) == ("503", "store_unavailable", "1")
        assert handler.runs == 0
        assert "store_unavailable" in caplog.text

    def test_what_ran_and_could_not_be_recorded_is_no_success(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        The handler's 200 is not given: the client would believe in a record that is not there.
        """
        handler = Handler()
        desk = Desk(handler)
        failpoints.arm("settle.before", _away)
        got = desk.send()

        assert (got.status[:3], got.code, handler.runs) == ("500", "unrecorded", 1)
        assert "unrecorded" in caplog.text

    def test_a_stream_that_could_not_be_recorded_breaks_off(self) -> None:
        """
        Its head is gone already; the server must not send its proper end.
        """

        def act(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
            start_response("200 OK", [])
            yield b"one"

        desk = Desk(act)
        failpoints.arm("settle.before", _away)

        with pytest.raises(StoreUnavailable):
            desk.send()

    def test_who_was_overtaken_gives_the_winners_answer(self) -> None:
        """
        A handler that slept through its lease: its answer is not the stored one, so it is not given.
        """

        def act(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            run = handler.runs
            if run == 1:
                desk.clock.advance(61)
                winner.append(desk.send())
            start_response("200 OK", [])
            return [f"run {run}".encode()]

        handler, winner = Handler(act), list[Answered]()
        desk = Desk(handler, guarantee="repeatable")
        first = desk.send()

        assert (winner[0].body, first.body) == (b"run 2", b"run 2")
        assert first.headers["idempotency-replayed"] == "true"

    def test_a_remembered_exception_is_one_answer_for_everybody(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        remember="all": a problem with a code of its own, the traceback in the log, and nothing runs again.
        """
        handler = Handler(boom)
        desk = Desk(handler, profile="stripe")
        first, again = desk.send(), desk.send()

        assert (first.status[:3], first.code) == ("500", "handler_failed")
        assert (first.body, "true") == (again.body, again.headers["idempotent-replayed"])
        assert handler.runs == 1
        assert "Traceback" in caplog.text

    def test_an_interrupt_is_no_answer(self) -> None:
        """
        Even with remember="all": it speaks of this process, and surfaces as what it is.
        """

        def act(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            raise KeyboardInterrupt

        desk = Desk(act, profile="stripe")

        with pytest.raises(KeyboardInterrupt):
            desk.send()
        assert desk.send().code == "in_doubt"

    def test_a_probe_decides_what_a_failure_left_open(self) -> None:
        """
        guarantee="probed": what is found is the answer; what is not found runs.
        """
        answers: list[Any] = [NOT_FOUND, Found(Reply(201, (("content-type", "text/plain"),), b"found"))]
        handler = Handler(boom)
        desk = Desk(handler, guarantee="probed", probe=lambda operation: answers.pop(0))
        for _ in range(2):
            with pytest.raises(ValueError, match="boom"):
                desk.send()
        found = desk.send()

        assert (found.status, found.body, handler.runs) == ("201 Created", b"found", 2)

    def test_a_plain_result_that_somebody_decided_is_an_answer_too(self) -> None:
        """
        A person who looked, and found that it had happened, says so in JSON.
        """
        desk = Desk(boom)
        with pytest.raises(ValueError, match="boom"):
            desk.send()
        desk.gate.reconcile("k", Found({"charge": "ch_1"}))
        got = desk.send()

        assert (got.status, got.body) == ("200 OK", b'{"charge":"ch_1"}')


class TestProfiles:
    """Other promises, from the same middleware."""

    @pytest.mark.requirement("C11", "C13")
    def test_pacspace_accepts_what_is_in_flight(self) -> None:
        """
        202 with its code while the first runs; a different body is 409.
        """

        def act(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            if handler.runs == 1:
                meanwhile.append(desk.send())
            return ok(environ, start_response)

        handler, meanwhile = Handler(act), list[Answered]()
        desk = Desk(handler, profile="pacspace")
        desk.send()
        other = desk.send("k", b"other")

        assert (meanwhile[0].status[:3], meanwhile[0].code) == ("202", "IDEMPOTENCY_PENDING")
        assert (other.status[:3], other.code) == ("409", "key_reused")
        assert handler.runs == 1

    @pytest.mark.requirement("A18")
    def test_a_key_under_persql_has_at_most_200_characters(self) -> None:
        """
        200 are taken; 201 are refused, and not cut to the 200 that are known.
        """
        handler = Handler()
        desk = Desk(handler, profile="persql")

        assert desk.send("k" * 200).status == "200 OK"
        assert desk.send("k" * 201).code == "key_invalid"
        assert handler.runs == 1

    def test_a_mismatch_under_stripe_is_400(self) -> None:
        """
        Each profile has its own status; the code is the same.
        """
        desk = Desk(Handler(), profile="stripe")
        desk.send("k", b"one")

        assert (got := desk.send("k", b"two")).status[:3] == "400"
        assert got.code == "key_reused"


class TestDeclaring:
    """What cannot work is refused where it is written."""

    def test_a_scope_must_be_given(self) -> None:
        """
        Forgetting it is an error at the start, and not a leak later.
        """
        with pytest.raises(ScopeMissing, match="scope="):
            Desk(ok, scope=None)

    @pytest.mark.parametrize(
        "wrong", [{"profile": "amazon"}, {"colour": 1}, {"lease": -1}, {"stored_headers": ["Cookie"]}]
    )
    def test_a_profile_that_cannot_work_is_refused(self, wrong: dict[str, Any]) -> None:
        """
        Unknown names, impossible values, secrets that would be stored.
        """
        with pytest.raises(ConfigurationError):
            Desk(ok, **wrong)

    @pytest.mark.parametrize(
        ("answer", "status"),
        [(None, "401"), ("", "401"), (7, "401"), (ValueError("no token"), "500"), ("async", "500")],
    )
    def test_a_scope_function_that_does_not_know_runs_nothing(
        self, answer: Any, status: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        No text: 401. An exception, a coroutine: 500, without a word of what is inside, which stands in the log.
        """

        async def awaiting(request: Any) -> str:
            return "test:a"

        def scope(request: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        handler = Handler()
        got = Desk(handler, scope=awaiting if answer == "async" else scope).send()

        assert (status, "scope_missing", 0) == (got.status[:3], got.code, handler.runs)
        assert "scope function" in caplog.text
        assert b"no token" not in got.body


def _away() -> None:
    raise StoreUnavailable("the disk is on fire")
