"""A policy, a breaker and a budget on a route: replays pass an open circuit, the rest is refused before a claim."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward import AsyncGate, ConfigurationError, Gate, Retry
from onceward.http import Route
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware
from onceward.retry import Breaker, Budget
from onceward.stores.memory import AsyncMemoryStore, MemoryStore
from onceward.testing import no_sleeping

Asked = Callable[[str], tuple[int, dict[str, Any] | str, dict[str, str]]]


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    with no_sleeping():
        yield


class Handler:
    """An application that answers with these statuses, one after the other, and counts."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = statuses
        self.bodies: list[bytes] = []

    def status(self, body: bytes) -> int:
        self.bodies.append(body)
        return self.statuses[min(len(self.bodies), len(self.statuses)) - 1]

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["state"].get("seen") is None
        scope["state"]["seen"] = True  # What a framework writes into the scope is not there on the next attempt.
        status = self.status((await receive())["body"])
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    def wsgi(self, environ: Any, start_response: Any) -> list[bytes]:
        status = self.status(environ["wsgi.input"].read())
        start_response(f"{status} Status", [])
        return [b"answer"]


def asked(colour: str, handler: Handler, **changes: Any) -> Asked:
    """Send a keyed POST through the middleware of either colour."""
    routes = [Route("/charges", **changes)]
    if colour == "wsgi":
        wsgi = WsgiMiddleware(handler.wsgi, gate=Gate(MemoryStore(), scope="acme"), scope="acme", routes=routes)

        def blocking(key: str) -> Any:
            told: dict[str, Any] = {}
            environ = {
                "REQUEST_METHOD": "POST",
                "PATH_INFO": "/charges",
                "QUERY_STRING": "",
                "CONTENT_LENGTH": "4",
                "HTTP_IDEMPOTENCY_KEY": key,
                "wsgi.input": io.BytesIO(b"body"),
            }

            def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
                told.update(status=int(status[:3]), headers={name.lower(): value for name, value in headers})

            given = wsgi(environ, start_response)
            body = b"".join(given)
            getattr(given, "close", lambda: None)()
            return told["status"], _read(body), told["headers"]

        return blocking
    asgi = IdempotencyMiddleware(
        handler.asgi, gate=AsyncGate(AsyncMemoryStore(), scope="acme"), scope="acme", routes=routes
    )

    def awaiting(key: str) -> Any:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"body", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/charges",
            "query_string": b"",
            "headers": [(b"idempotency-key", key.encode())],
        }
        asyncio.run(asgi(scope, receive, send))
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], _read(b"".join(one.get("body", b"") for one in sent[1:])), headers

    return awaiting


def _read(body: bytes) -> Any:
    return json.loads(body) if body.startswith(b"{") else body.decode()


@pytest.fixture(params=["asgi", "wsgi"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.fault("a-route-does-not-hand-its-breaker-on")
def test_an_open_circuit_answers_replays_and_refuses_the_rest(colour: str) -> None:
    """
    The first answer is replayed; a new key is 503 with the time to come back, and its handler does not run.
    """
    handler, breaker = Handler(201), Breaker("payments")
    ask = asked(colour, handler, breaker=breaker)
    first = ask("one")
    breaker.trip()
    replay, refused = ask("one"), ask("two")

    assert (first[0], replay[0], replay[2].get("idempotency-replayed")) == (201, 201, "true")
    assert (refused[0], len(handler.bodies)) == (503, 1)
    assert refused[1]["code"] == "circuit_open"  # type: ignore[index]
    assert 1 <= int(refused[2]["retry-after"]) <= 30
    breaker.reset()
    assert ask("two")[0] == 201


def test_a_handlers_failures_open_the_breaker(colour: str) -> None:
    """
    Answers of 500 and above count, refusals below do not.
    """
    handler, breaker = Handler(404, 500, 500), Breaker("payments", threshold=2)
    ask = asked(colour, handler, breaker=breaker, guarantee="repeatable")
    statuses = [ask(key)[0] for key in ("a", "b", "c", "d")]

    assert (statuses, breaker.state) == ([404, 500, 500, 503], "open")


def test_a_run_after_a_failed_one_is_paid_for(colour: str) -> None:
    """
    The client retries, and the budget holds for that, too.
    """
    handler = Handler(500)
    ask = asked(colour, handler, budget=Budget(burst=1), guarantee="repeatable")
    answers = [ask("one") for _ in range(3)]

    assert ([one[0] for one in answers], len(handler.bodies)) == ([500, 500, 503], 2)
    assert answers[-1][1]["code"] == "budget_exhausted"  # type: ignore[index]


@pytest.mark.fault("a-handler-that-is-run-again-reads-nothing")
def test_a_handler_is_run_again_under_one_claim() -> None:
    """
    Two failures and a success: the client sees the success, and each attempt read the whole request.
    """
    handler = Handler(503, 503, 201)
    ask = asked("asgi", handler, retry=Retry(), guarantee="repeatable")

    assert ask("one")[:2] == (201, "answer")
    assert handler.bodies == [b"body"] * 3
    assert (ask("one")[2].get("idempotency-replayed"), len(handler.bodies)) == ("true", 3)


def test_a_blind_handler_is_not_run_again() -> None:
    """
    Its failure may have had its effect: the client gets the answer, and the key is in doubt.
    """
    handler = Handler(503)
    ask = asked("asgi", handler, retry=Retry())

    assert (ask("one")[0], len(handler.bodies)) == (503, 1)
    assert (ask("one")[0], len(handler.bodies)) == (409, 1)


@pytest.mark.parametrize("changes", [{"answer_first": True}, {"transactional": True}])
def test_what_cannot_be_run_again_is_refused_at_the_start(changes: dict[str, Any]) -> None:
    """
    By name; and a blocking middleware takes no policy at all.
    """
    with pytest.raises(ConfigurationError, match="leave retry out"):
        asked("asgi", Handler(201), retry=Retry(), **changes)
    with pytest.raises(ConfigurationError, match="retry= works with the ASGI middleware only"):
        asked("wsgi", Handler(201), retry=Retry())
