"""What is sent again, what is not, and that it is the same each time: on real sockets, by every client."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from client_support import EXTENDED, Web, sent

from onceward import CircuitOpen, Retry, deadline, stop_of
from onceward.http import replayed
from onceward.retry import Breaker, Budget, StopReason
from onceward.verdicts import Action, Certainty, Classifier, Kind, Verdict
from servers.faults import FaultServer, respond

KEY = {"Idempotency-Key": "charge:o-17"}
BODY = b'{"amount": "12.50", "note": "caf\xc3\xa9"}'
OK = respond(200, body=b'{"id": "ch_1"}')
BROKEN = ("reset_before_read", "reset_after_read", "close_after_read")
TRANSIENT = (408, 425, 429, 500, 502, 503, 504, 529)
IMPATIENT: dict[str, Any] = {"attempts": 40, "allow_many": True, "timeout": 0.3, "base": 0.001, "cap": 0.002}
"""A short time for each attempt; on a busy machine that may be too short for an answer, too, and then comes another."""
REFUSED = (400, 404, 405, 409, 410, 413, 422)


class TestAKeyedPost:
    """
    A request with a key may be sent until somebody answers: the server runs it once.
    """

    @pytest.mark.requirement("C09", "D09", "D55")
    @pytest.mark.parametrize("fault", [*BROKEN, respond(500), respond(503)], ids=str)
    def test_carries_the_same_key_and_the_same_bytes_on_every_attempt(
        self, web: Web, policy: Retry, fault: Any
    ) -> None:
        """
        Reset before it was read, reset after, hung up on, or refused: what is sent again is what was sent.
        """
        with FaultServer(fault, fault, OK) as server, web.client(retry=policy) as client:
            answer = client("POST", server.url + "/charges", headers=KEY, content=BODY)

            assert answer.status_code == 200
            assert answer.content == b'{"id": "ch_1"}'
            seen = sent(server)
        assert (1 if fault == "reset_before_read" else 3) == len(seen)
        assert {(one.key, one.body) for one in seen} == {("charge:o-17", BODY)}
        assert {one.line for one in seen} == {"POST /charges HTTP/1.1"}

    def test_is_sent_when_somebody_listens_again(self, web: Web, still: Any) -> None:
        """
        Refused connections are tried again, too: the server comes back between two attempts.
        """
        with FaultServer("refuse") as server:
            server._script = (OK,)
            hook = threading.Event()

            def come_back(_: Any) -> None:
                hook.set()
                server.listen()

            policy = Retry(attempts=2, environment=still, on_retry=come_back)
            with web.client(retry=policy) as client:
                answer = client("POST", server.url, headers=KEY, content=BODY)

            assert answer.status_code == 200
            assert hook.is_set()
            assert [(one.key, one.body) for one in sent(server)] == [("charge:o-17", BODY)]

    @pytest.mark.requirement("C25", "C27")
    def test_is_retried_on_trouble_that_passes(self, web: Web, policy: Retry) -> None:
        """
        408, 425, 429 and most of 5xx.
        """
        script = [answer for status in TRANSIENT for answer in (respond(status), OK)]
        with FaultServer(*script) as server, web.client(retry=policy) as client:
            for made, status in enumerate(TRANSIENT, start=1):
                assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200, status
                assert 2 * made == len(server.requests), status

    def test_gives_the_last_answer_back_when_the_attempts_are_used_up(self, web: Web, policy: Retry) -> None:
        """
        As a user of the library expects: a response, not an error of ours. Why it ended is on it.
        """
        with FaultServer(respond(503, body=b'{"why": "busy"}')) as server, web.client(retry=policy) as client:
            answer = client("POST", server.url, headers=KEY, content=BODY)

            assert (answer.status_code, answer.content) == (503, b'{"why": "busy"}')
            assert StopReason.ATTEMPTS is stop_of(answer).reason
            assert 3 == stop_of(answer).attempts == len(server.requests)

    def test_raises_the_librarys_own_error_when_nobody_answers(self, web: Web, policy: Retry) -> None:
        """
        The last exception comes out unchanged, with its stop.
        """
        with (
            FaultServer("close_after_read") as server,
            web.client(retry=policy) as client,
            pytest.raises(web.errors("RemoteProtocolError")) as caught,
        ):
            client("POST", server.url, headers=KEY, content=BODY)

        assert StopReason.ATTEMPTS is stop_of(caught.value).reason
        assert len(server.requests) == 3


class TestAPostWithoutAKey:
    """
    Nobody can know whether it happened, so it is sent once.
    """

    @pytest.mark.requirement("D06")
    @pytest.mark.parametrize("method", ["POST", "PATCH"])
    def test_is_sent_once_when_the_answer_is_lost(self, web: Web, policy: Retry, method: str) -> None:
        """
        The library's own error comes out, and says that it may have happened.
        """
        with (
            FaultServer("close_after_read", OK) as server,
            web.client(retry=policy) as client,
            pytest.raises(web.errors("RemoteProtocolError")) as caught,
        ):
            client(method, server.url, content=BODY)

        stop = stop_of(caught.value)
        assert (stop.reason, stop.attempts, stop.verdict.happened) == (StopReason.NO_KEY, 1, None)
        assert len(server.requests) == 1

    @pytest.mark.requirement("D06")
    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_gets_its_5xx_back_as_an_answer(self, web: Web, policy: Retry, status: int) -> None:
        """
        A 5xx may come after the work. It is returned, not raised, and not sent again.
        """
        with FaultServer(respond(status), OK) as server, web.client(retry=policy) as client:
            answer = client("POST", server.url, content=BODY)

            assert (status, StopReason.NO_KEY) == (answer.status_code, stop_of(answer).reason)
            assert len(server.requests) == 1
            assert sent(server)[0].key is None

    def test_is_sent_again_when_it_certainly_did_not_happen(self, web: Web, policy: Retry) -> None:
        """
        A 429 turns away at the door: sending again repeats nothing.
        """
        with FaultServer(respond(429), OK) as server, web.client(retry=policy) as client:
            assert client("POST", server.url, content=BODY).status_code == 200


class TestMethodsThatAreSafeByNature:
    """
    GET, PUT and DELETE can be repeated without a key.
    """

    @pytest.mark.requirement("D05")
    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    def test_are_retried_without_a_key(self, web: Web, policy: Retry, method: str) -> None:
        """
        The line breaks after the request was read; it is sent again as it was.
        """
        body = BODY if method == "PUT" else None
        with FaultServer("close_after_read", respond(500), OK) as server, web.client(retry=policy) as client:
            assert client(method, server.url, content=body).status_code == 200
            assert [(method, body or b"")] * 3 == [(one.line.split()[0], one.body) for one in sent(server)]

    def test_are_not_given_a_key(self, web: Web, policy: Retry) -> None:
        """
        A key is for what must not be repeated.
        """
        with FaultServer(OK) as server, web.client(retry=policy) as client:
            client("GET", server.url)
            assert sent(server)[0].key is None


class TestAnswersThatMeanNo:
    """
    What would be refused again is not sent again.
    """

    @pytest.mark.requirement("C28", "C30", "C31", "C42")
    def test_come_back_at_once_with_one_line_in_the_log(
        self, web: Web, policy: Retry, still: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        One request, one log record, the response as it is.
        """
        script = [respond(status, body=b'{"code": "nope"}') for status in REFUSED]
        with (
            caplog.at_level(logging.WARNING, "onceward"),
            FaultServer(*script) as server,
            web.client(retry=policy) as client,
        ):
            for made, status in enumerate(REFUSED, start=1):
                still.advance(60)  # Lines about the same stop are told once in a while, with their number.
                answer = client("POST", server.url, headers=KEY, content=BODY)

                assert (status, b'{"code": "nope"}') == (answer.status_code, answer.content)
                assert made == len(server.requests)
                assert made == len([record for record in caplog.records if record.name == "onceward"])
        assert "charge:o-17" not in caplog.text

    @pytest.mark.requirement("C29")
    @pytest.mark.parametrize("status", [401, 403])
    def test_alert_somebody_once_if_it_is_the_credential(self, web: Web, still: Any, status: int) -> None:
        """
        Three requests with one refused credential: one alert, three requests.
        """
        alerts: list[Any] = []
        policy = Retry(environment=still, on_auth=alerts.append)
        with FaultServer(respond(status)) as server, web.client(retry=policy) as client:
            for _ in range(3):
                client("POST", server.url, headers={**KEY, "Authorization": "Bearer sk_live_secret"}, content=BODY)

            assert len(server.requests) == 3
        assert len(alerts) == 1
        assert "secret" not in repr(alerts)

    @pytest.mark.requirement("C31")
    def test_but_in_flight_means_not_yet(self, web: Web, policy: Retry, still: Any) -> None:
        """
        A 409 whose code says that another attempt is running is asked again, under the same key, when it said.
        """
        busy = respond(409, {"Retry-After": "2"}, b'{"code": "in_flight"}')
        with FaultServer(busy, OK) as server, web.client(retry=policy) as client:
            assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200
            assert [one.key for one in sent(server)] == ["charge:o-17"] * 2
        assert still.slept[0] >= 2

    def test_an_acceptance_that_is_pending_is_asked_again(self, web: Web, policy: Retry) -> None:
        """
        202 with the code `pending` is no answer yet; any other 202 is one.
        """
        with FaultServer(respond(202, body=b'{"code": "pending"}'), OK) as server, web.client(retry=policy) as client:
            assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200
        with FaultServer(respond(202, body=b'{"id": 1}'), OK) as server, web.client(retry=policy) as client:
            answer = client("POST", server.url, headers=KEY, content=BODY)
            assert (answer.status_code, answer.content) == (202, b'{"id": 1}')


