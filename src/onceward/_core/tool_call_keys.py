"""
The id that a model gave its tool call, as a key: unchanged.

    Anthropic             {"type": "tool_use", "id": "toolu_..."}             `id`
    OpenAI, chat          {"type": "function", "id": "call_..."}              `id`
    OpenAI, responses     {"type": "function_call", "call_id": "call_..."}    `call_id`: its `id` names an item

Objects of the SDKs and plain dicts alike, by their members; no SDK is imported. The id names one answer of the model:
a loop that stores that answer before it runs the tools may retry each of them under its id. A loop that asks the model
anew gets new ids, and should make its keys from what it has stored: `derive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceward._core.errors import KeyInvalid, KeyMissing
from onceward._core.keys import check_key

_PLACES = {
    "tool_use": "id",
    "server_tool_use": "id",
    "mcp_tool_use": "id",
    "function": "id",
    "custom": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
}
"""By the type of a call, where its id is."""


def tool_call_key(call: Any) -> str:
    """
    The key of one tool call: the id that the model's answer gave it, unchanged.

    Takes a tool call of Anthropic's or OpenAI's, as the SDK's object or as a dict. Anything else is refused.
    """
    if isinstance(call, str):
        raise KeyInvalid("that is text, not a tool call. Pass the tool call itself, or use its id as the key")
    if isinstance(call, Sequence):
        raise KeyInvalid("these are several tool calls. Pass them one by one: each has its own id")
    kind = _member(call, "type")
    if kind is None and _member(call, "function") is not None:
        kind = "function"  # What some providers that speak OpenAI's protocol leave out.
    place = _PLACES.get(kind) if isinstance(kind, str) else None
    if place is None:
        raise KeyInvalid(
            f"that is no tool call (a {type(call).__name__} of the type {str(kind)[:40]!r}). Pass a block of the "
            f"response's content, or one of its tool_calls; known types are {', '.join(sorted(_PLACES))}"
        )
    found = _member(call, place)
    if found is None or found == "":
        raise KeyMissing(
            f"the tool call has no {place}, as in a part of a stream. Wait until the call is complete, and store it "
            "before running the tool"
        )
    return check_key(found)


def _member(call: Any, name: str) -> Any:
    return call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
