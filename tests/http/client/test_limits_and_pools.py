"""What a 429 becomes, and that no connection is kept by an answer nobody wants."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from client_support import EXTENDED, Web, sent

from onceward import Retry, stop_of
from onceward.errors import RateLimitError
from onceward.http import raise_for_status
from onceward.http.requests import Adapter
from onceward.retry import StopReason
from onceward.testing.clock import StillEnvironment
from servers.faults import FaultServer, respond

OK = respond(200, body=b'{"id": "ch_1"}')
KEY = {"Idempotency-Key": "charge:o-17"}
LIMITED = respond(429, {"Retry-After": "30"}, b'{"code": "rate_limited"}')


class TestARateLimit:
    """
    Returned as a response by default, raised as `RateLimitError` where that was asked for.
    """

    @pytest.mark.requirement("A37", "A38")
    @pytest.mark.parametrize("attempts", [1, 3])
    def test_is_raised_when_retries_are_off_or_used_up(self, web: Web, still: Any, attempts: int) -> None:
        """
        With the seconds from the header, and the response.
        """
        policy = Retry(attempts=attempts, environment=still, elapsed=300)
        with (
            FaultServer(LIMITED) as server,
            web.client(retry=policy, raise_rate_limit=True) as client,
            pytest.raises(RateLimitError) as caught,
        ):
            client("POST", server.url, headers=KEY, content=b"x")

        assert (caught.value.retry_after_seconds, caught.value.response.status_code) == (30, 429)
        assert caught.value.response.json() == {"code": "rate_limited"}
        assert type(caught.value) is RateLimitError
        assert (StopReason.ATTEMPTS, attempts) == (stop_of(caught.value).reason, len(server.requests))

    def test_is_raised_at_once_if_the_wait_does_not_fit(self, web: Web, policy: Retry, still: Any) -> None:
        """
        An hour is not waited for: the error says when.
        """
        hour = respond(429, {"Retry-After": "3600"})
        with (
            FaultServer(hour) as server,
            web.client(retry=policy, raise_rate_limit=True) as client,
            pytest.raises(RateLimitError) as caught,
        ):
            client("GET", server.url)

        assert (
            still.slept,
            caught.value.retry_after_seconds,
            stop_of(caught.value).reason,
        ) == ([], 3600, StopReason.DEADLINE)

    @pytest.mark.requirement("A37", "A38")
    def test_can_be_made_of_a_response(self, web: Web, policy: Retry, still: Any) -> None:
        """
        `raise_for_status`: 429 as ours, others as the library's own, and a good answer comes back.
        """
        policy = Retry(attempts=1, environment=still)
        with FaultServer(LIMITED, respond(404), OK) as server, web.client(retry=policy) as client:
            with pytest.raises(RateLimitError) as caught:
                raise_for_status(client("GET", server.url), environment=still)
            with pytest.raises(web.errors("HTTPStatusError")):
                raise_for_status(client("GET", server.url))
            answer = client("GET", server.url)

            assert answer is raise_for_status(answer)
        assert caught.value.retry_after_seconds == 30


class TestPools:
    """
    An answer that is discarded gives its connection back.
    """

    @pytest.mark.parametrize("way", EXTENDED)
    @pytest.mark.parametrize("size", [10, 300_000])
    def test_of_one_connection_are_enough(self, way: str, size: int, policy: Retry) -> None:
        """
        Short refusals are read, long ones closed: the next attempt finds the only connection free.
        """
        web = Web(way)
        plain = web.plain(verify=False, limits=web.library.Limits(max_connections=1))
        busy = respond(503, body=b"x" * size)
        timeout = web.library.Timeout(5, pool=0.5)
        with FaultServer(busy, busy, OK) as server, web.client(retry=policy, wrap=plain, timeout=timeout) as client:
            assert client("POST", server.url, headers=KEY, content=b"x").status_code == 200

    @pytest.mark.parametrize("way", ["httpx-async", "httpx2-async"])
    def test_get_it_back_when_the_caller_goes_away(self, way: str) -> None:
        """
        Cancelled while waiting for the next attempt, with a long refusal half read: the connection is free again.
        """
        import asyncio

        web = Web(way)
        plain = web.plain(verify=False, limits=web.library.Limits(max_connections=1))
        waiting = asyncio.Event()
        policy = Retry(on_retry=lambda _: waiting.set())
        busy = respond(503, {"Retry-After": "50"}, b"x" * 300_000)

        async def story(url: str) -> int:
            timeout = web.library.Timeout(5, pool=0.5)
            async with web.library.AsyncClient(transport=web.transport(retry=policy, wrap=plain), timeout=timeout) as c:
                task = asyncio.create_task(c.post(url, headers=KEY, content=b"x"))
                await waiting.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                return int((await c.get(url)).status_code)

        with FaultServer(busy, OK) as server:
            assert asyncio.run(story(server.url)) == 200

    @pytest.mark.fault("an-interrupted-client-keeps-its-connection")
    def test_get_it_back_when_the_caller_is_interrupted(self, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The same for Ctrl-C, in both colours: the answer that nobody will read is closed.
        """
        kind = Adapter if web.is_requests else type(web.plain(verify=False))
        name = "send_once" if web.is_requests else "handle_async_request" if web.awaits else "handle_request"
        send, answers = getattr(kind, name), []

        def noted(*given: Any, **options: Any) -> Any:
            answers.append(send(*given, **{**options, **({"stream": True} if web.is_requests else {})}))
            return answers[-1]

        async def noted_async(*given: Any) -> Any:
            answers.append(await send(*given))
            return answers[-1]

        monkeypatch.setattr(kind, name, noted_async if web.awaits else noted)
        busy = respond(503, {"Retry-After": "5"}, b"x" * 300_000)
        streamed = {"stream": True} if web.is_requests else {}
        with FaultServer(busy) as server, web.client(retry=Retry(environment=Interrupted())) as client:
            with pytest.raises(KeyboardInterrupt):
                client("POST", server.url, headers=KEY, content=b"x", **streamed)
            closed = [one.raw.closed if web.is_requests else one.is_closed for one in answers]

        assert closed == [True]

    def test_of_requests_as_well(self, policy: Retry) -> None:
        """
        A pool that blocks when it is empty.
        """
        web = Web("requests")
        busy = respond(503, body=b"x" * 300_000)
        options = {"pool_connections": 1, "pool_maxsize": 1, "pool_block": True}
        with FaultServer(busy, busy, OK) as server, web.client(retry=policy, **options) as client:
            assert client("POST", server.url, headers=KEY, content=b"x").status_code == 200


