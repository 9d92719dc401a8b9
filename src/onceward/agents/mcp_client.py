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

from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
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

IDENTIFIER: Final = "dev.onceward/idempotency"
"""The extension that a server advertises if it honours keys."""

LOST: Final = frozenset({REQUEST_TIMEOUT, CONNECTION_CLOSED})
"""Errors after which nobody knows whether a call was made."""


def was_replayed(result: CallToolResult) -> bool:
    """Whether a result is the first answer given again: the tool did not run now."""
    return bool((result.meta or {}).get(REPLAYED))


class KeyedClient:
    """
    Calls tools under keys, and repeats a call whose answer was lost. Wraps a connected `Client` or `ClientSession`.

    Given a function that makes a `Client` instead, it opens one with `async with`, and another after a lost connection.
    """

    def __init__(
        self,
        client: Client | ClientSession | Callable[[], Client],
        *,
        run: str | None = None,
        attempts: int = 3,
        server_honours_keys: bool | None = None,
        environment: Environment | None = None,
    ) -> None:
        if attempts < 1:
            raise ConfigurationError("attempts counts the first one, so it is at least 1")
        self._connect = None if isinstance(client, Client | ClientSession) else client
        self._client = client if isinstance(client, Client | ClientSession) else None
        self._run = None if run is None else check_run(run)
        self._attempts, self._honours = attempts, server_honours_keys
        self._environment = environment or REAL
        self._numbers, self._backoff = CallNumbers(), Backoff()
        self._stack = AsyncExitStack()

    @property
    def client(self) -> Client | ClientSession:
        """The connected client, for everything but calls of tools."""
        if self._client is None:
            raise ConfigurationError("this KeyedClient opens its client itself: use it with `async with`")
        return self._client

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
        said: Any = {**(meta or {}), KEY: key or self._environment.random(16).hex()}
        try:
            return await self._repeated(name, arguments, read_timeout_seconds, said, more)
        except BaseException:
            if number is not None:
                self._numbers.free(identity, number)  # No answer: the same call, made again, has the same key.
            raise

    async def _repeated(
        self, name: str, arguments: dict[str, Any] | None, seconds: float | None, meta: Any, more: dict[str, Any]
    ) -> CallToolResult:
        for attempt in range(1, self._attempts + 1):
            try:
                client: Any = await self._connected()
                result: CallToolResult = await client.call_tool(name, arguments, seconds, meta=meta, **more)
                return result
            except MCPError as error:
                if error.code not in LOST or attempt == self._attempts or not self.server_honours_keys:
                    raise
                if error.code == CONNECTION_CLOSED and not await self._hang_up():
                    raise
            await self._environment.asleep(self._backoff.wait(attempt - 1, self._environment.chance()))
        raise AssertionError("unreachable")  # pragma: no cover

    @property
    def server_honours_keys(self) -> bool:
        """Whether a call may be repeated: by what the server advertises, unless it was said."""
        if self._honours is None and self._client is not None:
            capabilities = self._client.server_capabilities
            self._honours = capabilities is not None and IDENTIFIER in (capabilities.extensions or {})
        return bool(self._honours)

    async def _connected(self) -> Client | ClientSession:
        if self._client is None and self._connect is not None:
            self._client = await self._stack.enter_async_context(self._connect())
        return self.client

    async def _hang_up(self) -> bool:
        """Leave a connection that is lost; whether another can be made."""
        if self._connect is None:
            return False
        self._client = None
        stack, self._stack = self._stack, AsyncExitStack()
        with suppress(Exception):  # It was lost already: what closing it says is of no use.
            await stack.aclose()
        return True

    async def __aenter__(self) -> Self:
        await self._connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._connect is not None:
            self._client = None
            await self._stack.aclose()
