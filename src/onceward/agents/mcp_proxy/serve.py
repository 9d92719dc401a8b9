"""
A proxy from its first line to its end: what is under way when the client leaves is finished and stored.

    the client closes stdin     what is under way ends and is stored; the server's stdin is closed; it is waited for
    the server ends             calls that it had are in doubt, and the client is told; its exit code is ours
    a signal                    goes to the server
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from onceward.agents.mcp_proxy.lines import ClientInput, LineTooLong
from onceward.agents.mcp_proxy.proxy import McpProxy

GRACE_SECONDS = 30.0
"""How long calls that are under way may go on once the client has left."""

LAST_SECONDS = 5.0
"""How long what an ended server has written is still read: a child of its own may hold its stdout open for ever."""

FAILED = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class RunningServer(Protocol):
    """A server that runs until it is closed."""

    async def run(self, proxy: McpProxy) -> None:
        """Take what it says until it says no more."""

    def close(self) -> None:
        """Tell it that there is nothing more for it."""

    async def end(self) -> int:
        """Wait for its end; the exit code."""

    def signal(self, number: signal.Signals) -> None:
        """Hand on a signal."""


async def serve(
    proxy: McpProxy, client: ClientInput, server: RunningServer, note: Callable[[str], None], grace: float
) -> int:
    """Pass on until one side ends; the exit code."""
    _forward_signals(server)
    up = asyncio.create_task(_take_lines(proxy, client))
    down = asyncio.create_task(server.run(proxy))
    await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
    if not down.done():  # The client has left.
        finishing = asyncio.create_task(proxy.finish(grace))
        await asyncio.wait({finishing, down}, return_when=asyncio.FIRST_COMPLETED)
        finishing.cancel()
    server.close()
    ended = asyncio.create_task(server.end())
    if not down.done():
        await asyncio.wait({ended, down}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({down}, timeout=LAST_SECONDS)
    failed = _failure(down, note)
    proxy.server_gone()
    await proxy.finish(grace)
    code = await ended
    up.cancel()
    down.cancel()
    await asyncio.wait({up, down})
    if not up.cancelled() and (error := up.exception()) is not None:
        raise error
    return FAILED if failed else code


async def _take_lines(proxy: McpProxy, client: ClientInput) -> None:
    async for line in client.lines():
        await proxy.from_client(line)


def _failure(down: asyncio.Task[None], note: Callable[[str], None]) -> bool:
    error = down.exception() if down.done() and not down.cancelled() else None
    if error is None:
        return False
    if not isinstance(error, LineTooLong):
        raise error
    note(f"{error}: the server is stopped, because its state is unknown")
    return True


def _forward_signals(server: RunningServer) -> None:
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Not on Windows, and not in other threads.
        for number in _SIGNALS:
            loop.add_signal_handler(number, server.signal, number)
