"""
A server on stdio: a child process whose stdin and stdout are ours, and whose stderr is the client's as before.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from onceward._core.errors import ConfigurationError
from onceward.agents.mcp_proxy.answers import NotSent
from onceward.agents.mcp_proxy.lines import LineSplitter, LineTooLong
from onceward.agents.mcp_proxy.messages import RpcMessage
from onceward.agents.mcp_proxy.proxy import McpProxy

_CHUNK = 65_536
CLOSE_SECONDS = 5.0
"""How long a server may take to end once its stdin is closed, and again once it was told to."""


class ServerProcess:
    """A server that was started here."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._gone = False

    @classmethod
    async def start(cls, command: Sequence[str]) -> ServerProcess:
        """Start it. It stays in our process group: who ends us with all our children ends it, too."""
        try:
            child = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigurationError(
                f"{command[0]} cannot be started: {reason}; correct the command after --"
            ) from None
        return cls(child)

    async def send(self, data: bytes, messages: tuple[RpcMessage, ...]) -> None:
        """Write a line to its stdin. Once it has ended, nothing is sent."""
        if self._gone or self._child.stdin is None or self._child.stdin.is_closing():
            raise NotSent("the server has ended")
        with suppress(ConnectionError):  # It may have read this before it ended: reading its stdout will show.
            self._child.stdin.write(data)
            await self._child.stdin.drain()

    async def run(self, proxy: McpProxy) -> None:
        """Take what it writes until it writes no more."""
        splitter = LineSplitter()
        try:
            while self._child.stdout is not None and (chunk := await self._child.stdout.read(_CHUNK)):
                for line in splitter.feed(chunk):
                    if isinstance(line, LineTooLong):
                        raise line
                    await proxy.from_server(line)
            if rest := splitter.rest():
                await proxy.from_server(rest)
        finally:
            self._gone = True

    def close(self) -> None:
        """Close its stdin: an MCP server ends then."""
        if self._child.stdin is not None:
            self._child.stdin.close()

    async def end(self) -> int:
        """Wait for its end, tell it to end, and end it; its exit code, as a shell counts."""
        for hurry in (self._child.terminate, self._child.kill):
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    return _shell_code(await self._child.wait())
            with suppress(ProcessLookupError):
                hurry()
        return _shell_code(await self._child.wait())

    def signal(self, number: signal.Signals) -> None:
        """Hand on a signal, unless it has it already: a terminal gives its interrupts to every process."""
        if number == signal.SIGINT and _is_at_a_terminal():
            return
        with suppress(ProcessLookupError):
            self._child.send_signal(number)


def _shell_code(code: int) -> int:
    """A process that a signal has ended counts as 128 and its number."""
    return 128 - code if code < 0 else code


def _is_at_a_terminal() -> bool:
    """Whether a terminal's interrupts are ours, and so our child's."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
