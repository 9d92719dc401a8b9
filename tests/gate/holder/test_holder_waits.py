"""What callers are told about waiting for a holder, in the library and over HTTP: honest, and short where it can be."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
from holder_support import Desk, Elsewhere, Gone, held_elsewhere

from onceward import NOT_FOUND, AsyncGate, Gate, InFlight
from onceward._core.record import Record, Wait, retry_after_seconds_of
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware
from onceward.runtime.environment import REAL

SECOND = 1_000_000
LEASE = 60 * SECOND
FOUND: Record = Record(*[None] * 23)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "alive", "told"),
    [
        (59, True, 1),  # Seen alive: it is probably quick.
        (20, True, 1),
        (0.4, True, 0.4),
        (59, False, 59),  # Dead, and its lease is waited for: that is what it takes.
        (20, False, 20),
        (59.9, None, 1),  # Not seen, and it has just claimed or renewed.
        (55, None, 5),  # As long again as nothing was heard of it.
        (40, None, 20),
        (29, None, 29),  # It should have renewed by now: what is left of its lease.
        (0.4, None, 0.4),
        (90, None, 1),  # Somebody with a longer lease than ours.
    ],
)
@pytest.mark.fault("every-wait-is-a-second")
def test_a_wait_is_short_for_who_lives_and_true_for_who_does_not(left: float, alive: bool | None, told: float) -> None:
    """
    A second for a holder that is seen alive, the lease for a dead one; in between, as long as it has been silent.
    """
    wait = Wait(FOUND, int(left * SECOND), alive)

    assert told == pytest.approx(retry_after_seconds_of(wait, LEASE))


def test_a_dead_holder_that_cannot_be_seen_is_asked_for_seldom() -> None:
    """
    Whoever follows the advice asks eight times in a minute, and has waited no longer than the lease when it ends.
    """
    asked, now = 0, 0.0
    while now < 60:
        now += retry_after_seconds_of(Wait(FOUND, int((60 - now) * SECOND)), LEASE)
        asked += 1

    assert asked <= 8
    assert now == pytest.approx(60, abs=0.001)


@pytest.mark.parametrize("who", [REAL, Elsewhere()], ids=["alive", "elsewhere"])
@pytest.mark.parametrize("in_flight", ["refuse", "wait", "accept"])
def test_refusals_and_pending_answers_tell_the_same_wait(desk: Desk, who: Any, in_flight: Any) -> None:
    """
    Just claimed, by somebody who lives or cannot be seen: a second at most, however the caller wants to be told.
    """
    desk.left(who=who)
    try:
        told = desk.do(desk.gate(in_flight=in_flight).call("k", desk.body())).retry_after_seconds
    except InFlight as error:
        told = error.retry_after_seconds

    assert 0 < told <= 1
    assert desk.runs == []


@pytest.mark.fault("every-wait-is-a-second")
def test_in_atomic_mode_the_wait_for_a_dead_probed_operation_is_its_lease(tmp_path: Path) -> None:
    """
    The same rule: its holder is dead, a probe would be early, so the lease is what is waited for.
    """
    url = f"sqlite:///{tmp_path}/gate.db"
    with Gate(url, scope="test:a", lease=3_600, environment=Gone()) as dead:
        held_elsewhere(dead, "k", guarantee="probed", probe=lambda operation: None)
    connection = sqlite3.connect(tmp_path / "gate.db")
    with Gate(url, scope="test:a", in_flight="refuse") as gate, pytest.raises(InFlight) as refused:
        gate.atomic(connection, "k", lambda: 1)
    connection.close()

    assert 3_000 < (refused.value.retry_after_seconds or 0) <= 3_600


# --- over HTTP ---

KEY = {"Idempotency-Key": '"k"'}


def asgi(url: str, guarantee: str, who: Any) -> httpx.Response:
    """What a retry is answered whose first request is still in the hands of `who`: an ASGI application."""
    heard: list[httpx.Response] = []

    async def asked(gate: AsyncGate, handler: Any) -> httpx.Response:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await handler()
            await send({"type": "http.response.start", "status": 201, "headers": []})
            await send({"type": "http.response.body", "body": b"done"})

        wrapped = IdempotencyMiddleware(app, gate=gate, scope=lambda _: "live:acme", **OPTIONS[guarantee])
        transport = httpx.ASGITransport(app=wrapped)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client:
            return await client.post("/charges", json={"amount": 1}, headers=KEY)

    async def nothing() -> None:
        return

    async def serve() -> None:
        first = AsyncGate(url, scope="live:acme", lease=3_600, environment=who)
        second = AsyncGate(url, scope="live:acme", lease=3_600)

        async def retried() -> None:
            heard.append(await asked(second, nothing))

        await asked(first, retried)
        await first.close()
        await second.close()

    asyncio.run(serve())
    return heard[0]


def wsgi(url: str, guarantee: str, who: Any) -> httpx.Response:
    """The same for a WSGI application."""
    heard: list[httpx.Response] = []

    def asked(gate: Gate, handler: Any) -> httpx.Response:
        def app(environ: Any, start_response: Any) -> list[bytes]:
            handler()
            start_response("201 Created", [])
            return [b"done"]

        wrapped = WsgiMiddleware(app, gate=gate, scope=lambda _: "live:acme", **OPTIONS[guarantee])
        with httpx.Client(transport=httpx.WSGITransport(app=wrapped), base_url="http://shop.example") as client:
            return client.post("/charges", json={"amount": 1}, headers=KEY)

    with (
        Gate(url, scope="live:acme", lease=3_600, environment=who) as first,
        Gate(url, scope="live:acme", lease=3_600) as second,
    ):
        asked(first, lambda: heard.append(asked(second, lambda: None)))
    return heard[0]


OPTIONS: dict[str, dict[str, Any]] = {
    "blind": {},
    "keyed": {"guarantee": "keyed"},
    "repeatable": {"guarantee": "repeatable"},
    "probed": {"guarantee": "probed", "probe": lambda operation: NOT_FOUND},
}


@pytest.mark.parametrize("serve", [asgi, wsgi], ids=["asgi", "wsgi"])
@pytest.mark.parametrize("guarantee", ["keyed", "repeatable"])
@pytest.mark.fault("the-dead-are-waited-for")
def test_a_restarted_service_runs_what_a_dead_one_held(serve: Any, guarantee: str, tmp_path: Path) -> None:
    """
    The client's retry is served at once, where running again is safe.
    """
    answer = serve(f"sqlite:///{tmp_path}/http.db", guarantee, Gone())

    assert (answer.status_code, answer.content) == (201, b"done")


@pytest.mark.parametrize("serve", [asgi, wsgi], ids=["asgi", "wsgi"])
@pytest.mark.parametrize(
    ("guarantee", "who", "code", "least", "most"),
    [
        ("blind", Gone(), "in_doubt", None, None),
        ("probed", Gone(), "in_flight", 3_000, 3_600),
        ("blind", REAL, "in_flight", 1, 1),
        ("blind", Elsewhere(), "in_flight", 1, 1),
    ],
    ids=["dead-blind", "dead-probed", "alive", "elsewhere"],
)
@pytest.mark.fault("every-wait-is-a-second")
def test_retry_after_says_how_long_it_takes(
    serve: Any, guarantee: str, who: Any, code: str, least: int | None, most: int | None, tmp_path: Path
) -> None:
    """
    409; with Retry-After a second while the holder may be at work, and its lease if it is dead and waited for.
    """
    answer = serve(f"sqlite:///{tmp_path}/http.db", guarantee, who)
    told = answer.headers.get("retry-after")

    assert (409, code) == (answer.status_code, answer.json()["code"])
    assert (told is None) == (least is None)
    assert told is None or (least or 0) <= int(told) <= (most or 0)
