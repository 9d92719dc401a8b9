"""Duplicates in flight, profiles end to end, retention, and tenants that know nothing of each other."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgi_support import SCOPE, Answer, Asked, Stage, World

from onceward import Found, Operation, Reply, StoreUnavailable
from onceward.stores.memory import AsyncMemoryStore
from onceward.testing.clock import StillEnvironment


@pytest.mark.requirement("E04", "E14", "C14")
def test_those_who_wait_get_the_first_answer(world: World) -> None:
    """
    With in_flight="wait": ten duplicates, one run, and the same answer for the first, the waiting and the late.
    """
    world.handler = world.hold
    world.serve(in_flight="wait")
    asked = [world.posting() for _ in range(10)]
    world.held()
    world.let_go()
    wait(asked)
    answers = [one.result() for one in asked] + [world.post()]

    assert {(one.status_code, one.content, one.headers["location"]) for one in answers} == {
        (201, b'{"charge": 1}', "/charges/1")
    }
    assert sum("idempotency-replayed" not in one.headers for one in answers) == 1
    assert world.count == 1


def test_waiting_has_an_end(world: World) -> None:
    """
    Then it is 409, as if nobody had waited.
    """
    world.handler = world.hold
    world.serve(in_flight="wait", wait=0.05)
    first = world.posting()
    world.held()
    during = world.post()
    world.let_go()

    assert (during.status_code, during.json()["code"]) == (409, "in_flight")
    assert first.result().status_code == 201


@pytest.mark.requirement("C10", "C11", "C12", "C13")
def test_pacspace_accepts_while_it_runs_and_conflicts_on_another_body(world: World) -> None:
    """
    202 with a code and a wait; then the original answer; a changed amount is 409.
    """
    world.handler = world.hold
    world.serve(profile="pacspace")
    first = world.posting()
    world.held()
    during = world.post()
    world.let_go()
    fresh, after, other = first.result(), world.post(), world.post(body=b'{"amount":2}')

    assert (
        during.status_code,
        during.json()["code"],
        during.json()["retry"],
        during.headers["retry-after"],
    ) == (202, "IDEMPOTENCY_PENDING", "same-key", "1")
    assert (201, fresh.content) == (after.status_code, after.content)
    assert (other.status_code, other.json()["code"], world.count) == (409, "key_reused", 1)


@pytest.mark.parametrize(
    ("profile", "reuse", "unkeyed", "marker"),
    [
        ("default", 422, 201, "idempotency-replayed"),
        ("ietf", 422, 400, "idempotency-replayed"),
        ("stripe", 400, 201, "idempotent-replayed"),
        ("pacspace", 409, 201, "idempotency-replayed"),
        ("persql", 422, 201, "idempotency-replayed"),
    ],
)
def test_a_profile_does_what_it_says(profile: str, reuse: int, unkeyed: int, marker: str, world: World) -> None:
    """
    Each of the five, from end to end.
    """
    world.serve(profile=profile)
    world.post()

    assert world.post().headers[marker] == "true"
    refused = world.post(body=b"{}")
    document = refused.json()
    assert (reuse, "key_reused") == (refused.status_code, document.get("error", document)["code"])
    assert unkeyed == world.post(key=None).status_code


@pytest.mark.requirement("A18")
def test_persql_takes_200_characters_and_cuts_nothing(world: World) -> None:
    """
    201 are refused, and two keys that share 200 characters are not one.
    """
    world.serve(profile="persql")
    short, long = world.post(key="k" * 200), [world.post(key="k" * 200 + end) for end in "ab"]

    assert short.status_code == 201
    assert [(one.status_code, one.json()["code"]) for one in long] == [(400, "key_invalid")] * 2
    assert world.count == 1


@pytest.mark.requirement("D10")
def test_255_characters_are_taken_and_256_are_not(world: World) -> None:
    """
    Over the wire; quoted, it is the same key.
    """
    world.serve()

    assert [world.post(key=one).status_code for one in ("k" * 255, f'"{"k" * 255}"', "k" * 256)] == [201, 201, 400]
    assert world.count == 1


def test_a_route_may_say_otherwise(world: World) -> None:
    """
    One that needs a key, and one that is left alone.
    """
    from onceward.http import Route

    world.serve(routes=[Route("/charges", require_key=True), Route("/internal/{rest:path}", skip=True)])

    assert world.post("/charges", key=None).status_code == 400
    assert [world.post("/internal/a/b").status_code for _ in range(2)] == [201, 201]
    assert world.count == 2


class TestTime:
    """On a clock that moves when told to."""

    @pytest.fixture
    def clock(self) -> StillEnvironment:
        return StillEnvironment()

    @pytest.fixture
    def world(self, stage: Stage, clock: StillEnvironment) -> Iterator[World]:
        world = World(stage)
        world.gate = world.new_gate(AsyncMemoryStore(environment=clock), environment=clock)
        yield world
        world.close()

    @pytest.mark.requirement("D12")
    def test_an_answer_is_replayed_for_24_hours(self, world: World, clock: StillEnvironment) -> None:
        """
        Equal in status and body to the last second; then it is refused as expired, and does not run.
        """
        world.serve()
        first = world.post()
        clock.advance(timedelta(hours=24) - timedelta(seconds=1))
        late = world.post()
        clock.advance(timedelta(seconds=2))
        later = world.post()

        assert (first.status_code, first.content) == (late.status_code, late.content)
        assert (later.status_code, later.json()["code"], later.json()["retry"]) == (410, "expired", "never")
        assert world.count == 1

    def test_where_the_profile_says_so_it_runs_again(self, world: World, clock: StillEnvironment) -> None:
        """
        As Stripe does.
        """
        world.serve(profile="stripe")
        world.post()
        clock.advance(timedelta(hours=25))

        assert world.post().content == b'{"charge": 2}'


@pytest.mark.requirement("A28")
def test_tenants_know_nothing_of_each_other(world: World) -> None:
    """
    With the same key a second tenant is answered as if it were the first: statuses, headers and bodies are those of a
    tenant that nobody preceded, fresh, in flight, replayed and refused.
    """

    def asked_by(tenant: str) -> list[Any]:
        headers = [("authorization", tenant)]
        answers = [
            world.post(key="shared", headers=headers),
            world.post(key="shared", headers=headers),
            world.post(key="shared", body=b"[]", headers=headers),
            world.post("/fail", key="doubtful", headers=headers),
            world.post("/fail", key="doubtful", headers=headers),
            world.post(key="bad key", headers=headers),
        ]
        dropped = {"date", "server"}
        return [
            (one.status_code, [pair for pair in one.headers.items() if pair[0] not in dropped], one.content)
            for one in answers
        ]

    async def handler(asked: Asked) -> Answer:
        world.count += 1
        return Answer(500 if asked.path == "/fail" else 201, body=b'{"ok":true}')

    world.handler = handler
    world.serve(scope=lambda incoming: f"live:{incoming.header('authorization')}")
    first = asked_by("a")
    second = asked_by("b")

    assert first == second
    assert [status for status, _, _ in first] == [201, 201, 422, 500, 409, 400]
    assert world.count == 4
    # Names of scopes are nobody's business, not even their own tenant's.
    assert b"live:" not in b"".join(body for _, _, body in first)


class TestTheScope:
    """Who is calling."""

    def test_a_function_may_be_async(self, world: World) -> None:
        """
        It asks a database, say.
        """

        async def tenant(incoming: Any) -> str:
            await asyncio.sleep(0)
            return f"live:{incoming.header('authorization')}"

        world.serve(scope=tenant)
        world.post(headers=[("authorization", "bob")])

        assert [one.key for one in world.records("live:bob")] == ["live:k"]

    @pytest.mark.parametrize("said", [None, "", 7, b"live:acme"])
    def test_who_does_not_say_runs_nothing(self, said: Any, world: World, caplog: pytest.LogCaptureFixture) -> None:
        """
        401 for the client, and a line in the log that says how to set it.
        """
        world.serve(scope=lambda _: said)
        answer = world.post()

        assert (answer.status_code, answer.json()["code"], answer.json()["retry"]) == (401, "scope_missing", "never")
        assert world.count == 0
        assert any(
            "did not say who is calling" in line.getMessage() for line in caplog.records if line.name == "onceward.http"
        )
        assert "scope function" not in answer.text

    def test_a_scope_that_is_none_is_refused_too(self, world: World) -> None:
        """
        Blanks, or more than 255 characters.
        """
        world.serve(scope=lambda _: "live: acme")

        assert (world.post().status_code, world.post().json()["code"]) == (500, "configuration")
        assert world.count == 0

    def test_a_function_that_raises_is_a_fault_on_this_side(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Nothing runs; what was raised is in the log, and not in the answer.
        """

        def broken(_: Any) -> str:
            raise KeyError("tenant")

        world.serve(scope=broken)

        answer = world.post()

        assert (answer.status_code, answer.json()["code"], world.count) == (500, "scope_missing", 0)
        assert any("raised KeyError ('tenant')" in line.getMessage() for line in caplog.records)
        assert "tenant" not in answer.text

    def test_the_body_is_not_even_read_for_somebody_unknown(self, world: World) -> None:
        """
        The answer comes while the client still has its body in hand.
        """
        world.serve(scope=lambda _: None)
        head = b"POST /charges HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: k\r\nContent-Length: 1000000\r\n\r\n"
        connection = world.raw(head)

        assert connection.recv(100).startswith(b"HTTP/1.1 401")
        connection.close()


