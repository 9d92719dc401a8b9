"""
A proxy between a client and a server that are lists: what each has seen, byte by byte, and how often a tool has run.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from onceward.agents import AgentGate
from onceward.agents.mcp_proxy.held_calls import CallJudge
from onceward.agents.mcp_proxy.messages import RpcMessage
from onceward.agents.mcp_proxy.proxy import McpProxy
from onceward.agents.mcp_proxy.tools_file import ServerTools

PATIENCE = 60
NOTHING = ServerTools({})


def awaiting(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Let pytest run a test that awaits."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def call(id: Any = 1, tool: str = "charge", arguments: Any = None, **more: Any) -> bytes:
    """A line that calls a tool."""
    params = {"name": tool, "arguments": {"order": "42"} if arguments is None else arguments, **more}
    return line(id=id, method="tools/call", params=params)


def line(**members: Any) -> bytes:
    """A line with one message."""
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


class ListeningClient:
    """A client that only listens."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.gone = False

    async def write(self, data: bytes) -> bool:
        """Take a line, unless it has gone."""
        if not self.gone:
            self.lines.append(data)
        return not self.gone

    @property
    def messages(self) -> list[Any]:
        """Every line, read."""
        return [json.loads(one) for one in self.lines]

    def results(self) -> dict[Any, Any]:
        """What every id was answered with."""
        flat = [one for read in self.messages for one in (read if isinstance(read, list) else [read])]
        return {one["id"]: one.get("result", one.get("error")) for one in flat if "method" not in one}


class CountingServer:
    """A server whose tools count. It answers at once, or when it is told to."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.effects: list[str] = []
        self.proxy: McpProxy | None = None
        self.answers_with: Callable[[RpcMessage, int], bytes | None] = answered
        self.seen = asyncio.Event()

    async def send(self, data: bytes, messages: tuple[RpcMessage, ...]) -> None:
        """Take a line; run what it calls."""
        self.lines.append(data)
        for message in messages:
            if message.method == "tools/call":
                self.effects.append(message.get("params")["name"])
                self.seen.set()
                if (reply := self.answers_with(message, len(self.effects))) is not None:
                    await self.says(reply)

    async def says(self, data: bytes) -> None:
        """Say something to the client."""
        assert self.proxy is not None
        await self.proxy.from_server(data)


def answered(message: RpcMessage, number: int) -> bytes:
    """What the n-th call is answered with. Written as no library would write it."""
    result = f'{{"content":[{{"type":"text","text":"done {number}"}}],"n":1.50}}'
    return f'{{ "result":{result} ,"id":{message.raw("id")},"jsonrpc":"2.0" }}\n'.encode()


class Talk:
    """One client, one proxy process's worth of state, one server."""

    def __init__(self, gate: AgentGate, run: str | None, tools: ServerTools, **more: Any) -> None:
        trusts = more.pop("trusts", False)
        self.gate = gate
        self.client, self.server, self.notes = ListeningClient(), CountingServer(), list[str]()
        judge = CallJudge(gate, None if run is None else gate.run(run), tools, trusts=trusts)
        self.proxy = McpProxy(judge, tools, client=self.client, server=self.server, note=self.notes.append, **more)
        self.server.proxy = self.proxy

    async def says(self, *lines: bytes) -> None:
        """The client writes lines, and whatever they lead to ends."""
        for one in lines:
            await self.proxy.from_client(one)
        await self.proxy.finish(PATIENCE)


@asynccontextmanager
async def talking(
    *, tools: ServerTools = NOTHING, store: str = "memory://", **more: Any
) -> AsyncIterator[Callable[..., Talk]]:
    """Make talks on one store: each is a client and a proxy of its own, one after the other."""
    async with AgentGate(store, scope="test:proxy", tools=tools.tools, default=tools.others) as gate:
        talks: list[Talk] = []

        def talk(run: str | None = "order-42", **here: Any) -> Talk:
            talks.append(Talk(gate, run, tools, **more, **here))
            return talks[-1]

        yield talk
        for one in talks:
            one.proxy.server_gone()  # A test that fails must not wait for an answer for ever.
            await one.proxy.finish(PATIENCE)
