"""
A loop over Anthropic's Messages API, which saves its messages after every turn and goes on with them after a crash.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
from anthropic import Anthropic, AsyncAnthropic
from anthropic_script import model, start
from crash_kit import Kit

from onceward.agents.anthropic import atool_results, tool_results

kit = Kit()
gate = kit.gate()
functions: dict[str, Any] = {"notify": kit.notify, "charge": kit.charge}
messages = start(kit)
asked: Any = {"model": "m", "max_tokens": 10, "messages": messages}


def ungated() -> list[dict[str, Any]]:
    """The control: what everybody writes."""
    return [
        {"type": "tool_result", "tool_use_id": one["id"], "content": str(functions[one["name"]](**one["input"]))}
        for one in messages[-1]["content"]
    ]


def heard(message: Any) -> bool:
    """Add an answer of the model; whether it wants something."""
    messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
    return bool(message.stop_reason == "tool_use")


def keep(results: list[dict[str, Any]]) -> None:
    """Save this turn."""
    kit.die_at("answer")
    messages.append({"role": "user", "content": results})
    (kit.folder / "messages.json").write_text(json.dumps(messages))


def blocking() -> None:
    """The loop."""
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: model(kit, request)))
    client = Anthropic(api_key="none", http_client=http)
    while heard(client.messages.create(**asked)):
        keep(tool_results(gate, "order-42", messages, functions) if gate else ungated())


async def awaiting() -> None:
    """The loop, awaiting."""
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: model(kit, request)))
    client = AsyncAnthropic(api_key="none", http_client=http)
    while heard(await client.messages.create(**asked)):
        keep(await atool_results(gate, "order-42", messages, functions) if gate else ungated())


if kit.awaits:
    asyncio.run(awaiting())
else:
    blocking()
kit.finished()
