"""
Anthropic's tool runner, whose messages are saved after every turn; a crash goes on with those.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import beta_async_tool, beta_tool
from anthropic_script import model, start
from crash_kit import Kit

from onceward.agents.anthropic import gated

kit = Kit()
gate = kit.gate()
messages = start(kit)
asked: Any = {"model": "m", "max_tokens": 10, "messages": list(messages)}


def notify(order: str) -> str:
    """Tell the customer."""
    return str(kit.notify(order))


def charge(order: str) -> str:
    """Charge an order."""
    return str(kit.charge(order))


async def anotify(order: str) -> str:
    """Tell the customer."""
    return str(kit.notify(order))


async def acharge(order: str) -> str:
    """Charge an order."""
    return str(kit.charge(order))


def behind(tools: list[Any]) -> list[Any]:
    """The tools, behind the gate if there is one."""
    return gated(gate, "order-42", tools, messages) if gate else tools


def keep(message: Any, answer: Any) -> None:
    """Save this turn."""
    kit.die_at("answer")
    if answer is not None:
        messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        messages.append(answer)
        (kit.folder / "messages.json").write_text(json.dumps(messages))


def blocking() -> None:
    """The runner."""
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: model(kit, request)))
    client = Anthropic(api_key="none", http_client=http)
    tools = behind([beta_tool(notify), beta_tool(charge)])
    runner = client.beta.messages.tool_runner(tools=tools, **asked)
    for message in runner:
        keep(message, runner.generate_tool_call_response())


async def awaiting() -> None:
    """The runner, awaiting."""
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: model(kit, request)))
    client = AsyncAnthropic(api_key="none", http_client=http)
    tools = behind([beta_async_tool(name="notify")(anotify), beta_async_tool(name="charge")(acharge)])
    runner = client.beta.messages.tool_runner(tools=tools, **asked)
    async for message in runner:
        keep(message, await runner.generate_tool_call_response())


if kit.awaits:
    asyncio.run(awaiting())
else:
    blocking()
kit.finished()
