"""
An agent whose tools are those of an MCP server: two processes, over stdio or streamable HTTP, with the SDK or FastMCP.

    python mcp_server.py            the agent: starts the server, and calls its tools under keys
    python mcp_server.py server     the server

Whichever is killed, the other ends with it, and the agent is started anew, as after a power cut. It keeps its messages
in a file that it writes after every turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from contextlib import asynccontextmanager
from typing import Any

from crash_kit import Kit
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from onceward.agents.mcp import KeyedClient, OncewardExtension

PLAN = [("notify", {"order": "42"}), ("charge", {"order": "42"})]


def make_server(kit: Kit) -> Any:
    """The server, with or without the gate."""
    gate = kit.gate()
    if os.environ["MCP_FRAMEWORK"] == "fastmcp":
        from fastmcp import FastMCP

        from onceward.agents.fastmcp import OncewardMiddleware

        server: Any = FastMCP("shop", middleware=[] if gate is None else [OncewardMiddleware(gate)])
    else:
        from mcp.server.mcpserver import MCPServer

        once = [] if gate is None else [OncewardExtension(gate)]
        server = MCPServer("shop", extensions=once)
        for extension in once:
            extension.attach(server)

    def charge(order: str) -> dict[str, str]:
        return kit.charge(order)

    async def notify(order: str) -> dict[str, str]:
        return kit.notify(order)

    for tool in (charge, notify):
        server.tool()(tool)
    return server


def serve(kit: Kit) -> None:
    """Until the agent is gone."""
    server = make_server(kit)
    if os.environ["MCP_TRANSPORT"] == "stdio":
        server.run(transport="stdio")
        return
    import uvicorn

    app = server.streamable_http_app() if hasattr(server, "streamable_http_app") else server.http_app()
    threading.Thread(target=_end_with_the_agent, daemon=True).start()
    serving = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))

    async def started() -> None:
        running = asyncio.ensure_future(serving.serve())
        while not serving.started:
            await asyncio.sleep(0.01)
        print(serving.servers[0].sockets[0].getsockname()[1], flush=True)
        await running

    asyncio.run(started())


def _end_with_the_agent() -> None:
    sys.stdin.read()
    os._exit(0)


@asynccontextmanager
async def connected() -> Any:
    """A client of a server that was just started."""
    command = [sys.executable, __file__, "server"]
    if os.environ["MCP_TRANSPORT"] == "stdio":
        server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        async with Client(server) as client:
            yield client
        return
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    try:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            yield client
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        await process.wait()


async def agent(kit: Kit) -> None:
    """A loop with a scripted model: one answer with two calls, then the end."""
    saved = kit.folder / "messages.json"
    messages: list[Any] = json.loads(saved.read_text()) if saved.exists() else []
    if not messages:
        async with KeyedClient(connected, run="order-42", attempts=1) as keyed:
            for name, arguments in PLAN:
                result = await keyed.call_tool(name, arguments)
                messages.append([name, result.model_dump(mode="json", by_alias=True)])
            kit.die_at("answer")
            saved.write_text(json.dumps(messages))
            kit.die_at("saved")
    kit.model_reads(messages)
    kit.finished()


def main() -> None:
    """The agent, or its server."""
    kit = Kit()
    if sys.argv[1:] == ["server"]:
        serve(kit)
        return
    try:
        asyncio.run(agent(kit))
    except BaseException as error:
        if not kit.restarted and isinstance(error, MCPError):
            os.kill(os.getpid(), signal.SIGKILL)  # The server was killed: so is the agent.
        raise


if __name__ == "__main__":
    main()
