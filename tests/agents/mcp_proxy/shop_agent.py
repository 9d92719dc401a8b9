"""
An agent whose tools are those of an MCP server, over the SDK's own client; it keeps its history in a file.

It wants `notify` and `charge`, in this order. Started again it goes on from its history, as an agent's user would have
it. `shop_agent.py COMMAND ...` names the server: the shop, or a proxy before it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from mcp import StdioServerParameters, stdio_client
from mcp.client import Client

FOLDER = Path(os.environ["SHOP_FOLDER"])
POINT = os.environ.get("SHOP_POINT", "")
WANTED = [("notify", {"order": "42"}), ("charge", {"order": "42"})]


def die_at(point: str) -> None:
    """Be killed here, once."""
    if point == POINT and not (FOLDER / "killed").exists():
        (FOLDER / "killed").write_text("client\n")
        os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    """Make the calls that the history lacks."""
    history = FOLDER / "history.jsonl"
    done = len(history.read_text().splitlines()) if history.exists() else 0
    (FOLDER / "client.pid").write_text(str(os.getpid()))
    command, *arguments = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with Client(stdio_client(parameters)) as client:
        for tool, wanted in WANTED[done:]:
            result = await client.call_tool(tool, wanted)
            with (FOLDER / "read.jsonl").open("a") as read:
                read.write(json.dumps([tool, str(result.content), str(result.meta)]) + "\n")
            if tool == "charge":
                die_at("client answer")
            with history.open("a") as kept:
                kept.write(json.dumps([tool, str(result.content)]) + "\n")
                kept.flush()
            if tool == "charge":
                die_at("client saved")
    (FOLDER / "finished").write_text("yes\n")


if __name__ == "__main__":
    asyncio.run(main())
