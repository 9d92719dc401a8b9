"""Real clients, real sockets, real faults: what their exceptions really look like, and what is made of them."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
import pytest
import requests
import urllib3
from verdict_clients import BODY, CLIENTS, Limits

from onceward._core.classifier import DEFAULT, TABLE
from onceward.verdicts import Action, Certainty, Kind, Verdict, should_retry
from servers.faults import FaultServer, deaf_port, respond, say

EACH_CLIENT = pytest.mark.parametrize("client", list(CLIENTS))
IN_VAIN = (Certainty.NOT_SENT, Kind.NETWORK, Action.SAME_KEY)
NOBODY_KNOWS = (Certainty.UNKNOWN, Kind.NETWORK, Action.SAME_KEY)


def raised(send: Callable[[], Any]) -> BaseException:
    """What a call raises, with its traceback, as a caller catches it."""
    with pytest.raises(BaseException) as caught:
        send()
    return caught.value


def judged(client: str, url: str, limits: Limits = Limits()) -> Verdict:  # noqa: B008
    """The verdict on what this client raises there."""
    return DEFAULT.judge(raised(lambda: CLIENTS[client](url, limits)))


@EACH_CLIENT
class TestEveryClient:
    """One row of the table per fault, for every client."""

    @pytest.mark.requirement("D41")
    def test_a_refused_connection_was_not_sent(self, client: str) -> None:
        """
        Nobody listens: nothing happened, and anybody may try again.
        """
        with FaultServer("refuse") as server:
            error = raised(lambda: CLIENTS[client](server.url, Limits()))

        assert DEFAULT.judge(error)[:3] == IN_VAIN
        assert DEFAULT.retryable(error)
        assert should_retry(error)  # The document's sample takes it for final.

    @pytest.mark.requirement("D41")
    def test_a_name_that_nobody_has_was_not_sent(self, client: str) -> None:
        """
        DNS failed.
        """
        assert judged(client, "http://nobody.invalid:81/")[:3] == IN_VAIN

    @pytest.mark.requirement("D41")
    def test_a_handshake_with_a_plain_socket_was_not_sent(self, client: str) -> None:
        """
        TLS was asked for, and something else was spoken.
        """
        with FaultServer(say(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
            assert judged(client, server.url.replace("http:", "https:"))[:3] == IN_VAIN

    def test_a_certificate_that_nobody_trusts_is_for_a_person(self, client: str, untrusted: ssl.SSLContext) -> None:
        """
        Not sent, and trying again does not help.
        """
        with FaultServer(tls=untrusted) as server:
            verdict = judged(client, server.url)

        assert verdict[:3] == (Certainty.NOT_SENT, Kind.NETWORK, Action.ESCALATE)
        assert server.requests == []

    @pytest.mark.dose(5)
    def test_a_connection_that_is_not_made_in_time_was_not_sent(self, client: str) -> None:
        """
        A full queue neither takes nor refuses.
        """
        with deaf_port() as port:
            assert judged(client, f"http://127.0.0.1:{port}", Limits(connect=0.2))[:3] == IN_VAIN

    @pytest.mark.requirement("D41")
    @pytest.mark.parametrize("fault", ["reset_after_read", "close_after_read", "truncate"])
    def test_a_line_that_breaks_leaves_the_outcome_unknown(self, client: str, fault: str) -> None:
        """
        It was read; the sender cannot know that, and only a key makes another try safe.
        """
        with FaultServer(fault) as server:
            verdict = judged(client, server.url)

        assert verdict[:3] == NOBODY_KNOWS
        assert (verdict.retryable(), verdict.retryable(keyed=True)) == (False, True)
        assert len(server.requests) == 1

    @pytest.mark.requirement("D41")
    def test_a_reset_before_reading_is_weather_and_never_taken_for_success(self, client: str) -> None:
        """
        It may strike while the connection is still being made (then nothing was sent) or after it (then who knows).
        """
        with FaultServer("reset_before_read") as server:
            verdict = judged(client, server.url)

        assert verdict[:3] in (IN_VAIN, NOBODY_KNOWS)
        assert server.requests == []

    @pytest.mark.dose(5)
    def test_silence_leaves_the_outcome_unknown(self, client: str) -> None:
        """
        The request was read, whole; the client has stopped waiting.
        """
        with FaultServer("stall") as server:
            verdict = judged(client, server.url, Limits(read=0.4))

            assert len(server.requests) == 1
        assert verdict[:3] == NOBODY_KNOWS


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "socket"])
def test_a_rate_limit_was_turned_away_and_says_how_long(client: str) -> None:
    """
    Each client's own exception gives up its headers.
    """
    with FaultServer(respond(429, {"Retry-After": "7"}, b'{"error": {"code": "slow_down"}}')) as server:
        verdict = judged(client, server.url)

    assert verdict[:4] == (Certainty.NOT_SENT, Kind.RATE_LIMIT, Action.SAME_KEY, 7.0)


IN_FLIGHT = b'{"type": "about:blank", "code": "in_flight", "detail": "..."}'


@pytest.mark.parametrize("client", ["httpx", "httpx2", "requests", "urllib3", "openai", "anthropic"])
def test_our_code_is_found_in_the_body_of_an_error(client: str) -> None:
    """
    409 with `in_flight`: another holder is at it.
    """
    with FaultServer(respond(409, {"Retry-After": "1"}, IN_FLIGHT)) as server:
        verdict = judged(client, server.url)

    assert (*verdict[2:], verdict.happened) == (Action.SAME_KEY, 1.0, "in_flight", None)


@pytest.mark.parametrize("library", [httpx, httpx2, requests, urllib3])
def test_our_code_is_found_in_the_body_of_a_response(library: Any) -> None:
    """
    202 with `in_flight`, where one polls: not an answer yet.
    """
    with FaultServer(respond(202, {"Retry-After": "1"}, IN_FLIGHT)) as server:
        verdict = DEFAULT.judge(library.request("POST", server.url))

    assert (*verdict[2:], verdict.happened) == (Action.SAME_KEY, 1.0, "in_flight", None)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.0),
        ({"Date": "Sun, 15 Nov 2026 12:00:00 GMT", "Retry-After": "Sun, 15 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"x-amz-retry-after": "1500"}, 1.5),
        ({"RateLimit": '"default";r=0;t=30'}, 30.0),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "12"}, 12.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"Retry-After": "soon"}, None),
    ],
)
@pytest.mark.parametrize("client", ["httpx2", "requests", "aiohttp", "openai"])
def test_each_form_of_a_wait_comes_through_each_client(client: str, headers: Any, seconds: float | None) -> None:
    """
    Whatever mapping a client keeps headers in.
    """
    dated = {"Date": "Sun, 15 Nov 2026 12:00:00 GMT", **headers}
    with FaultServer(respond(429, dated)) as server:
        assert seconds == judged(client, server.url).wait


@pytest.mark.parametrize("client", ["openai", "anthropic"])
class TestAnSdkThatTriesAgainByItself:
    """Its error is that of the last try; the first one may have happened."""

    @pytest.mark.parametrize("status", [400, 401])
    def test_a_rejected_second_try_does_not_speak_for_the_first(self, client: str, status: int) -> None:
        """
        Reset after reading, then refused: the outcome is unknown. The advice stays that of the answer.
        """
        with FaultServer("reset_after_read", respond(status)) as server:
            error = raised(lambda: CLIENTS[client](server.url, Limits(), 1))

        assert len(server.requests) == 2
        assert Certainty.UNKNOWN is DEFAULT.judge(error).certainty
        assert {400: Action.NEVER, 401: Action.REFRESH}[status] is DEFAULT.judge(error).action

    def test_a_refused_second_try_does_not_speak_for_the_first(self, client: str) -> None:
        """
        The first reached somebody, the second nobody.
        """
        with FaultServer("reset_for_good") as server:
            error = raised(lambda: CLIENTS[client](server.url, Limits(), 1))

        assert isinstance(error.__cause__, httpx2.ConnectError)
        assert Certainty.UNKNOWN is DEFAULT.judge(error).certainty

    def test_the_first_try_speaks_for_itself(self, client: str) -> None:
        """
        Without an earlier try, a rejection is one.
        """
        with FaultServer(respond(400)) as server:
            assert Certainty.REJECTED is judged(client, server.url).certainty


def _following(client: str) -> Callable[[str], Any]:
    """The client, told to follow redirects if it does not by itself."""
    if client in ("httpx", "httpx2"):
        library: Any = {"httpx": httpx, "httpx2": httpx2}[client]
        return lambda url: library.post(url, content=BODY, follow_redirects=True).raise_for_status()
    if client == "urllib3":
        return lambda url: CLIENTS["urllib3"](url, Limits(), 3)
    return lambda url: CLIENTS[client](url, Limits())


@pytest.mark.parametrize(
    "client", ["httpx", "httpx2", "requests", "urllib3", "aiohttp", "openai", "anthropic", "urllib"]
)
class TestAClientThatFollowsRedirects:
    """Its error is that of the last request; the first one was answered, and may have been carried out."""

    def test_a_refused_connection_behind_a_redirect_is_unknown(self, client: str) -> None:
        """
        See other, it said, and there nobody listens.
        """
        with FaultServer("refuse") as nobody, FaultServer(respond(303, {"Location": nobody.url})) as server:
            error = raised(lambda: _following(client)(server.url))

        assert len(server.requests) == 1
        assert DEFAULT.judge(error)[:3] == NOBODY_KNOWS

    def test_not_found_behind_a_redirect_is_unknown(self, client: str) -> None:
        """
        The page that tells what became of the order is missing. That is no refusal of the order.
        """
        with FaultServer(respond(303, {"Location": "/orders/17"}), respond(404)) as server:
            verdict = DEFAULT.judge(raised(lambda: _following(client)(server.url)))

        assert len(server.requests) == 2
        assert verdict[:3] == (Certainty.UNKNOWN, Kind.CLIENT, Action.NEVER)


class TestUrllib3ThatTriesAgainByItself:
    """With a `Retry`, the last reason stands for the last try only."""

    def test_refused_every_time_was_not_sent(self) -> None:
        """
        Every try is looked at.
        """
        with FaultServer("refuse") as server, urllib3.PoolManager(retries=2) as pool:
            assert DEFAULT.judge(raised(lambda: pool.request("POST", server.url, body=BODY)))[:3] == IN_VAIN

    @pytest.mark.parametrize("through", ["urllib3", "requests"])
    def test_refused_after_a_reset_is_unknown(self, through: str) -> None:
        """
        The first try was read by somebody.
        """
        retries = urllib3.Retry(2, allowed_methods=None, backoff_factor=0)
        with FaultServer("reset_for_good") as server, requests.Session() as session:
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
            pool = urllib3.PoolManager(retries=retries)
            sends = {
                "urllib3": lambda: pool.request("POST", server.url, body=BODY),
                "requests": lambda: session.post(server.url, data=BODY),
            }
            error = raised(sends[through])

        assert len(server.requests) == 1
        assert "refused" in str(error)
        assert DEFAULT.judge(error)[:3] == NOBODY_KNOWS


@contextmanager
def one_connection(library: Any) -> Iterator[Any]:
    """A client whose only connection is taken."""
    with FaultServer("trickle") as server:
        client = library.Client(limits=library.Limits(max_connections=1), timeout=library.Timeout(10, pool=0.1))
        with client, client.stream("GET", server.url):
            yield lambda: client.get(server.url)


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_no_connection_left_in_the_pool_was_not_sent(library: Any) -> None:
    """
    It waited in line at home.
    """
    with one_connection(library) as send:
        error = raised(send)

    assert isinstance(error, library.PoolTimeout)
    assert DEFAULT.judge(error)[:3] == IN_VAIN


def test_a_timeout_around_everything_is_unknown() -> None:
    """
    asyncio's, around a request that was read.
    """

    async def work() -> None:
        async with asyncio.timeout(0.4), httpx2.AsyncClient(timeout=10) as client:
            await client.post(server.url, content=BODY)

    with FaultServer("stall") as server:
        error = raised(lambda: asyncio.run(work()))

    assert type(error) is TimeoutError
    assert DEFAULT.judge(error)[:3] == NOBODY_KNOWS


def test_a_cancelled_call_is_unknown_and_asks_for_nothing() -> None:
    """
    Whoever cancels has stopped waiting, and wants no other try.
    """

    async def work() -> BaseException:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as error:
            return error
        raise AssertionError

    verdict = DEFAULT.judge(asyncio.run(work()))

    assert (verdict.certainty, verdict.action) == (Certainty.UNKNOWN, Action.NEVER)


def test_a_program_that_is_stopped_in_the_middle_is_unknown() -> None:
    """
    subprocess's timeout: it ran, for a while.
    """
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    error = raised(lambda: subprocess.run(command, timeout=0.1, check=True, env={**os.environ}))

    assert DEFAULT.judge(error)[0:3:2] == (Certainty.UNKNOWN, Action.SAME_KEY)


def test_errors_of_a_task_group_are_judged_together() -> None:
    """
    All refused: not sent. One of them reset: unknown.
    """
    with FaultServer("refuse") as refusing, FaultServer("reset_after_read") as resetting:

        async def work(*urls: str) -> None:
            async with httpx2.AsyncClient() as client, asyncio.TaskGroup() as group:
                for url in urls:
                    group.create_task(client.post(url, content=BODY))

        both = raised(lambda: asyncio.run(work(refusing.url, resetting.url)))
        refused = raised(lambda: asyncio.run(work(refusing.url, refusing.url)))

    assert isinstance(both, ExceptionGroup)
    assert DEFAULT.judge(refused)[:3] == IN_VAIN
    if len(both.exceptions) == 2:  # The first to fail cancels the other, which may not have got far enough to fail.
        assert Certainty.UNKNOWN is DEFAULT.judge(both).certainty


def test_every_name_in_the_table_is_of_a_type_that_exists() -> None:
    """
    A misspelled name would never be met, and nobody would notice.
    """
    missing = [name for name in TABLE if not _exists(name)]

    assert missing == []


def _exists(name: str) -> bool:
    module, _, type_name = name.rpartition(".")
    home = __import__(module, fromlist=["x"])
    found = getattr(home, type_name, None)
    return inspect.isclass(found) and f"{found.__module__}.{found.__qualname__}" == name