class TestWaits:
    """
    The server says how long; nobody comes back earlier.
    """

    @pytest.mark.requirement("C26", "C41")
    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"Retry-After": "7"}, 7),
            ({"Retry-After": "1.5"}, 1.5),
            ({"retry-after-ms": "2500"}, 2.5),
            ({"Retry-After": "DATE"}, 30),
            ({"RateLimit": '"default";r=0;t=9'}, 9),
            ({"x-ratelimit-reset-requests": "1m2s", "x-ratelimit-remaining-requests": "0"}, 62),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else "",
    )
    def test_are_kept_in_whichever_form_they_are_given(
        self, web: Web, still: Any, headers: dict[str, str], seconds: float
    ) -> None:
        """
        Seconds, fractions, milliseconds, a date, the draft's field, a provider's own.
        """
        date = email.utils.formatdate(still.wall_us() / 1e6 + 30, usegmt=True)
        headers = {name: date if value == "DATE" else value for name, value in headers.items()}
        policy = Retry(environment=still, elapsed=600)
        with FaultServer(respond(429, headers), OK) as server, web.client(retry=policy) as client:
            assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200
        assert [seconds <= slept <= seconds + 10 for slept in still.slept] == [True]

    def test_past_the_deadline_are_not_begun(self, web: Web, policy: Retry, still: Any) -> None:
        """
        Asked to wait an hour with five seconds left: the 429 comes back at once, and says when to return.
        """
        with (
            FaultServer(respond(429, {"Retry-After": "3600"})) as server,
            web.client(retry=policy) as client,
            deadline(5, environment=still),
        ):
            answer = client("POST", server.url, headers=KEY, content=BODY)

        assert still.slept == []
        assert (
            answer.status_code,
            stop_of(answer).reason,
            stop_of(answer).retry_after_seconds,
        ) == (429, StopReason.DEADLINE, 3600)
        assert len(server.requests) == 1