class Interrupted(StillEnvironment):
    """Somebody presses Ctrl-C while it sleeps."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt

    async def asleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


def raw(web: Web, answer: Any) -> Iterator[bytes]:
    """The bytes of an answer, as they come."""
    found: Iterator[bytes] = answer.aiter_raw() if web.awaits else answer.iter_raw()
    return found


class TestStreams:
    """
    Answers that are streamed pass through untouched.
    """

    @pytest.mark.parametrize("way", EXTENDED)
    def test_good_answers_are_not_read_ahead(self, way: str, policy: Retry) -> None:
        """
        A body that never ends can be begun: nobody waits for its end.
        """
        web = Web(way)
        with (
            FaultServer("trickle") as server,
            web.using(web.plain_client(transport=web.transport(retry=policy))) as client,
            client.stream("POST", server.url, headers=KEY, content=b"x") as answer,
        ):
            assert next(raw(web, answer)) == b" "

    @pytest.mark.parametrize("way", EXTENDED)
    def test_refusals_can_still_be_streamed(self, way: str, policy: Retry) -> None:
        """
        Although they were read for their code: raw bytes, encoding and all.
        """
        web = Web(way)
        packed = gzip.compress(b'{"code": "nope"}')
        refusal = respond(400, {"Content-Encoding": "gzip"}, packed)
        with (
            FaultServer(refusal) as server,
            web.using(web.plain_client(transport=web.transport(retry=policy))) as client,
        ):
            with client.stream("POST", server.url, headers=KEY, content=b"x") as answer:
                assert packed == b"".join(raw(web, answer))
            assert client.post(server.url, headers=KEY, content=b"x").json() == {"code": "nope"}
            assert client.get(server.url).elapsed.total_seconds() >= 0

    @pytest.mark.parametrize("way", EXTENDED)
    def test_long_refusals_are_passed_on_as_they_come(self, way: str, policy: Retry) -> None:
        """
        Their beginning was read for a code, and is not lost.
        """
        web, body = Web(way), bytes(range(256)) * 2_000
        with (
            FaultServer(respond(400, body=body)) as server,
            web.using(web.plain_client(transport=web.transport(retry=policy))) as client,
            client.stream("POST", server.url, headers=KEY, content=b"x") as answer,
        ):
            assert body == b"".join(raw(web, answer))

    def test_a_streamed_answer_of_requests_passes_through(self, policy: Retry) -> None:
        """
        `stream=True` gets the body as it comes.
        """

        with FaultServer("trickle") as server, requests.Session() as session:
            session.mount("http://", Web("requests").transport(retry=policy))
            with session.post(server.url, headers=KEY, data=b"x", stream=True, timeout=5) as answer:
                assert next(answer.iter_content(1)) == b" "

    def test_a_packed_code_is_understood(self, web: Web, policy: Retry) -> None:
        """
        `in_flight` in a gzipped 409 is `in_flight`.
        """
        busy = respond(409, {"Content-Encoding": "gzip"}, gzip.compress(b'{"code": "in_flight"}'))
        with FaultServer(busy, OK) as server, web.client(retry=policy) as client:
            assert client("POST", server.url, headers=KEY, content=b"x").status_code == 200
            assert len(sent(server)) == 2


class TestTheChecksThemselves:
    """
    A check that never fails proves nothing: these clients do what ours must not, and the checks see it.
    """

    def test_a_client_that_makes_a_new_key_per_attempt_is_seen(self, still: Any) -> None:
        """
        The policy around the sending, and the key made inside it: the mistake that doubles charges.
        """
        import httpx2

        numbers = iter(range(9))
        policy = Retry(environment=still, safe=True, failed=lambda answer: answer.status_code >= 500)
        with FaultServer(respond(503), OK) as server, httpx2.Client() as client:
            policy.call(lambda: client.post(server.url, headers={"Idempotency-Key": f"k-{next(numbers)}"}))

            assert [one.key for one in sent(server)] == ["k-0", "k-1"]

    def test_a_client_that_sends_a_file_twice_sends_nothing_the_second_time(self, still: Any, tmp_path: Any) -> None:
        """
        What the library does with a file under a plain retry; ours sends it once and says why.
        """
        import httpx2

        path = tmp_path / "body"
        path.write_bytes(b"the whole body")
        policy = Retry(environment=still, safe=True, failed=lambda answer: answer.status_code >= 500)
        with FaultServer(respond(503), OK) as server, httpx2.Client() as client, path.open("rb") as body:
            stream = client.build_request("POST", server.url, content=body).stream
            headers = {"Transfer-Encoding": "chunked", "Host": f"127.0.0.1:{server.port}"}
            policy.call(lambda: client.send(httpx2.Request("POST", server.url, headers=headers, stream=stream)))

            assert [b"the whole body" in one.body for one in sent(server)] == [True, False]
        web = Web("httpx2")
        ours = Retry(environment=still)
        with FaultServer(respond(503), OK) as server, web.client(retry=ours) as sender, path.open("rb") as body:
            answer = sender("POST", server.url, headers=KEY, content=body)
            assert (answer.status_code, stop_of(answer).reason) == (503, StopReason.NOT_REPLAYABLE)
            assert [one.body for one in sent(server)] == [b"the whole body"]


def test_no_library_is_imported_before_it_is_asked_for() -> None:
    """
    `import onceward.http` needs none of the clients: each is imported by its own module.
    """
    import subprocess
    import sys

    code = "import sys, onceward, onceward.http; print(sorted({'httpx', 'httpx2', 'requests'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout.strip() == "[]"
