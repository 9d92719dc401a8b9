"""
An MCP server whose tool is called again after a time-out and after a restart of the client: one charge.

The client names its run and sends a key with each call; the server's extension does the rest. Run it twice: nothing is
left behind.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from mcp import Client
from mcp.server.mcpserver import MCPServer

from onceward.agents import AgentGate, Tool
from onceward.agents.mcp import KeyedClient, OncewardExtension, was_replayed

charges: list[str] = []
"""At the bank: what must happen once."""


def make_server(gate: AgentGate, slow: asyncio.Event) -> MCPServer[Any]:
    """The shop's server: one tool, one line for Onceward, and one to show it the tools."""
    once = OncewardExtension(gate)
    server = once.attach(MCPServer("shop", extensions=[once]))

    @server.tool()
    async def charge(order_id: str) -> str:
        charges.append(order_id)
        await slow.wait()
        return f"receipt {len(charges)}"

    return server


async def main() -> None:
    """The client gives up waiting, asks again, and is started over."""
    with tempfile.TemporaryDirectory() as folder:
        tools = {"charge": Tool("blind")}
        async with AgentGate(f"sqlite:///{folder}/mcp.db", scope="demo:shop", tools=tools) as gate:
            slow = asyncio.Event()
            asyncio.get_running_loop().call_later(0.3, slow.set)
            async with Client(make_server(gate, slow)) as client:
                keyed = KeyedClient(client, run="order-42", attempts=100)
                await keyed.call_tool("charge", {"order_id": "42"}, read_timeout_seconds=0.1)
            async with Client(make_server(gate, slow)) as client:  # The client starts over, from its input.
                again = await KeyedClient(client, run="order-42").call_tool("charge", {"order_id": "42"})
            print(f"{len(charges)} charge, receipt replayed: {was_replayed(again)}")


if __name__ == "__main__":
    asyncio.run(main())
