"""The same promises in every framework, over a real socket: from one text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import wait
from typing import Any

import pytest
from asgi_support import FRAMEWORKS, SCOPE, Answer, Asked, Stage, World

MARKERS = ("idempotency-replayed", "plan-replayed", "idempotent-replayed")


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def marker(answer: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in answer.headers.items() if name in MARKERS]


def seen(answer: Any) -> tuple[int, bytes, str | None, str | None]:
    """What a client can tell answers apart by, the marker left out."""
    return answer.status_code, answer.content, answer.headers.get("content-type"), answer.headers.get("location")


@pytest.mark.requirement("A05", "A06", "C10", "C12", "D09", "E15")
def test_a_keyed_request_runs_once_and_its_answer_is_replayed(framework: str, world: World) -> None:
    """
    Status, body bytes and headers are equal; the marker is on the second answer only, and absent on the first.
    """
    world.serve(framework)
    first, second, third = world.post(), world.post(), world.post()

    assert (first.status_code, first.content) == (201, b'{"charge": 1}')
    assert seen(first) == seen(second) == seen(third)
    assert marker(first) == []
    assert [("idempotency-replayed", "true")] == marker(second) == marker(third)
    assert world.count == 1
    assert world.state() == "settled"


def test_what_carries_no_key_is_left_alone(framework: str, world: World) -> None:
    """
    And so is a GET that carries one.
    """
    world.serve(framework)
    answers = [world.post(key=None), world.post(key=None), world.client.get("/x", headers={"idempotency-key": "k"})]

    assert [one.status_code for one in answers] == [201, 201, 201]
    assert world.count == 3
    assert world.records() == []


@pytest.mark.requirement("C21")
def test_another_request_under_the_same_key_is_refused(framework: str, world: World) -> None:
    """
    Another amount, another path; not another spelling of the same.
    """
    world.serve(framework)
    world.post(body=b'{"amount":1,"currency":"eur"}')

    again = world.post(body=b'{ "currency": "eur", "amount": 1.0 }')
    others = [world.post(body=b'{"amount":1000}'), world.post("/refunds", body=b'{"amount":1,"currency":"eur"}')]

    assert again.status_code == 201
    assert [(one.status_code, one.json()["code"], one.json()["retry"]) for one in others] == [
        (422, "key_reused", "new-key")
    ] * 2
    assert world.count == 1


def test_the_handler_is_handed_its_operation(framework: str, world: World) -> None:
    """
    In `request.state`; without a key there is none.
    """
    found: list[Any] = []

    async def handler(asked: Asked) -> Answer:
        found.append(asked.operation and (asked.operation.scope, asked.operation.key, asked.operation.attempt))
        return Answer()

    world.handler = handler
    world.serve(framework)
    world.post()
    world.post(key=None)

    assert found == [(SCOPE, "k", 1), None]


def test_the_handler_gets_the_body_it_was_sent(framework: str, world: World) -> None:
    """
    Also one of several megabytes, which waited in a file.
    """
    body = json.dumps({"x": "y" * 3_000_000}).encode()
    got: list[bytes] = []

    async def handler(asked: Asked) -> Answer:
        got.append(asked.body)
        return Answer()

    world.handler = handler
    world.serve(framework)

    assert [world.post(body=body).status_code for _ in range(2)] == [201, 201]
    assert [body] == got


@pytest.mark.requirement("A10", "E04", "C14", "E14")
def test_of_simultaneous_requests_one_runs(framework: str, world: World) -> None:
    """
    While it runs the others are told so (409, Retry-After, same key); afterwards everybody gets its answer.
    """
    world.handler = world.hold
    world.serve(framework)
    first = world.posting()
    world.held()
    during = [world.post() for _ in range(3)]
    world.let_go()
    answer = first.result()
    after = [world.posting() for _ in range(5)]
    wait(after)

    assert [
        (one.status_code, one.json()["code"], one.json()["retry"], one.headers["retry-after"]) for one in during
    ] == [(409, "in_flight", "same-key", "1")] * 3
    assert {seen(answer)} == {seen(one.result()) for one in after}
    assert world.count == 1


async def pieces() -> AsyncIterator[bytes]:
    for number in range(5):
        yield f"data: {number}\n\n".encode()
        await asyncio.sleep(0)


def test_a_stream_is_recorded_and_replayed(framework: str, world: World) -> None:
    """
    The retry gets all of it at once, byte for byte.
    """

    async def handler(_: Asked) -> Answer:
        world.count += 1
        return Answer(200, (("content-type", "text/event-stream"),), pieces())

    world.handler = handler
    world.serve(framework)
    first, second = world.post(), world.post()

    assert b"".join(f"data: {number}\n\n".encode() for number in range(5)) == first.content == second.content
    assert "text/event-stream" in second.headers["content-type"]
    assert marker(second) == [("idempotency-replayed", "true")]
    assert world.count == 1


@pytest.mark.parametrize(("status", "body"), [(204, b""), (304, b""), (200, b""), (302, b""), (200, b"\x00\xff")])
def test_any_success_is_kept(framework: str, world: World, status: int, body: bytes) -> None:
    """
    Also one without a body, and one that sets a cookie, which is not replayed.
    """

    async def handler(_: Asked) -> Answer:
        world.count += 1
        return Answer(status, (("content-type", "text/plain"), ("set-cookie", "session=s3cret")), body)

    world.handler = handler
    world.serve(framework)
    first, second = world.post(), world.post()

    assert (status, body) == (first.status_code, first.content) == (second.status_code, second.content)
    assert "session=s3cret" in first.headers["set-cookie"]
    assert "set-cookie" not in second.headers
    assert world.count == 1


class TestFailures:
    """What a handler's failure means."""

    async def failing(self, asked: Asked) -> Answer:
        self.world.count += 1
        if asked.path == "/raise":
            raise ValueError("the provider said something odd")
        return Answer(int(asked.path[1:]), body=b'{"attempt":%d}' % self.world.count)

    @pytest.fixture(autouse=True)
    def _failing(self, world: World) -> None:
        self.world = world
        world.handler = self.failing

    @pytest.mark.parametrize("path", ["/raise", "/500", "/503"])
    def test_blind_is_in_doubt_and_does_not_run_again(self, framework: str, path: str) -> None:
        """
        The first caller gets the framework's own 500; every other is told that nobody knows.
        """
        self.world.serve(framework)
        first, second = self.world.post(path), self.world.post(path)

        assert first.status_code >= 500
        assert (second.status_code, second.json()["code"], second.json()["retry"]) == (409, "in_doubt", "never")
        assert (self.world.state(), self.world.count) == ("in_doubt", 1)

    @pytest.mark.parametrize("path", ["/raise", "/500"])
    def test_atomic_is_released_and_runs_again(self, framework: str, path: str) -> None:
        """
        The handler's transaction has rolled back with it.
        """
        self.world.serve(framework, guarantee="atomic")
        answers = [self.world.post(path) for _ in range(3)]

        assert [one.status_code for one in answers] == [500] * 3
        assert (self.world.state(), self.world.count) == ("released", 3)

    @pytest.mark.parametrize("guarantee", ["repeatable", "keyed"])
    def test_what_may_be_repeated_runs_again(self, framework: str, guarantee: str) -> None:
        """
        As it is declared for the route.
        """
        self.world.serve(framework, guarantee=guarantee)
        answers = [self.world.post("/500") for _ in range(2)]

        assert ([one.status_code for one in answers], self.world.count) == ([500, 500], 2)
        assert [pair for one in answers for pair in marker(one)] == []

    @pytest.mark.parametrize("path", ["/400", "/402", "/404"])
    def test_a_4xx_releases_the_key(self, framework: str, path: str) -> None:
        """
        It says that nothing happened, so it may be tried again; the handler's own answer is given.
        """
        self.world.serve(framework)
        answers = [self.world.post(path) for _ in range(2)]

        assert [one.content for one in answers] == [b'{"attempt":1}', b'{"attempt":2}']
        assert self.world.state() == "released"

    @pytest.mark.requirement("D13", "E08")
    @pytest.mark.parametrize("path", ["/500", "/402", "/raise"])
    def test_stripe_remembers_failures(self, framework: str, path: str) -> None:
        """
        One answer for everybody, also if the handler raised; the handler does not run again.
        """
        self.world.serve(framework, profile="stripe")
        first, second = self.world.post(path), self.world.post(path)

        assert (500 if path == "/raise" else int(path[1:])) == first.status_code
        assert seen(first) == seen(second)
        assert marker(second) == [("idempotent-replayed", "true")]
        assert (marker(first), self.world.count) == ([], 1)


