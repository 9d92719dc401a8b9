"""The core promises on every store, over a real socket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from uuid import uuid4

import pytest
from asgi_support import Stage, World

from servers import postgres, redis


def wanted() -> list[str]:
    everything = ("memory", "sqlite", "postgres", "redis")
    said = os.environ.get("STORES")
    return [one for one in everything if said is None or one in said.replace(" ", "").split(",")]


@pytest.fixture(params=wanted())
def world(stage: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    match request.param:
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'shop.db'}"
        case "postgres":
            url = postgres.running().url()
        case "redis":
            url = redis.running().url()
        case _:
            url = "memory://"
    world = World(stage, url)
    yield world
    world.close()


@pytest.mark.requirement("A05", "A06", "E04", "E15")
def test_once_and_replayed(world: World) -> None:
    """
    Eight at the same time and one later: one runs, all get its answer.
    """
    key = uuid4().hex
    world.handler = world.hold
    world.serve(in_flight="wait")
    asked = [world.posting(key=key) for _ in range(8)]
    world.held()
    world.let_go()
    wait(asked)
    answers = [one.result() for one in asked] + [world.post(key=key)]

    assert {(one.status_code, one.content, one.headers["location"]) for one in answers} == {
        (201, b'{"charge": 1}', "/charges/1")
    }
    assert sum("idempotency-replayed" in one.headers for one in answers) == 8
    assert (world.count, world.state(key)) == (1, "settled")


def test_reuse_and_doubt(world: World) -> None:
    """
    Another body is refused; a failure that explains nothing is in doubt.
    """
    reused, doubtful = uuid4().hex, uuid4().hex
    world.serve()
    world.post(key=reused)
    again = world.post(key=reused, body=b"[]")

    async def fails(_: object) -> object:
        raise ValueError

    world.handler = fails  # type: ignore[assignment]
    first, second = world.post(key=doubtful), world.post(key=doubtful)

    assert (again.status_code, again.json()["code"]) == (422, "key_reused")
    assert (first.status_code, second.status_code, second.json()["code"]) == (500, 409, "in_doubt")


def test_a_path_that_no_text_column_takes_is_no_obstacle(world: World) -> None:
    """
    PostgreSQL refuses NUL in text; the name of the operation has none.
    """
    world.serve()
    key = uuid4().hex

    assert [world.post("/a%00b", key=key).status_code for _ in range(2)] == [201, 201]
    assert world.count == 1
