"""
A loop over OpenAI's Chat Completions, which saves its messages after every turn and goes on with them after a crash.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
from crash_kit import Kit
from openai import AsyncOpenAI, OpenAI

from onceward.agents.openai import atool_messages, tool_messages

kit = Kit()
gate = kit.gate()
saved = kit.folder / "messages.json"
functions: dict[str, Any] = {"notify": kit.notify, "charge": kit.charge}


def model(request: httpx2.Request) -> httpx2.Response:
    """The model: two calls, unless their answers are there."""
    read = json.loads(request.content)["messages"]
    kit.model_reads(read)
    message: dict[str, Any] = {"role": "assistant", "content": "done"}
    if read[-1]["role"] == "tool":
        kit.die_at("saved")
    else:
        process = "second" if kit.restarted else "first"
        message["tool_calls"] = [
            {"id": f"{tool}-{process}", "type": "function", "function": {"name": tool, "arguments": '{"order": "42"}'}}
            for tool in functions
        ]
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return httpx2.Response(200, json=body)


def ungated(message: Any) -> list[dict[str, Any]]:
    """The control: what everybody writes."""
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": str(functions[call.function.name](**json.loads(call.function.arguments))),
        }
        for call in message.tool_calls
    ]


def keep(messages: list[Any]) -> None:
    """Save them, as data."""
    kit.die_at("answer")
    plain = [one if isinstance(one, dict) else one.model_dump(exclude_none=True) for one in messages]
    saved.write_text(json.dumps(plain))


def start() -> list[Any]:
    """What was saved; or the question."""
    found: list[Any] = json.loads(saved.read_text()) if saved.exists() else [{"role": "user", "content": "charge 42"}]
    return found


def blocking() -> None:
    """The loop."""
    client = OpenAI(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(model)))
    messages = start()
    while True:
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
        if not messages[-1].tool_calls:
            return
        messages += tool_messages(gate, "order-42", messages, functions) if gate else ungated(messages[-1])
        keep(messages)


async def awaiting() -> None:
    """The loop, awaiting."""
    client = AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(model)))
    messages = start()
    while True:
        messages.append((await client.chat.completions.create(model="m", messages=messages)).choices[0].message)
        if not messages[-1].tool_calls:
            return
        messages += await atool_messages(gate, "order-42", messages, functions) if gate else ungated(messages[-1])
        keep(messages)


if kit.awaits:
    asyncio.run(awaiting())
else:
    blocking()
kit.finished()
