"""A real client and a real server, both of the SDK, with the proxy between them, on stdio and on streamable HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from proxy_kit import awaiting

from onceward.cli import main

pytest.importorskip("mcp", reason="in make test-agents")

import anyio
from mcp import MCPError, StdioServerParameters, stdio_client
from mcp.client import Client
from mcp_types import CreateMessageResult, ElicitResult, TextContent

pytestmark = pytest.mark.slow

SHOP = Path(__file__).with_name("shop_server.py")
PATIENCE = 120


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """An empty folder with a store."""
    assert main(["store", "init", "--store", f"sqlite:///{tmp_path}/agent.db"]) == 0
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    """For whatever is started: where the shop writes, and where the packages are."""
    return {**os.environ, "SHOP_FOLDER": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}


def effects(folder: Path) -> Counter[str]:
    """What the shop did."""
    path = folder / "effects"
    return Counter(path.read_text().split() if path.exists() else [])


@asynccontextmanager
async def connected(folder: Path, *server: str, run: str = "order-42", mode: str = "auto") -> AsyncIterator[Client]:
    """A client of the shop, through the proxy."""

    async def sample(*_: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="surely"), model="none")

    async def elicit(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"yes": True})

    options = ["mcp", "--store", f"sqlite:///{folder}/agent.db", "--run", run, "--scope", "test:shop"]
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "onceward", *options, *server], env=environment(folder)
    )
    with (folder / "stderr").open("a") as errors:
        transport = stdio_client(parameters, errlog=errors)
        async with Client(transport, sampling_callback=sample, elicitation_callback=elicit, mode=mode) as client:  # type: ignore[arg-type]
            yield client


STDIO = ("--", sys.executable, str(SHOP))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@awaiting
async def test_everything_of_the_protocol_passes(folder: Path, mode: str) -> None:
    """
    Listing, progress, sampling, elicitation, errors of tools, stderr; in the newest protocol and in the one before.
    """
    told: list[float] = []

    async def seen(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    (folder / "go").touch()
    async with connected(folder, *STDIO, mode=mode) as client:
        names = {one.name for one in (await client.list_tools()).tools}
        slow = await client.call_tool("slow_charge", {"order": "42"}, progress_callback=seen)
        failed = [await client.call_tool("failing_charge", {"order": "42"}) for _ in range(2)]
        asked = await client.call_tool("asking_charge", {"order": "42"}) if mode == "legacy" else None

    assert "asking_charge" in names
    assert (slow.content[0].text, told) == ("charged 42", [0, 1, 2])  # type: ignore[union-attr]
    assert [one.is_error for one in failed] == [True, True]
    assert asked is None or asked.content[0].text == "surely accept"  # type: ignore[union-attr]
    assert effects(folder)["failing_charge"] == 2
    assert "the shop is open" in (folder / "stderr").read_text()


@awaiting
async def test_a_client_that_times_out_and_calls_again_is_given_the_first_answer(folder: Path) -> None:
    """
    The time-out cancels the request; the tool runs on behind the proxy; the retry reads what came of it: one effect.
    """
    async with connected(folder, *STDIO) as client:
        with pytest.raises(MCPError, match=r"[Tt]imed out"):
            await client.call_tool("slow_charge", {"order": "42"}, read_timeout_seconds=3)
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                found: list[Any] = []

                async def again() -> None:
                    found.append(await client.call_tool("slow_charge", {"order": "42"}))

                tasks.start_soon(again)
                (folder / "go").touch()

    assert found[0].content[0].text == "charged 42"
    assert effects(folder) == {"slow_charge": 1}


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Shop:
    """The shop on streamable HTTP, which can be killed."""

    def __init__(self, folder: Path, *, point: str, json: bool) -> None:
        self.port = _free_port()
        self.process = subprocess.Popen(
            [sys.executable, str(SHOP), "--http", str(self.port), *(["--json"] if json else [])],
            env=environment(folder) | {"SHOP_POINT": point}, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(self._is_up)

    async def _is_up(self) -> None:
        with anyio.fail_after(PATIENCE):
            while True:
                try:
                    await (await anyio.connect_tcp("127.0.0.1", self.port)).aclose()
                    return
                except OSError:
                    await anyio.sleep(0.05)

    @property
    def address(self) -> tuple[str, str]:
        return "--url", f"http://127.0.0.1:{self.port}/mcp"


@pytest.fixture
def shop(folder: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A shop on HTTP; the parameter says where it dies, and whether it answers in JSON."""
    point, json = getattr(request, "param", ("", False))
    made = Shop(folder, point=point, json=json)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize("shop", [("", False), ("", True)], indirect=True, ids=["events", "json"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@awaiting
async def test_a_server_on_http_is_served_to_a_client_on_stdio(folder: Path, shop: Shop, mode: str) -> None:
    """
    Sessions, JSON and event streams: the same answers as directly; a repeated key is one effect.
    """
    key = {"dev.onceward/key": "charge-42"}
    async with connected(folder, *shop.address, mode=mode) as client:
        names = {one.name for one in (await client.list_tools()).tools}
        first = await client.call_tool("charge", {"order": "42"}, meta=key)  # type: ignore[arg-type]
    async with connected(folder, *shop.address, mode=mode, run="another") as client:
        again = await client.call_tool("charge", {"order": "42"}, meta=key)  # type: ignore[arg-type]

    assert "charge" in names
    assert first.structured_content == again.structured_content == {"charged": "42"}
    assert ((first.meta or {}).get("dev.onceward/replayed"), (again.meta or {})["dev.onceward/replayed"]) == (
        None,
        True,
    )
    assert effects(folder) == {"charge": 1}


@pytest.mark.parametrize("shop", [("", False)], indirect=True)
@awaiting
async def test_sampling_and_progress_come_through_event_streams(folder: Path, shop: Shop) -> None:
    """
    What a server asks its client in the midst of a call reaches it, and the answer finds its way back.
    """
    told: list[float] = []

    async def seen(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    (folder / "go").touch()
    async with connected(folder, *shop.address, mode="legacy") as client:
        asked = await client.call_tool("asking_charge", {"order": "42"})
        await client.call_tool("slow_charge", {"order": "42"}, progress_callback=seen)

    assert asked.content[0].text == "surely accept"  # type: ignore[union-attr]
    assert told == [0, 1, 2]


@pytest.mark.parametrize("shop", [("server effect", False)], indirect=True)
@awaiting
async def test_a_server_on_http_that_dies_in_a_call_leaves_doubt(folder: Path, shop: Shop) -> None:
    """
    The connection breaks after the request was sent: not sent again; one effect, and words for the model. A server that
    cannot be reached has done nothing: that is an error, and no doubt.
    """
    async with connected(folder, *shop.address, mode="legacy") as client:
        first = await client.call_tool("charge", {"order": "42"})
        again = await client.call_tool("charge", {"order": "42"})
        with pytest.raises(MCPError, match="cannot be reached"):
            await client.call_tool("notify", {"order": "42"})

    assert first.is_error
    assert "may have happened" in first.content[0].text  # type: ignore[union-attr]
    assert "may already have happened" in again.content[0].text  # type: ignore[union-attr]
    assert effects(folder) == {"charge": 1}
