"""
The id that a model gave its tool call, as a key: unchanged.

    Anthropic             {"type": "tool_use", "id": "toolu_..."}                  `id`
    OpenAI, chat          {"type": "function", "id": "call_..."}                   `id`
    OpenAI, responses     {"type": "function_call", "call_id": "call_..."}         `call_id`: its `id` names an item
    LangChain             {"type": "tool_call", "name": ..., "args": ..., "id"}    `id`
    Pydantic AI           ToolCallPart, {"part_kind": "tool-call", ...}            `tool_call_id`
    Bedrock               {"toolUse": {"toolUseId": "tooluse_..."}}                `toolUseId`
    Gemini                {"functionCall": {"name": ..., "args": ..., "id"}}       `id`, which it may leave out

Objects of the SDKs and plain dicts alike, by their members; no SDK is imported. The id names one answer of the model:
it is a key only for a loop that stores that answer before it runs the tools. A loop that asks the model anew gets new
ids; `onceward.agents` makes keys that survive that.
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
    "tool_call": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
    "tool-call": "tool_call_id",
    "builtin-tool-call": "tool_call_id",
    "toolUse": "toolUseId",
    "functionCall": "id",
}
"""By the kind of a call, where its id is."""
_WRAPPERS = {"toolUse": "toolUse", "functionCall": "functionCall", "function_call": "functionCall", "raw_item": None}
"""Members in which a call may be, and what kind it is then; None: it says so itself."""


def tool_call_key(call: Any) -> str:
    """
    The key of one tool call: the id that the model's answer gave it, unchanged.

    Takes a tool call of Anthropic, OpenAI, LangChain, Pydantic AI, Bedrock or Gemini, as the SDK's object or as a dict.
    Anything else is refused. Run this before the tool, in your own code: a refusal is for the programmer.
    """
    if isinstance(call, str):
        raise KeyInvalid("that is text, not a tool call. Pass the tool call itself, or use its id as the key")
    if isinstance(call, Sequence):
        raise KeyInvalid("these are several tool calls. Pass them one by one: each has its own id")
    found, kind = _unwrapped(call)
    place = _PLACES.get(kind) if isinstance(kind, str) else None
    if place is None:
        raise KeyInvalid(
            f"that is not a tool call (a {type(call).__name__} of the type {str(kind)[:40]!r}). Pass a block of the "
            f"response's content, or one of its tool_calls; known types are {', '.join(sorted(_PLACES))}"
        )
    id = _member(found, place)
    if id is None or id == "":
        raise KeyMissing(
            f"the tool call has no {place}: it is part of a stream, or its provider sends no ids. Wait until "
            "the call is complete, and store it before running the tool; or let AgentGate of onceward.agents make the "
            "key"
        )
    return check_key(id)


def _unwrapped(call: Any) -> tuple[Any, Any]:
    """The call itself, and its kind."""
    for member, kind in _WRAPPERS.items():
        inner = _member(call, member)
        if inner is not None and not isinstance(inner, str):
            return inner, kind if kind is not None else _kind(inner)
    return call, _kind(call)


def _kind(call: Any) -> Any:
    kind = _member(call, "type")
    if kind is None:
        kind = _member(call, "part_kind")
    if kind is not None:
        return kind
    if _member(call, "function") is not None:
        return "function"  # What some providers that speak OpenAI's protocol leave out.
    if _has(call, "toolUseId"):
        return "toolUse"
    if _has(call, "name") and _has(call, "args"):
        return "functionCall"  # Gemini's own object, or LangChain's without its type: both have the id in `id`.
    return None


def _member(call: Any, name: str) -> Any:
    return call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)


def _has(call: Any, name: str) -> bool:
    return name in call if isinstance(call, Mapping) else hasattr(call, name)