class TestBodiesThatCannotBeSentAgain:
    """
    A generator is used up by being sent. That is found out before, not by sending nothing the second time.
    """

    def test_are_sent_once_and_the_answer_comes_back(self, web: Web, policy: Retry) -> None:
        """
        Key or no key: one attempt, the 503 itself, and a reason.
        """
        with FaultServer(respond(503), OK) as server, web.client(retry=policy) as client:
            answer = client("POST", server.url, headers=KEY, content=web.generator(b"one", b"two"))

            assert (answer.status_code, stop_of(answer).reason) == (503, StopReason.NOT_REPLAYABLE)
            assert len(server.requests) == 1
            assert sent(server)[0].body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"

    def test_raise_the_librarys_own_error(self, web: Web, policy: Retry) -> None:
        """
        Not an error about streams.
        """
        with (
            FaultServer("close_after_read", OK) as server,
            web.client(retry=policy) as client,
            pytest.raises(web.errors("RemoteProtocolError")) as caught,
        ):
            client("PUT", server.url, content=web.generator(b"one"))

        assert StopReason.NOT_REPLAYABLE is stop_of(caught.value).reason
        assert len(server.requests) == 1

    def test_a_form_with_files_is_kept_and_sent_again(self, web: Web, policy: Retry) -> None:
        """
        Its bytes are taken once, boundary and all.
        """
        with FaultServer(respond(503), OK) as server, web.client(retry=policy) as client:
            answer = client("POST", server.url, headers=KEY, files={"scan": ("scan.txt", b"a file's bytes")})

            assert answer.status_code == 200
            first, second = (one.body for one in sent(server))
            assert first == second
            assert b"a file's bytes" in first


