"""An awaiting gate needs asyncio: under trio it says so, at once, and nothing is claimed."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from onceward import AsyncGate, ConfigurationError, Gate
from servers import postgres, redis

KINDS = ("memory", "sqlite", "postgres", "redis")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    servers = {"postgres": postgres, "redis": redis}
    if request.param not in servers:
        return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/gate.db"
    server = servers[request.param]
    if not server.wanted():
        pytest.skip("STORES leaves this server out")
    return str(server.running().url())


async def _body() -> str:
    raise AssertionError("this does not run")


@pytest.mark.fault("trio-is-not-noticed")
def test_every_way_in_is_refused_with_what_to_do(url: str) -> None:
    """
    Not a bare RuntimeError, and no waiting: a server that is never answered would be waited for without an end.
    """
    gate = AsyncGate(url, scope="trio")

    @gate.once(key="k:{order}")
    async def declared(order: str) -> None:
        await _body()

    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "run": lambda: gate.run("k", _body),
        "call": lambda: gate.call("k", _body),
        "once": lambda: declared("o-1"),
        "hold": lambda: gate.hold("k"),
        "step": lambda: gate.plan("p").step("s", _body),
        "sequence": lambda: gate.sequence("s").run(1, _body),
        "window": lambda: gate.window("w").run({}, _body),
        "get": lambda: gate.records.get("k"),
        "list": lambda: gate.records.list(),
        "purge": lambda: gate.purge(),
    }
    heard: dict[str, BaseException | None] = {}

    async def main() -> None:
        for name, way in ways.items():
            heard[name] = None
            with trio.move_on_after(20):
                try:
                    await way()
                except Exception as error:
                    heard[name] = error

    trio.run(main)

    assert {type(error) for error in heard.values()} == {ConfigurationError}
    assert all("trio" in str(error) for error in heard.values())


def test_a_transaction_is_not_begun(tmp_path: Path) -> None:
    """
    `async with gate.atomic(...)` is refused before it touches the connection.
    """
    path = tmp_path / "gate.db"
    gate = AsyncGate(f"sqlite:///{path}", scope="trio")
    mine = sqlite3.connect(path)

    async def main() -> None:
        async with gate.atomic(mine, "k"):
            raise AssertionError("this does not run")

    with pytest.raises(ConfigurationError, match="trio"):
        trio.run(main)
    assert not mine.in_transaction
    mine.close()


def test_a_blocking_gate_in_a_thread_is_the_way(tmp_path: Path) -> None:
    """
    As the error says.
    """
    with Gate(f"sqlite:///{tmp_path}/gate.db", scope="trio") as gate:

        async def main() -> str:
            return await trio.to_thread.run_sync(lambda: gate.run("k", lambda: "done"))

        assert trio.run(main) == "done"