@pytest.mark.requirement("A21", "A25", "A28")
def test_steps_of_a_plan(framework: str, world: World) -> None:
    """
    A hit has a marker of its own; another step runs; another bearer's plan of the same name is another plan.
    """
    world.serve(framework, scope=lambda incoming: f"live:{incoming.header('authorization')}")

    def step(name: str, bearer: str = "a") -> Any:
        headers = [("plan-key", "p-1"), ("plan-step", name), ("authorization", bearer)]
        return world.post(key=None, headers=headers)

    first, hit, other, thief = step("charge"), step("charge"), step("mail"), step("charge", "b")

    assert [one.content for one in (first, hit, other, thief)] == [
        b'{"charge": 1}',
        b'{"charge": 1}',
        b'{"charge": 2}',
        b'{"charge": 3}',
    ]
    assert [marker(one) for one in (first, hit, other, thief)] == [[], [("plan-replayed", "true")], [], []]


@pytest.mark.requirement("A32")
def test_half_a_step_is_refused(framework: str, world: World) -> None:
    """
    And so is a key beside a step.
    """
    world.serve(framework)
    half = world.post(key=None, headers=[("plan-key", "p")])
    both = world.post(key="k", headers=[("plan-key", "p"), ("plan-step", "s")])

    assert [(one.status_code, one.json()["code"]) for one in (half, both)] == [
        (400, "plan_incomplete"),
        (400, "ambiguous_identity"),
    ]
    assert world.count == 0