@pytest.mark.dose(2, of="web")
class TestTime:
    """
    An attempt has its time, and the whole call has its deadline.
    """

    @pytest.mark.requirement("C38")
    def test_an_attempt_that_stalls_is_ended_and_made_again(self, web: Web) -> None:
        """
        The policy's timeout is shorter than the client's own; the server is silent once.
        """
        policy = Retry(**IMPATIENT)
        with FaultServer("stall", OK) as server, web.client(retry=policy, timeout=60) as client:
            assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200
            bodies = [one.body for one in sent(server)]

        assert (len(bodies) >= 2, set(bodies)) == (True, {BODY})

    def test_a_stalled_post_without_a_key_is_a_timeout_of_the_library(self, web: Web) -> None:
        """
        Whoever catches the library's timeouts catches this one.
        """
        policy = Retry(timeout=1)
        with (
            FaultServer("stall", OK) as server,
            web.client(retry=policy, timeout=60) as client,
            pytest.raises(web.errors("ReadTimeout")) as caught,
        ):
            client("POST", server.url, content=BODY)

        assert StopReason.NO_KEY is stop_of(caught.value).reason
        assert len(server.requests) == 1

    @pytest.mark.requirement("C38")
    def test_no_attempt_takes_longer_than_the_deadline_leaves(self, web: Web) -> None:
        """
        A policy of 30 seconds, a client of 60, a deadline of 1: it ends in time, with the library's timeout.
        """
        with (
            FaultServer("stall") as server,
            web.client(retry=Retry(base=0.001), timeout=60) as client,
            pytest.raises(web.errors("ReadTimeout")) as caught,
            deadline(1),
        ):
            client("POST", server.url, headers=KEY, content=BODY)

        assert stop_of(caught.value).elapsed < 20

    def test_the_deadline_goes_along(self, web: Web, policy: Retry, still: Any) -> None:
        """
        Milliseconds left, less on the second attempt by what was waited for.
        """
        busy = respond(503, {"Retry-After": "2"})
        with (
            FaultServer(busy, OK) as server,
            web.client(retry=policy) as client,
            deadline(20, environment=still),
        ):
            client("POST", server.url, headers=KEY, content=BODY)

        first, second = (int(one.headers["onceward-timeout-ms"]) for one in sent(server))
        assert (first, second <= 18_000) == (20_000, True)

    def test_it_need_not(self, web: Web, policy: Retry) -> None:
        """
        `send_deadline=False`.
        """
        with FaultServer(OK) as server, web.client(retry=policy, send_deadline=False) as client:
            client("POST", server.url, headers=KEY, content=BODY)
            assert "onceward-timeout-ms" not in sent(server)[0].headers

    def test_without_time_nothing_is_sent(self, web: Web, policy: Retry, still: Any) -> None:
        """
        A deadline that is over before the first attempt is no attempt.
        """
        with FaultServer(OK) as server, web.client(retry=policy) as client, deadline(1, environment=still):
            still.advance(2)
            with pytest.raises(Exception, match="leaves no time"):
                client("GET", server.url)

        assert server.requests == []


