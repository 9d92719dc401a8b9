"""
Servers that nobody has touched, from npm and PyPI, behind the proxy; and one side is killed. With `CRASHES=all` only.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from proxy_kit import awaiting, call, line
from real_servers import npm_server, sqlite_server

from onceward.cli import main

pytest.importorskip("mcp", reason="in make test-agents")

from mcp import MCPError, StdioServerParameters, stdio_client
from mcp.client import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("CRASHES") != "all", reason="servers from npm and PyPI: CRASHES=all"),
]
HERE = Path(__file__).resolve().parent
PATIENCE = 120


class Server(NamedTuple):
    """A server, a call of it that has another effect each time, and how often that took place."""

    command: list[str]
    tool: str
    arguments: dict[str, Any]
    effects: Callable[[], int]


def _filesystem(folder: Path) -> Server:
    notes = folder / "notes.txt"
    notes.write_text("END\n")
    edit = {"path": str(notes), "edits": [{"oldText": "END", "newText": "a line\nEND"}]}
    command = [*npm_server("mcp-server-filesystem"), str(folder)]
    return Server(command, "edit_file", edit, lambda: notes.read_text().count("a line"))


def _sqlite(folder: Path) -> Server:
    file = folder / "shop.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY, cents INTEGER)")
    database.commit()
    database.close()

    def rows() -> int:
        opened = sqlite3.connect(file)
        try:
            return int(opened.execute("SELECT count(*) FROM charges").fetchone()[0])
        finally:
            opened.close()

    insert = {"query": "INSERT INTO charges (cents) VALUES (500)"}
    return Server([*sqlite_server(), "--db-path", str(file)], "write_query", insert, rows)


SERVERS = {"filesystem": _filesystem, "sqlite": _sqlite}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Server:
    """A server with an effect that can be counted from outside, and a store."""
    assert main(["store", "init", "--store", f"sqlite:///{tmp_path}/agent.db"]) == 0
    return SERVERS[request.param](tmp_path)


def proxy(folder: Path, command: list[str], *options: str) -> list[str]:
    """The command of a proxy before a server."""
    given = ["--store", f"sqlite:///{folder}/agent.db", "--run", "order-42", *options, "--", *command]
    return [sys.executable, str(HERE / "proxy_process.py"), *given]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """For whatever is started."""
    return {**os.environ, "SHOP_FOLDER": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), **more}


@asynccontextmanager
async def connected(folder: Path, command: list[str], **more: str) -> AsyncIterator[Client]:
    """The SDK's client."""
    program, *arguments = command
    parameters = StdioServerParameters(command=program, args=arguments, env=environment(folder, **more))
    with (folder / "stderr").open("a") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield client


async def _called(folder: Path, command: list[str], server: Server, **more: str) -> Any:
    """The result of one session with one call; None if the connection was lost."""
    found = None
    try:
        async with connected(folder, command, **more) as client:
            found = await client.call_tool(server.tool, server.arguments)
    except* MCPError:
        pass
    return found


@awaiting
async def test_a_proxy_that_is_killed_before_its_save_leaves_one_effect(server: Server, tmp_path: Path) -> None:
    """
    The server has done it, the proxy is killed with the answer in its hands: the next one does not do it again.
    """
    command = proxy(tmp_path, server.command)
    first = await _called(tmp_path, command, server, PROXY_FAILPOINT="settle.before")
    again = await _called(tmp_path, command, server)

    assert first is None
    assert "may already have happened" in again.content[0].text
    assert server.effects() == 1


@awaiting
async def test_the_same_without_the_proxy_has_two_effects(server: Server, tmp_path: Path) -> None:
    """
    The negative control: a client that lost its answer calls again.
    """
    for _ in range(2):
        await _called(tmp_path, server.command, server)

    assert server.effects() == 2


@awaiting
async def test_a_call_that_is_wanted_twice_happens_twice(server: Server, tmp_path: Path) -> None:
    """
    Both answers were delivered: the second session wants another one.
    """
    command = proxy(tmp_path, server.command)
    found = [await _called(tmp_path, command, server) for _ in range(2)]

    assert [one.is_error for one in found] == [False, False]
    assert server.effects() == 2


def test_a_client_that_is_gone_finds_its_answer(server: Server, tmp_path: Path) -> None:
    """
    The client calls and is gone: the call ends behind it, and its next session is given the answer.
    """
    sent = [
        line(
            id=0,
            method="initialize",
            params={"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        ),
        line(method="notifications/initialized"),
        call(1, server.tool, server.arguments),
    ]
    first = subprocess.Popen(
        proxy(tmp_path, server.command), env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert first.stdin is not None and first.stdout is not None
    first.stdin.write(sent[0])
    first.stdin.flush()
    first.stdout.readline()
    first.stdout.close()
    first.stdin.write(sent[1] + sent[2])
    first.stdin.close()
    first.wait(PATIENCE)
    second = subprocess.Popen(
        proxy(tmp_path, server.command), env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    out, _ = second.communicate(b"".join(sent), timeout=PATIENCE)
    found = {read.get("id"): read for read in map(json.loads, out.splitlines())}

    assert found[1]["result"]["_meta"] == {"dev.onceward/replayed": True}
    assert server.effects() == 1


@awaiting
async def test_everything_passes_and_a_server_killed_in_a_tool_leaves_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    server-everything: the same tools, resources and prompts as directly, progress in order; and SIGKILL in the midst.
    """
    assert main(["store", "init", "--store", f"sqlite:///{tmp_path}/agent.db"]) == 0
    command = npm_server("mcp-server-everything")
    told: list[float] = []

    async def listed(client: Client) -> list[Any]:
        return [
            [one.name for one in (await client.list_tools()).tools],
            [one.uri for one in (await client.list_resources()).resources],
            [one.name for one in (await client.list_prompts()).prompts],
        ]

    async def seen(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async def killing(progress: float, total: float | None, message: str | None) -> None:
        pid = (tmp_path / "proxy.pid").read_text()
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    async with connected(tmp_path, command) as client:
        direct = await listed(client)
    async with connected(tmp_path, proxy(tmp_path, command)) as client:
        through = await listed(client)
        added = await client.call_tool("get-sum", {"a": 2, "b": 3})
        long = {"duration": 1, "steps": 4}
        await client.call_tool("trigger-long-running-operation", long, progress_callback=seen)
        longer = {"duration": 60, "steps": 60}
        killed = await client.call_tool("trigger-long-running-operation", longer, progress_callback=killing)
    async with connected(tmp_path, proxy(tmp_path, command)) as client:
        again = await client.call_tool("trigger-long-running-operation", longer)

    assert through == direct
    assert "5" in added.content[0].text  # type: ignore[union-attr]
    assert told == [1, 2, 3, 4]
    assert "but may have happened" in killed.content[0].text  # type: ignore[union-attr]
    assert "may already have happened" in again.content[0].text  # type: ignore[union-attr]
