"""
A loop over OpenAI's Chat Completions that starts over, because its first process died: the customer is charged once.

The API is a script behind the real client, so that this runs anywhere. Everything else is what such a loop does:
`tool_messages` makes the calls of an answer, and returns the messages for the model.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

import httpx2
from openai import OpenAI

from onceward.agents import AgentGate, Tool
from onceward.agents.openai import tool_messages

charges: list[str] = []
"""The bank: the effect that must happen once."""


def charge(order_id: str, amount: str) -> dict[str, str]:
    """Charge the customer of an order."""
    charges.append(f"{order_id}: {amount}")
    return {"charged": amount}


def script(request: httpx2.Request) -> httpx2.Response:
    """The model: it wants a charge, and then it is done. Its ids are new each time."""
    read, message = json.loads(request.content)["messages"], {"role": "assistant", "content": "Order 42 is paid."}
    if read[-1]["role"] != "tool":
        function = {"name": "charge", "arguments": '{"order_id": "42", "amount": "12.50"}'}
        message["tool_calls"] = [{"id": f"call_{id(request)}", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return httpx2.Response(200, json=body)


def answer(client: OpenAI, gate: AgentGate) -> Any:
    """The loop. It saves nothing here, so it starts over from the question."""
    messages: list[Any] = [{"role": "user", "content": "Charge order 42."}]
    while True:
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
        if not messages[-1].tool_calls:
            return messages[-1].content
        messages += tool_messages(gate, "order-42", messages, {"charge": charge})


with tempfile.TemporaryDirectory() as folder:
    http = httpx2.Client(transport=httpx2.MockTransport(script))
    with OpenAI(api_key="none", base_url="http://model.invalid", http_client=http) as client:
        for process in (1, 2):
            tools = {"charge": Tool("keyed", key="charge:{order_id}")}
            with AgentGate(f"sqlite:///{folder}/gate.db", scope="test:example", tools=tools) as gate:
                print(f"process {process}:", answer(client, gate))
print(f"2 processes, {len(charges)} charge")