class Below:
    """A transport below ours that raises, in whichever colour it is asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def handle_request(self, request: Any) -> Any:
        raise self.error

    async def handle_async_request(self, request: Any) -> Any:
        raise self.error

    def close(self) -> None: ...

    async def aclose(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.fault("a-timeout-from-below-is-renamed")
@pytest.mark.parametrize("way", EXTENDED)
def test_a_timeout_that_the_transport_below_raises_comes_out_as_it_is(way: str, policy: Retry) -> None:
    """
    Python's own `TimeoutError` is the library's word only where it was our timer that ended the attempt.
    """
    web, error = Web(way), TimeoutError("the proxy took too long")
    with web.client(retry=policy, wrap=Below(error)) as client, pytest.raises(Exception) as caught:
        client("POST", "http://127.0.0.1:9/", headers=KEY, content=b"x")

    assert caught.value is error
    assert stop_of(error).attempts == 3


@pytest.mark.fault("a-request-thrown-away-awaits")
@pytest.mark.parametrize("way", ["httpx-async", "httpx2-async"])
def test_a_request_that_is_thrown_away_awaits_nothing_more(way: str) -> None:
    """
    Its coroutine is closed, perhaps by the garbage collector, while an answer is being read: whatever awaited then
    would be an error of its own.
    """
    web = Web(way)
    awaited: list[str] = []

    class Unending(web.library.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> Any:
            yield b"x"
            await asyncio.get_running_loop().create_future()

        async def aclose(self) -> None:
            await asyncio.get_running_loop().create_future()

    class Answering(Below):
        async def handle_async_request(self, request: Any) -> Any:
            return web.library.Response(503, stream=Unending())

    async def story() -> None:
        transport = web.transport(wrap=Answering(ValueError()))
        request = web.library.Request("POST", "http://127.0.0.1:9/", headers=KEY, content=b"x")
        sending = transport.handle_async_request(request)
        sending.send(None)  # Until it waits for more of the answer.
        try:
            sending.close()
        except RuntimeError as error:  # "coroutine ignored GeneratorExit"
            awaited.append(str(error))

    asyncio.run(story())
    assert awaited == []


class TestAnswersThatBreakOff:
    """
    By default an answer is passed on as it comes. `whole=True` reads it within the attempt.
    """

    def test_are_tried_again_if_whole_is_wanted(self, web: Web, policy: Retry) -> None:
        """
        Less body than was promised is no answer.
        """
        with FaultServer("truncate", OK) as server, web.client(retry=policy, whole=True) as client:
            answer = client("POST", server.url, headers=KEY, content=BODY)

            assert answer.content == b'{"id": "ch_1"}'
            assert [one.key for one in sent(server)] == ["charge:o-17"] * 2

    def test_surface_as_the_librarys_error_otherwise(self, web: Web, policy: Retry) -> None:
        """
        The body belongs to the caller, who may stream it.
        """
        with FaultServer("truncate", OK) as server, web.client(retry=policy) as client:
            with pytest.raises(Exception, match=r"body|Connection broken"):
                client("POST", server.url, headers=KEY, content=BODY)
            assert len(server.requests) == 1

    def test_a_body_that_trickles_for_ever_ends_with_the_attempt(self, web: Web) -> None:
        """
        A byte every 20 ms keeps every timeout between two bytes; the attempt's own is kept all the same.
        """
        policy = Retry(**IMPATIENT)
        with FaultServer("trickle", OK) as server, web.client(retry=policy, timeout=60, whole=True) as client:
            assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200
            assert len(server.requests) >= 2

    def test_a_long_refusal_is_passed_on_whole(self, web: Web, policy: Retry) -> None:
        """
        More than is looked into for a code, and not a byte is lost.
        """
        body = b"x" * 300_000
        with FaultServer(respond(400, body=body)) as server, web.client(retry=policy) as client:
            assert body == client("POST", server.url, headers=KEY, content=BODY).content
        with FaultServer(respond(503, body=body), OK) as server, web.client(retry=policy) as client:
            assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200


def test_a_policy_may_count_more_as_failures(web: Web, still: Any) -> None:
    """
    `Retry(failed=...)` is asked besides: a 200 that says `try again` in a header, and a 503 all the same.
    """
    policy = Retry(
        environment=still,
        failed=lambda answer: "x-again" in answer.headers,
        classifier=Classifier({web.library.Response: in_words}),
    )
    script = (respond(200, {"X-Again": "yes"}), respond(503), OK)
    with FaultServer(*script) as server, web.client(retry=policy) as client:
        assert "x-again" not in client("POST", server.url, headers=KEY, content=BODY).headers
        assert len(server.requests) == 3


def in_words(answer: Any) -> Verdict | None:
    """What this API's header means."""
    again = "x-again" in answer.headers
    return Verdict(Certainty.REJECTED, Kind.UPSTREAM, Action.SAME_KEY) if again else None


