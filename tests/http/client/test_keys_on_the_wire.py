"""Where a request's key comes from, how it is written, and who never gets to see it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from client_support import EXTENDED, Web, sent

from onceward import AsyncGate, ConfigurationError, Gate, KeyMissing, KeyReused, Operation, Retry
from onceward.errors import KeyInvalid
from servers.faults import FaultServer, respond

OK = respond(200, body=b'{"id": "ch_1"}')
BODY = b'{"amount": "12.50"}'


def post_under(web: Web, client: Any, key: str, url: str, **options: Any) -> Any:
    """Send a POST from inside a function that a gate runs under this key."""
    gate = Gate("memory://", scope="test:acme")
    found: list[str] = []

    def effect(operation: Operation) -> dict[str, str]:
        found.append(operation.downstream_key("stripe"))
        client("POST", url, content=BODY, **options)
        return {}

    gate.run(key, effect, guarantee="keyed")
    return found[0]


class TestWhereItComesFrom:
    """
    From the caller, in one way or another. It is never made up.
    """

    @pytest.mark.requirement("C09")
    def test_the_callers_header_goes_as_it_is(self, web: Web, policy: Retry) -> None:
        """
        Whatever is set on the request is the key.
        """
        with FaultServer(OK) as server, web.client(retry=policy, key=lambda _: "other") as client:
            client("POST", server.url, headers={"idempotency-key": "charge:o-17"}, content=BODY)
            assert sent(server)[0].key == "charge:o-17"

    def test_a_function_of_the_request(self, web: Web, policy: Retry) -> None:
        """
        `key=function`: asked once per request, not once per attempt.
        """
        asked: list[str] = []

        def key_of(request: Any) -> str:
            asked.append(str(request.url))
            return f"call-{len(asked)}"

        with FaultServer(respond(503), OK) as server, web.client(retry=policy, key=key_of) as client:
            client("POST", server.url + "/charges", content=BODY)
            assert [one.key for one in sent(server)] == ["call-1", "call-1"]
        assert [server.url + "/charges"] == asked

    @pytest.mark.parametrize("way", EXTENDED)
    def test_extensions_of_the_request(self, way: str, policy: Retry) -> None:
        """
        `extensions={"onceward": {"key": ...}}`, where the library has extensions (requests has none).
        """
        web = Web(way)
        with FaultServer(respond(503), OK) as server, web.client(retry=policy) as client:
            client("POST", server.url, content=BODY, extensions={"onceward": {"key": "charge:o-17"}})
            assert [one.key for one in sent(server)] == ["charge:o-17"] * 2

    @pytest.mark.requirement("C02")
    def test_the_operation_around_it(self, web: Web, policy: Retry) -> None:
        """
        Inside a gated function: the operation's downstream key, which a restarted process makes again.
        """
        with FaultServer(respond(503), OK) as server, web.client(retry=policy) as client:
            first = post_under(web, client, "charge:o-17", server.url)
            again = post_under(web, client, "charge:o-17", server.url)  # Another gate, as after a restart.

            assert [first] * 3 == [one.key for one in sent(server)]
        assert first == again

    @pytest.mark.parametrize("way", ["httpx-async", "httpx2-async"])
    def test_the_operation_of_an_awaiting_gate(self, way: str, still: Any) -> None:
        """
        The same, where everything is awaited.
        """
        import asyncio

        web = Web(way)

        async def story(url: str) -> str:
            gate = AsyncGate("memory://", scope="test:acme")
            transport = web.transport(retry=Retry(environment=still))
            async with web.library.AsyncClient(transport=transport) as client:

                async def effect(operation: Operation) -> str:
                    await client.post(url, content=BODY)
                    return operation.downstream_key("stripe")

                return await gate.run("charge:o-17", effect, guarantee="keyed")

        with FaultServer(respond(503), OK) as server:
            key = asyncio.run(story(server.url))
            assert [key] * 2 == [one.key for one in sent(server)]

    def test_an_operations_key_names_one_request(self, web: Web, policy: Retry) -> None:
        """
        A second, different request under the same operation is refused before it is sent; the same one is not.
        """
        gate = Gate("memory://", scope="test:acme")
        with FaultServer(OK) as server, web.client(retry=policy) as client:

            def effect(operation: Operation) -> None:
                client("POST", server.url, content=BODY)
                client("POST", server.url, content=BODY)
                client("GET", server.url)
                client("POST", server.url, content=b"something else")

            with pytest.raises(KeyReused, match="part"):
                gate.run("charge:o-17", effect, guarantee="keyed")
            assert [one.body for one in sent(server)] == [BODY, BODY, b""]

    @pytest.mark.parametrize("way", EXTENDED)
    @pytest.mark.parametrize(("profile", "length"), [("worldline", 40), ("uuid", 36)])
    def test_parts_of_an_operation_have_keys_of_their_own(
        self, way: str, policy: Retry, profile: str, length: int
    ) -> None:
        """
        Named parts: two requests, two keys, both the same again after a restart and as long as the provider takes.
        """
        web = Web(way)
        gate = Gate("memory://", scope="test:acme")
        with FaultServer(OK) as server, web.client(retry=policy, profile=profile) as client:

            def effect(operation: Operation) -> None:
                for part in ("customer", "charge"):
                    extensions = {"onceward": {"part": part}}
                    client("POST", server.url, content=part.encode(), extensions=extensions)

            gate.run("order:17", effect, guarantee="keyed")
            Gate("memory://", scope="test:acme").run("order:17", effect, guarantee="keyed")
            keys = [one.key for one in sent(server)]
        assert keys[:2] == keys[2:]
        assert len(set(keys)) == 2
        assert {length} == {len(key or "") for key in keys}
        assert profile != "uuid" or all(UUID(key).version == 5 for key in keys)

    def test_profile_none_leaves_the_operation_alone(self, web: Web, policy: Retry) -> None:
        """
        For requests that are no effect of the operation, such as calls of a model.
        """
        with FaultServer(OK) as server, web.client(retry=policy, profile=None) as client:
            post_under(web, client, "charge:o-17", server.url)
            assert sent(server)[0].key is None

    def test_nowhere_else(self, web: Web, policy: Retry) -> None:
        """
        A POST without any of these has no key on the line.
        """
        with FaultServer(OK) as server, web.client(retry=policy) as client:
            client("POST", server.url, content=BODY)
            assert sent(server)[0].key is None


class TestRequiringOne:
    """
    `require_key=True`: a write without a key is a mistake, and mistakes are not sent.
    """

    @pytest.mark.requirement("C01")
    @pytest.mark.parametrize("method", ["POST", "PATCH"])
    def test_refuses_before_anything_is_sent(self, web: Web, policy: Retry, method: str) -> None:
        """
        `KeyMissing`, and the server has seen nothing.
        """
        with FaultServer(OK) as server, web.client(retry=policy, require_key=True) as client:
            with pytest.raises(KeyMissing, match="nothing was sent"):
                client(method, server.url, content=BODY)

            assert server.requests == []

    @pytest.mark.requirement("C01")
    def test_lets_reads_and_keyed_writes_pass(self, web: Web, policy: Retry) -> None:
        """
        Only keyless writes are refused: by method, not by having a body.
        """
        with FaultServer(OK) as server, web.client(retry=policy, require_key=True) as client:
            client("GET", server.url)
            client("PUT", server.url, content=BODY)
            client("POST", server.url, headers={"Idempotency-Key": "k"}, content=BODY)
            assert [one.key for one in sent(server)] == [None, None, "k"]

    @pytest.mark.parametrize("way", EXTENDED)
    def test_a_post_that_only_reads_can_say_so(self, way: str, policy: Retry) -> None:
        """
        A search by POST is declared safe: no key, and it is sent again.
        """
        web = Web(way)
        with FaultServer("close_after_read", OK) as server, web.client(retry=policy, require_key=True) as client:
            answer = client("POST", server.url, content=BODY, extensions={"onceward": {"safe": True}})
            assert (answer.status_code, len(server.requests)) == (200, 2)


class TestHowItIsWritten:
    """
    Bare, as most APIs take it; in quotation marks, as the IETF draft has it.
    """

    def test_bare_unless_asked(self, web: Web, policy: Retry) -> None:
        """
        `quoted=True` makes a structured field's string of it, escapes and all.
        """
        headers = {"Idempotency-Key": 'charge:"o"\\17'}
        with FaultServer(OK) as server:
            with web.client(retry=policy) as client:
                client("POST", server.url, headers=headers, content=BODY)
            with web.client(retry=policy, quoted=True) as client:
                client("POST", server.url, headers=headers, content=BODY)
            bare, quoted = (one.key for one in sent(server))
        assert bare == 'charge:"o"\\17'
        assert quoted == r'"charge:\"o\"\\17"'

    def test_quoted_by_the_caller_stays_quoted(self, web: Web, policy: Retry) -> None:
        """
        And is not quoted twice.
        """
        with FaultServer(OK) as server, web.client(retry=policy, quoted=True) as client:
            client("POST", server.url, headers={"Idempotency-Key": '"charge:o-17"'}, content=BODY)
            assert sent(server)[0].key == '"charge:o-17"'

    def test_under_another_header(self, web: Web, policy: Retry) -> None:
        """
        Some APIs have a name of their own for it.
        """
        with FaultServer(respond(503), OK) as server, web.client(retry=policy, header="X-Request-Key") as client:
            client("POST", server.url, headers={"X-Request-Key": "charge:o-17"}, content=BODY)
            assert [one.headers["x-request-key"] for one in sent(server)] == ["charge:o-17"] * 2

    @pytest.mark.parametrize("key", ["two words", "x" * 256, '"open', '"a", "b"'])
    def test_what_cannot_be_a_key_is_not_sent(self, web: Web, policy: Retry, key: str) -> None:
        """
        `KeyInvalid`, before the first attempt; the key itself is not in the message.
        """
        with FaultServer(OK) as server, web.client(retry=policy) as client:
            with pytest.raises(KeyInvalid) as caught:
                client("POST", server.url, headers={"Idempotency-Key": key}, content=BODY)

            assert server.requests == []
        assert key not in str(caught.value)


class TestRedirects:
    """
    A key tells about the caller's business: whoever it was not meant for does not get it.
    """

    def test_the_same_origin_gets_the_key_again(self, web: Web, policy: Retry) -> None:
        """
        307 to another path: same key, same bytes.
        """
        moved = respond(307, {"Location": "/elsewhere"})
        with FaultServer(moved, OK) as server, web.client(retry=policy, follow=True) as client:
            client("POST", server.url, headers={"Idempotency-Key": "k"}, content=BODY)
            assert [(one.key, one.body) for one in sent(server)] == [("k", BODY)] * 2

    @pytest.mark.parametrize("source", ["header", "function", "operation"])
    def test_another_origin_does_not(self, web: Web, policy: Retry, source: str) -> None:
        """
        Wherever the key came from. Without it, a lost answer over there is not tried again, either.
        """
        headers = {"Idempotency-Key": "k"} if source == "header" else {}
        key = (lambda _: "k") if source == "function" else None
        with FaultServer(OK) as other:
            moved = respond(307, {"Location": other.url + "/"})
            with FaultServer(moved) as server, web.client(retry=policy, follow=True, key=key) as client:
                if source == "operation":
                    post_under(web, client, "charge:o-17", server.url)
                else:
                    client("POST", server.url, headers=headers, content=BODY)
                assert sent(server)[0].key is not None
            assert [(one.key, one.body) for one in sent(other)] == [(None, BODY)]


class TestTheCallersRequest:
    """
    What was handed in is left as it was, and can be sent again as another request.
    """

    @pytest.mark.parametrize("way", ["httpx", "httpx2"])
    def test_is_not_written_on(self, way: str, policy: Retry) -> None:
        """
        One request object under two operations: two keys.
        """
        web = Web(way)
        with FaultServer(OK) as server, web.library.Client(transport=web.transport(retry=policy)) as client:
            request = client.build_request("POST", server.url, content=BODY)
            before = list(request.headers.raw)
            for key in ("a", "b"):
                Gate("memory://", scope="test:acme").run(key, lambda: client.send(request).text, guarantee="keyed")

            assert before == list(request.headers.raw)
            assert len({one.key for one in sent(server)}) == 2

    def test_is_given_a_fresh_key_by_requests(self, policy: Retry) -> None:
        """
        requests' prepared request shows the key that was sent; the next sending makes its own.
        """
        import requests

        web = Web("requests")
        with FaultServer(OK) as server, requests.Session() as session:
            session.mount("http://", web.transport(retry=policy))
            prepared = session.prepare_request(requests.Request("POST", server.url, data=BODY))
            for key in ("a", "b"):
                run = Gate("memory://", scope="test:acme").run
                run(key, lambda: session.send(prepared).text, guarantee="keyed")

            assert len({one.key for one in sent(server)}) == 2


class TestMistakes:
    """
    What cannot work is refused when it is written, with what to write instead.
    """

    @pytest.mark.parametrize(
        "options",
        [
            {"key": "one-for-all"},
            {"retry": 3},
            {"profile": "paypal"},
            {"environment": "staging"},
            {"require_key": "yes"},
            {"whole": 1},
        ],
        ids=str,
    )
    def test_in_what_is_said_about_the_client(self, web: Web, options: dict[str, Any]) -> None:
        """
        At once, not at the first request.
        """
        with pytest.raises(ConfigurationError):
            web.transport(**options)

    def test_in_a_function_that_makes_no_policy(self, web: Web) -> None:
        """
        Every time, and nothing is sent.
        """
        with FaultServer(OK) as server, web.client(retry=lambda host: None) as client:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match="Retry policy"):
                    client("GET", server.url)
            assert server.requests == []

    @pytest.mark.parametrize("way", EXTENDED)
    @pytest.mark.parametrize("said", [{"kee": "x"}, {"safe": "yes"}, {"part": 1}, "key"], ids=str)
    def test_in_what_is_said_about_a_request(self, way: str, policy: Retry, said: Any) -> None:
        """
        A misspelt word is not ignored: nothing is sent.
        """
        web = Web(way)
        with FaultServer(OK) as server, web.client(retry=policy) as client:
            with pytest.raises(ConfigurationError):
                client("POST", server.url, content=BODY, extensions={"onceward": said})
            assert server.requests == []

    @pytest.mark.parametrize("way", EXTENDED)
    def test_one_transport_in_another(self, way: str) -> None:
        """
        Two that carry the key would retry each other.
        """
        web = Web(way)
        with pytest.raises(ConfigurationError, match="already"):
            web.transport(wrap=web.transport())