class Away(AsyncMemoryStore):
    """A store that can be taken away."""

    away = False

    def put(self, write: Any, expect: Any) -> Any:
        if self.away:

            async def fail() -> Any:
                raise StoreUnavailable("the store at db-7.internal did not answer")

            return fail()
        return super().put(write, expect)


def test_without_the_store_nothing_runs(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """
    503 with Retry-After; which host it was goes into the log.
    """
    store = Away()
    world = World(stage, store)
    world.serve()
    store.away = True
    answer = world.post()
    store.away = False

    assert (
        answer.status_code,
        answer.json()["code"],
        answer.headers["retry-after"],
    ) == (503, "store_unavailable", "1")
    assert "db-7" not in answer.text
    assert any("db-7" in line.getMessage() for line in caplog.records)
    assert world.count == 0
    assert world.post().status_code == 201
    world.close()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


CROWD = 1_000


@pytest.mark.slow
@pytest.mark.requirement("C14", "E04")
def test_a_thousand_duplicates_are_one_execution(world: World) -> None:
    """
    All at once, on a connection each: one runs, all are answered, and memory stays where it was.
    """
    world.handler = world.hold
    world.serve(in_flight="wait")
    command = [sys.executable, str(Path(__file__).with_name("crowd.py")), str(world.stage.port)]

    def crowd(size: int) -> Any:
        with subprocess.Popen([*command, str(size)], stdout=subprocess.PIPE) as process:
            world.held()
            time.sleep(0.5)  # For the others to arrive. If some do not, they replay; nothing below depends on it.
            world.let_go()
            said, _ = process.communicate(timeout=60)
        return json.loads(said)

    before = resident()
    first = crowd(CROWD)
    between = resident()
    again = crowd(CROWD // 2)
    after = resident()
    print(f"resident: {before >> 20} MiB before, {between >> 20} MiB after 1,000 duplicates, {after >> 20} after 1,500")

    assert world.count == 1
    assert first == {"statuses": {"201": CROWD}, "bodies": ['{"charge": 1}'], "replayed": CROWD - 1}
    assert {"statuses": {"201": CROWD // 2}, "bodies": first["bodies"], "replayed": CROWD // 2} == again
    # What the first thousand took is given back and taken again: those who come later do not take more.
    assert after - between < 10 * 2**20


def test_two_clicks_are_one_effect(world: World) -> None:
    """
    Two requests within a few milliseconds, again and again.
    """
    world.serve(in_flight="wait")
    started = time.monotonic()
    for number in range(10):
        pair = [world.posting(key=f"k{number}") for _ in range(2)]
        wait(pair)
        assert {one.result().status_code for one in pair} == {201}
    assert time.monotonic() > started

    assert world.count == 10


def test_the_body_says_that_it_is_a_replay_where_the_profile_wants_it(world: World) -> None:
    """
    Agents see no headers.
    """
    world.serve(marker="member")
    member = [world.post(key="a").json(), world.post(key="a").json()]
    world.serve(marker="envelope")
    envelope = [world.post(key="b").json(), world.post(key="b").json()]

    assert member == [{"charge": 1}, {"charge": 1, "idempotencyReplayed": True}]
    assert [one["replayed"] for one in envelope] == [False, True]
    assert [one["body"] for one in envelope] == [{"charge": 2}] * 2
    assert envelope[0].keys() == envelope[1].keys()
    assert envelope[0]["firstAt"] == envelope[1]["firstAt"]


def test_an_envelope_is_around_a_streamed_answer_too(world: World) -> None:
    """
    JSON that comes in pieces is put into it when it is whole; the first answer has the shape of its replays.
    """

    async def handler(_: Asked) -> Answer:
        async def pieces() -> Any:
            yield b'{"a":'
            yield b"1}"

        return Answer(body=pieces())

    world.handler = handler
    world.serve(marker="envelope")
    first, second = world.post().json(), world.post().json()

    assert {"a": 1} == first["body"] == second["body"]
    assert {**second, "replayed": False} == first


def test_a_record_that_was_decided_by_hand_is_answered(world: World) -> None:
    """
    In doubt, then reconciled with plain JSON: everybody gets that.
    """

    async def handler(_: Asked) -> Answer:
        raise ValueError

    world.handler = handler
    world.serve()
    world.post()
    world.stage.run(world.gate.scoped(SCOPE).reconcile("k", Found({"charge": 9})))
    answer = world.post()

    assert (
        answer.status_code,
        json.loads(answer.content),
        answer.headers["idempotency-replayed"],
    ) == (200, {"charge": 9}, "true")


def test_a_probe_is_asked_before_anything_runs_again(world: World) -> None:
    """
    With guarantee="probed": the handler failed, the probe finds the effect, and everybody gets what it says.
    """
    asked: list[str] = []

    async def handler(_: Asked) -> Answer:
        world.count += 1
        return Answer(500)

    async def probe(operation: Operation) -> Found:
        asked.append(operation.key)
        return Found(Reply(201, (("content-type", "application/json"),), b'{"charge": 1}'))

    world.handler = handler
    world.serve(guarantee="probed", probe=probe)
    answers = [world.post() for _ in range(3)]

    assert [one.status_code for one in answers] == [500, 201, 201]
    assert {one.content for one in answers[1:]} == {b'{"charge": 1}'}
    assert (asked, world.count) == (["k"], 1)
    assert [one.headers["idempotency-replayed"] for one in answers[1:]] == ["true", "true"]


@pytest.mark.parametrize("back", [True, False])
def test_a_store_that_is_away_when_the_handler_has_run(back: bool, stage: Stage) -> None:
    """
    If it is back within the lease, nobody notices. If not, the client is told that it ran and could not be recorded;
    it does not run again.
    """
    store = Away()
    world = World(stage, store)

    async def handler(asked: Asked) -> Answer:
        store.away = True
        if back:
            asyncio.get_running_loop().call_later(0.1, setattr, store, "away", False)
        return await world.charge(asked)

    world.handler = handler
    world.serve(lease=2 if back else 0.3)
    first = world.post()
    store.away = False
    time.sleep(0 if back else 0.4)
    second = world.post()

    if back:
        assert (first.status_code, second.status_code) == (201, 201)
    else:
        assert (first.status_code, first.json()["code"], first.json()["retry"]) == (500, "unrecorded", "never")
        assert (second.status_code, second.json()["code"]) == (409, "in_doubt")
    assert world.count == 1
    world.close()


def test_doubt_is_sticky(world: World) -> None:
    """
    An attempt that may have charged, then one that is rejected: the rejection speaks for itself only.
    """
    statuses = iter([500, 402, 402])

    async def handler(_: Asked) -> Answer:
        return Answer(next(statuses))

    world.handler = handler
    world.serve(guarantee="keyed")
    answers = [world.post().status_code for _ in range(2)]

    assert (answers, world.state()) == ([500, 402], "in_doubt")