class TestSharedTrouble:
    """
    Breakers and budgets work as everywhere; each host has its own unless told otherwise.
    """

    def test_an_open_circuit_sends_nothing(self, web: Web, still: Any) -> None:
        """
        The policy's breaker: after it opened, the request is refused before it is sent.
        """
        policy = Retry(attempts=1, environment=still, breaker=Breaker("bank", threshold=2, environment=still))
        with FaultServer(respond(503)) as server, web.client(retry=policy) as client:
            for _ in range(2):
                assert client("GET", server.url).status_code == 503
            with pytest.raises(CircuitOpen):
                client("GET", server.url)
            assert len(server.requests) == 2

    def test_hosts_have_policies_of_their_own(self, web: Web, still: Any) -> None:
        """
        `retry=function`: made once per host. One that is down does not hold up the other.
        """
        made: list[str] = []

        def policy_for(host: str) -> Retry:
            made.append(host)
            return Retry(attempts=1, environment=still, breaker=Breaker(host, threshold=1, environment=still))

        with FaultServer(respond(503)) as down, FaultServer(OK) as up, web.client(retry=policy_for) as client:
            client("GET", down.url)
            with pytest.raises(CircuitOpen):
                client("GET", down.url)
            assert [client("GET", up.url).status_code for _ in range(2)] == [200, 200]
            assert made == [f"127.0.0.1:{down.port}", f"127.0.0.1:{up.port}"]

    def test_without_a_policy_there_are_defaults(self, web: Web) -> None:
        """
        Three attempts, a breaker and a budget per host.
        """
        with FaultServer(respond(503), OK) as server, web.client() as client:
            assert client("POST", server.url, headers=KEY, content=BODY).status_code == 200

    def test_a_spent_budget_gives_the_answer_back(self, web: Web, still: Any) -> None:
        """
        The response, not `BudgetExhausted`; its stop says why.
        """
        policy = Retry(environment=still, budget=Budget(ratio=0.1, burst=1, environment=still))
        with FaultServer(respond(503)) as server, web.client(retry=policy) as client:
            reasons = [stop_of(client("GET", server.url)).reason for _ in range(2)]

            assert StopReason.BUDGET is reasons[-1]
            assert len(server.requests) < 4

    def test_inside_another_policy_there_is_one_attempt(self, web: Web, still: Any) -> None:
        """
        The outer policy owns the retries: three requests, not nine.
        """
        outer = Retry(attempts=3, environment=still, safe=True, failed=lambda answer: answer.status_code >= 500)
        with (
            FaultServer(respond(503)) as server,
            web.client(retry=Retry(attempts=3, environment=still)) as client,
        ):
            answer = outer.call(lambda: client("GET", server.url))

            assert answer.status_code == 503
            assert len(server.requests) == 3


class TestManyAtOnce:
    """
    One transport, many callers: nothing of one request leaks into another.
    """

    @pytest.mark.parametrize("way", ["httpx", "httpx2", "requests"])
    def test_threads(self, way: str) -> None:
        """
        Forty requests in eight threads, every third one broken: each key goes with its own body.
        """
        web, policy = Web(way), Retry(attempts=70, allow_many=True, base=0.001, cap=0.002)
        script = [mode for _ in range(20) for mode in (OK, respond(503), "close_after_read")]
        with FaultServer(*script, OK) as server, web.client(retry=policy) as client:

            def send(number: int) -> int:
                headers = {"Idempotency-Key": f"k-{number}"}
                return int(client("POST", server.url, headers=headers, content=b"body-%d" % number).status_code)

            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(send, range(40))) == [200] * 40
            pairs = {(one.key, one.body) for one in sent(server)}
        assert {(f"k-{number}", b"body-%d" % number) for number in range(40)} == pairs

    @pytest.mark.parametrize("way", ["httpx-async", "httpx2-async"])
    def test_two_hundred_tasks(self, way: str) -> None:
        """
        All of them are answered, each with its own key and body; none ends silently.
        """
        web, policy = Web(way), Retry(attempts=70, allow_many=True, base=0.001, cap=0.002)
        script = [mode for _ in range(60) for mode in (OK, respond(503))]

        async def all_of_them(url: str) -> list[int]:
            async with web.library.AsyncClient(transport=web.transport(retry=policy), timeout=30) as client:

                async def send(number: int) -> int:
                    headers = {"Idempotency-Key": f"k-{number}"}
                    answer = await client.post(url, headers=headers, content=b"body-%d" % number)
                    return int(answer.status_code)

                return await asyncio.gather(*(send(number) for number in range(200)))

        with FaultServer(*script, OK) as server:
            assert asyncio.run(all_of_them(server.url)) == [200] * 200
            pairs = {(one.key, one.body) for one in sent(server)}
        assert {(f"k-{number}", b"body-%d" % number) for number in range(200)} == pairs


def test_a_replayed_answer_says_so(web: Web, policy: Retry) -> None:
    """
    Three headers are in use; all are read.
    """
    answers = [
        respond(200, {name: "true"}) for name in ("Idempotency-Replayed", "Idempotent-Replayed", "Plan-Replayed")
    ]
    script = (*answers, respond(200, {"Idempotency-Replayed": "false"}), OK)
    with FaultServer(*script) as server, web.client(retry=policy) as client:
        said = [replayed(client("POST", server.url, headers=KEY, content=BODY)) for _ in range(5)]

    assert said == [True, True, True, False, False]
