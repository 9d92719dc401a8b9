"""
An agent that may be killed: one operation under a lease of an hour.

    python agent.py URL SCOPE COLOUR GUARANTEE hangs|returns

It says "running" when its function runs; then it hangs for ever, or returns. What it came to is its last line.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from onceward import AsyncGate, Gate, OncewardError

LEASE, PATIENCE = 3_600, 300


def main(url: str, scope: str, colour: str, guarantee: Any, ending: str) -> None:
    """Run it."""

    def work() -> str:
        print("running", flush=True)
        if ending == "hangs":
            threading.Event().wait()
        return "done"

    async def awaiting() -> str:
        return work()

    async def awaits() -> Any:
        async with AsyncGate(url, scope=scope, lease=LEASE, wait=PATIENCE) as gate:
            return await gate.run("tool-call", awaiting, guarantee=guarantee, name="tool")

    try:
        if colour == "awaiting":
            came_to = asyncio.run(awaits())
        else:
            with Gate(url, scope=scope, lease=LEASE, wait=PATIENCE) as gate:
                came_to = gate.run("tool-call", work, guarantee=guarantee, name="tool")
    except OncewardError as error:
        came_to = type(error).__name__
    print(came_to, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