def test_a_client_reads_what_is_promised(framework: str, world: World) -> None:
    """
    The contract, and a page for every refusal that links to it.
    """
    world.serve(framework, profile="ietf")
    refusal = world.post(key=None)
    contract = world.client.get("/.well-known/idempotency").json()
    page = world.client.get(refusal.json()["type"])

    assert (
        refusal.status_code,
        refusal.json()["code"],
        refusal.headers["content-type"],
    ) == (400, "key_missing", "application/problem+json")
    assert (contract["name"], contract["requireKey"]) == ("ietf", True)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert world.count == 0


def test_the_other_parser_of_uvicorn_does_as_well() -> None:
    """
    h11, in pure Python; everything else here goes through httptools.
    """
    stage = Stage(http="h11")
    world = World(stage)
    try:
        world.serve("starlette")
        first, second = world.post(), world.post()
        assert seen(first) == seen(second)
        assert (marker(first), marker(second)) == ([], [("idempotency-replayed", "true")])
    finally:
        world.close()
        stage.stop()


def test_every_framework_is_asked(world: World) -> None:
    """
    The suite above runs the handler in each of them: what they say to a method that they do not know shows it.
    """
    said = {}
    for framework in FRAMEWORKS:
        world.serve(framework)
        answer = world.client.request("TRACE", "/x")
        said[framework] = (answer.status_code, answer.headers.get("content-type", ""))

    assert said == {
        "plain": (201, "application/json"),
        "starlette": (405, "text/plain; charset=utf-8"),
        "fastapi": (405, "application/json"),
        "litestar": (405, "application/json"),
    }
    assert {"plain", "starlette", "fastapi", "litestar"} == set(FRAMEWORKS)
