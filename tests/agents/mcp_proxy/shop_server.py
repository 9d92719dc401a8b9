"""
An MCP server written with the SDK that knows nothing of Onceward: a shop whose charges are lines in a file.

    python shop_server.py                          on stdio
    python shop_server.py --http PORT [--json]     on streamable HTTP

It kills itself, or its client, where `SHOP_POINT` says, once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

FOLDER = Path(os.environ["SHOP_FOLDER"])
POINT = os.environ.get("SHOP_POINT", "")

server = MCPServer("shop")


class Consent(BaseModel):
    """What a person is asked for."""

    yes: bool


def append(name: str, text: str) -> None:
    """Add a line to a file, on the disk before anything goes on."""
    file = os.open(FOLDER / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (text + "\n").encode())
    os.fsync(file)
    os.close(file)


def die_at(point: str) -> None:
    """Kill whoever is to be killed here, once."""
    if point != POINT or (FOLDER / "killed").exists():
        return
    append("killed", point)
    if point.startswith("server"):
        os.kill(os.getpid(), signal.SIGKILL)
    client = int((FOLDER / "client.pid").read_text())
    gone = os.pidfd_open(client)
    os.kill(client, signal.SIGKILL)
    select.select([gone], [], [], 60)  # Its pipes are closed by then.


@server.tool()
def notify(order: str) -> str:
    """Tell somebody."""
    append("effects", "notify")
    return f"notified {order}"


@server.tool()
def charge(order: str) -> dict[str, str]:
    """Charge somebody."""
    die_at("server before")
    append("effects", "charge")
    die_at("server effect")
    die_at("client tool")
    return {"charged": order}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_charge(order: str) -> str:
    """See whether somebody was charged."""
    append("effects", "find_charge")
    return f"{order}: yes"


@server.tool()
async def slow_charge(order: str, ctx: Context) -> str:
    """Charge somebody, and say how far that is. It ends once there is a file `go`."""
    append("effects", "slow_charge")
    for step in range(3):
        await ctx.report_progress(step, 3)
    while not (FOLDER / "go").exists():
        await anyio.sleep(0.02)
    return f"charged {order}"


@server.tool()
async def asking_charge(order: str, ctx: Context) -> str:
    """Ask the client's model and its user before somebody is charged."""
    said = await ctx.session.create_message(
        [SamplingMessage(role="user", content=TextContent(type="text", text="Sure?"))], max_tokens=9
    )
    asked = await ctx.elicit("Charge?", Consent)
    append("effects", "asking_charge")
    return f"{getattr(said.content, 'text', '')} {asked.action}"


@server.tool()
def failing_charge(order: str) -> str:
    """Fail."""
    append("effects", "failing_charge")
    raise RuntimeError("no money")


if __name__ == "__main__":
    sys.stderr.write("the shop is open\n")
    sys.stderr.flush()
    if "--http" in sys.argv:
        port = int(sys.argv[sys.argv.index("--http") + 1])
        server.run("streamable-http", host="127.0.0.1", port=port, json_response="--json" in sys.argv)
    else:
        server.run("stdio")
