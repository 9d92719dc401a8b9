"""
Anthropic's API from a script, for the scenarios: two calls in one answer, unless their results are there.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
from crash_kit import Kit


def model(kit: Kit, request: httpx2.Request) -> httpx2.Response:
    """The next answer of the model."""
    read = json.loads(request.content)["messages"]
    kit.model_reads(read)
    last = read[-1]["content"]
    if isinstance(last, list) and last[0]["type"] == "tool_result":
        kit.die_at("saved")
        content: list[dict[str, Any]] = [{"type": "text", "text": "done"}]
    else:
        process = "second" if kit.restarted else "first"
        content = [
            {"type": "tool_use", "id": f"{tool}-{process}", "name": tool, "input": {"order": "42"}}
            for tool in ("notify", "charge")
        ]
    reason = "end_turn" if content[0]["type"] == "text" else "tool_use"
    body = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return httpx2.Response(200, json=body | {"stop_reason": reason, "stop_sequence": None, "usage": usage})


def start(kit: Kit) -> list[Any]:
    """The messages that were saved; or the question."""
    saved = kit.folder / "messages.json"
    found: list[Any] = json.loads(saved.read_text()) if saved.exists() else [{"role": "user", "content": "charge 42"}]
    return found
