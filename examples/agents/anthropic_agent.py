"""
Anthropic's tool runner that starts over, because its first process died: the customer is charged once.

The API is a script behind the real client, so that this runs anywhere. The runner gives its tools no id and saves
nothing, so equal calls are numbered in their order, after those in the messages that it starts with.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

import httpx2
from anthropic import Anthropic, beta_tool

from onceward.agents import AgentGate, Tool
from onceward.agents.anthropic import gated

charges: list[str] = []
"""The bank: the effect that must happen once."""


@beta_tool
def charge(order_id: str, amount: str) -> str:
    """Charge the customer of an order."""
    charges.append(f"{order_id}: {amount}")
    return f"charged {amount}, as number {len(charges)}"


def script(request: httpx2.Request) -> httpx2.Response:
    """The model: it wants a charge, and then it says what it read. Its ids are new each time."""
    last = json.loads(request.content)["messages"][-1]["content"]
    order = {"order_id": "42", "amount": "12.50"}
    content: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{id(request)}", "name": "charge", "input": order}
    if isinstance(last, list):
        content = {"type": "text", "text": last[0]["content"]}
    body = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [content]}
    reason = "end_turn" if isinstance(last, list) else "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    return httpx2.Response(200, json=body | {"stop_reason": reason, "stop_sequence": None, "usage": usage})


def answer(client: Anthropic, gate: AgentGate) -> str:
    """What every process does."""
    messages: list[Any] = [{"role": "user", "content": "Charge order 42."}]
    tools = gated(gate, "order-42", [charge], messages)
    message = client.beta.messages.tool_runner(model="m", max_tokens=99, messages=messages, tools=tools).until_done()
    return "".join(block.text for block in message.content if block.type == "text")


with tempfile.TemporaryDirectory() as folder:
    http = httpx2.Client(transport=httpx2.MockTransport(script))
    with Anthropic(api_key="none", base_url="http://model.invalid", http_client=http) as client:
        for process in (1, 2):
            tools = {"charge": Tool("blind")}
            with AgentGate(f"sqlite:///{folder}/gate.db", scope="test:example", tools=tools) as gate:
                print(f"process {process}:", answer(client, gate))
print(f"2 processes, {len(charges)} charge")
