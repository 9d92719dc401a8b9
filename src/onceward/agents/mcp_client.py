# ruff: noqa: E402 - whether the SDK is there is checked before it is imported
"""
The client's side of MCP: every call carries a key, and a call that is repeated carries the same one.

    keyed = KeyedClient(client, run="order-42")
    result = await keyed.call_tool("charge", {"order_id": "42"}, read_timeout_seconds=10)
    was_replayed(result)        # whether this is the first answer again

A call is repeated after a time-out or a lost connection, and only if the server says that it honours keys (or
`server_honours_keys=True` says it for a server that cannot): elsewhere a repetition might be a second effect.

The key is `key=` if that is given; with a run it comes from the run, the tool, the arguments and the number of the
equal call, so that a process that starts the run over sends the keys that it sent before; otherwise it is random.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self

from onceward.agents._requirements import require

require("mcp", "2.1", "mcp")

from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult

from onceward._core.backoff import Backoff
from onceward._core.errors import ConfigurationError
from onceward._core.key_derivation import input_hash
from onceward.agents.agent_run import CallNumbers
from onceward.agents.mcp_fields import KEY, REPLAYED
from onceward.agents.tool_call import ToolCall, check_run, key_of_call
from onceward.agents.tools import BLIND
from onceward.runtime.environment import REAL, Environment

_log = logging.getLogger("onceward.agents")

IDENTIFIER: Final = "dev.onceward/idempotency"
"""The extension that a server advertises if it honours keys."""

LOST: Final = frozenset({REQUEST_TIMEOUT, CONNECTION_CLOSED})
"""Errors after which nobody knows whether a call was made."""


def was_replayed(result: CallToolResult) -> bool:
    """Whether a result is the first answer given again: the tool did not run now."""
    return bool((result.meta or {}).get(REPLAYED))


class _Connection:
    """
    A client in a task of its own, which opens and closes it.

    The SDK cancels whoever has opened a client when its transport fails. Here that is not the caller, who is told that
    the connection was lost, and may open another.
    """

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._connect = connect
        self._stop = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        try:
            async with self._connect() as client:
                self._client.set_result(client)
                await self._stop.wait()
        except BaseException as error:
            if self._client.done():
                _log.debug("a connection to an MCP server was lost: %r", error)
            else:
                self._client.set_exception(_lost(error))

    async def client(self) -> Client:
        """The client, when it is connected."""
        return await asyncio.shield(self._client)

    async def during(self, call: Coroutine[Any, Any, CallToolResult]) -> CallToolResult:
        """The result of a call, unless the connection ends before."""
        calling = asyncio.ensure_future(call)
        try:
            await asyncio.wait({calling, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not calling.done():
                calling.cancel()
                await asyncio.wait({calling})
        if calling.cancelled():
            raise MCPError(code=CONNECTION_CLOSED, message="Connection closed")
        return calling.result()

    async def close(self) -> None:
        """The end of it; what a lost connection has to say is not heard."""
        self._stop.set()
        await asyncio.wait({self._task})


def _lost(error: BaseException) -> BaseException:
    """A connection that could not be made, as the SDK would say it of one that was lost: nothing was sent."""
    if isinstance(error, Exception):
        lost = MCPError(code=CONNECTION_CLOSED, message=f"no connection: {error!r}"[:500])
        lost.__cause__ = error
        return lost
    return MCPError(code=CONNECTION_CLOSED, message="no connection: it was cancelled")


class KeyedClient:
    """
    Calls tools under keys, and repeats a call whose answer was lost. Wraps a connected `Client` or `ClientSession`.

    Given a function that makes a `Client` instead, it opens one with `async with`, and another after a lost connection.
    """

    def __init__(
        self,
        client: Client | ClientSession | Callable[[], AbstractAsyncContextManager[Client]],
        *,
        run: str | None = None,
        attempts: int = 3,
        server_honours_keys: bool | None = None,
        environment: Environment | None = None,
    ) -> None:
        if attempts < 1:
            raise ConfigurationError("attempts includes the first one, so it is at least 1")
        self._connect = None if isinstance(client, Client | ClientSession) else client
        self._client = client if isinstance(client, Client | ClientSession) else None
        self._connection: _Connection | None = None
        self._run = None if run is None else check_run(run)
        self._attempts, self._honours = attempts, server_honours_keys
        self._environment = environment or REAL
        self._numbers, self._backoff = CallNumbers(), Backoff()

    @property
    def client(self) -> Client | ClientSession:
        """The connected client, for everything but calls of tools."""
        if self._client is None:
            raise ConfigurationError("this KeyedClient opens its client itself: use it with `async with`")
        return self._client

    @property
    def server_honours_keys(self) -> bool:
        """Whether a call may be repeated: by what the server advertises, unless it was said."""
        if self._honours is None and self._client is not None:
            capabilities = self._client.server_capabilities
            self._honours = capabilities is not None and IDENTIFIER in (capabilities.extensions or {})
        return bool(self._honours)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        *,
        key: str | None = None,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> CallToolResult:
        """Call a tool; takes what the client's own `call_tool` takes, and a key."""
        identity = (name, input_hash(arguments or {}))
        number = None
        if key is None and self._run is not None:
            number = self._numbers.take(identity, None, 0)
            key = key_of_call(ToolCall(self._run, name, arguments or {}, number), BLIND)
        said = {**(meta or {}), KEY: key or self._environment.random(16).hex()}
        more.update(arguments=arguments, read_timeout_seconds=read_timeout_seconds, meta=said)
        try:
            return await self._repeated(name, more)
        except GeneratorExit:
            raise  # Garbage is being collected: no lock may be taken.
        except BaseException:
            if number is not None:
                self._numbers.free(identity, number)  # No answer: the same call, made again, has the same key.
            raise

    async def _repeated(self, name: str, more: dict[str, Any]) -> CallToolResult:
        attempt = 1
        while True:
            try:
                return await self._call(name, more)
            except MCPError as error:
                if error.code not in LOST or attempt == self._attempts or not self.server_honours_keys:
                    raise
                if error.code == CONNECTION_CLOSED and self._connect is None:
                    raise  # Whoever opened it must open another.
            await self._environment.asleep(self._backoff.wait(attempt - 1, self._environment.chance()))
            attempt += 1

    async def _call(self, name: str, more: dict[str, Any]) -> CallToolResult:
        if self._connect is None:
            result: CallToolResult = await self.client.call_tool(name, **more)
            return result
        connection = await self._connected(self._connect)
        try:
            return await connection.during((await connection.client()).call_tool(name, **more))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                await self._hang_up(connection)
            raise

    async def _connected(self, connect: Callable[[], AbstractAsyncContextManager[Client]]) -> _Connection:
        if self._connection is None:
            self._connection = _Connection(connect)
        connection = self._connection
        try:
            self._client = await connection.client()
        except MCPError:
            await self._hang_up(connection)
            raise
        _ = self.server_honours_keys  # Asked while there is somebody to ask.
        return connection

    async def _hang_up(self, connection: _Connection) -> None:
        """Leave a connection. Another caller may have made the next one already."""
        if self._connection is connection:
            self._connection = self._client = None
        await connection.close()

    async def __aenter__(self) -> Self:
        if self._connect is not None:
            await self._connected(self._connect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._hang_up(self._connection)
