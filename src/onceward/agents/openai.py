"""
A loop of your own over OpenAI's API: the tool calls of an answer are made once, and their messages are returned.

    messages.append(client.chat.completions.create(model=..., messages=messages, tools=...).choices[0].message)
    messages += tool_messages(gate, "order-42", messages, {"charge": charge})       # `atool_messages` awaits

`messages` is what a restart finds, and the answer of the model: Chat Completions (`tool_calls`), or items of the
Responses API (`function_call`); dicts or the SDK's objects. Its calls that have no answer yet are made, one after the
other, and numbered from the messages before them. A loop that keeps no messages takes `gate.run(...)`.

This imports nothing of OpenAI's, so it serves every API that speaks either protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import Framework
from onceward.agents.message_history import PastMessages, WantedCall, arguments_of, field, model_content, text_of
from onceward.agents.model_text import is_text_for_model
from onceward.agents.own_loop import Functions, LoopAnswer, calls_to_make
from onceward.agents.tool_call import ToolCall

__all__ = ["atool_messages", "past_messages", "tool_messages"]


def _content(value: Any, call: ToolCall) -> Any:
    return model_content(value)


FRAMEWORK = Framework("openai", dump=model_content, plain=_content)
_CHAT, _FUNCTION, _CUSTOM = "chat", "function", "custom"
_OUTPUTS = {_FUNCTION: "function_call_output", _CUSTOM: "custom_tool_call_output"}


def tool_messages(
    gate: AgentGate, run: str, messages: Sequence[Any], functions: Functions, *, tell_errors: bool = True
) -> list[dict[str, Any]]:
    """
    Make the calls of the last answer that have no answer yet: their messages, to be appended and saved.

    What a function raises is told to the model in words of ours; with `tell_errors=False` it is raised.
    """
    calls = calls_to_make(gate, run, past_messages(messages), functions, FRAMEWORK, tell_errors=tell_errors)
    return [_message(call.wanted, call.made()) for call in calls]


async def atool_messages(
    gate: AgentGate, run: str, messages: Sequence[Any], functions: Functions, *, tell_errors: bool = True
) -> list[dict[str, Any]]:
    """Make the calls of the last answer that have no answer yet, awaiting them: as `tool_messages`."""
    calls = calls_to_make(gate, run, past_messages(messages), functions, FRAMEWORK, tell_errors=tell_errors)
    return [_message(call.wanted, await call.amade()) for call in calls]


def _message(wanted: WantedCall, told: LoopAnswer) -> dict[str, Any]:
    if wanted.kind == _CHAT:
        return {"role": "tool", "tool_call_id": wanted.id, "content": told.content}
    return {"type": _OUTPUTS[wanted.kind], "call_id": wanted.id, "output": told.content}


def past_messages(messages: Sequence[Any]) -> PastMessages:
    """The calls in messages of Chat Completions, or in items of the Responses API."""
    past, tools = PastMessages(), dict[str, str]()
    for message in messages:
        kind, role = field(message, "type"), field(message, "role")
        if kind in ("function_call", "custom_tool_call"):
            id, name = field(message, "call_id"), _name(message)
            tools[id] = name
            if kind == "function_call":
                past.called(id, name, arguments_of(field(message, "arguments")), _FUNCTION)
            else:
                past.called(id, name, field(message, "input"), _CUSTOM, free_text=True)
        elif kind in _OUTPUTS.values():
            _answered(past, tools, field(message, "call_id"), field(message, "output"))
        elif role == "tool":
            _answered(past, tools, field(message, "tool_call_id"), field(message, "content"))
        elif role == "assistant" and field(message, "tool_calls"):
            past.next_turn()
            for call in field(message, "tool_calls"):
                tools[field(call, "id")] = _chat_call(past, call)
        elif role == "user":
            past.next_turn()
    return past


def _name(item: Any) -> str:
    """The name of a tool, with that of its namespace: two of them may have tools of one name."""
    name, namespace = field(item, "name"), field(item, "namespace")
    return f"{namespace}.{name}" if isinstance(namespace, str) and namespace not in ("", name) else str(name)


def _chat_call(past: PastMessages, call: Any) -> str:
    """Add a call of Chat Completions; its tool."""
    id, function, custom = field(call, "id"), field(call, "function"), field(call, "custom")
    if function is not None:
        name: str = field(function, "name")
        past.called(id, name, arguments_of(field(function, "arguments")), _CHAT)
    else:
        name = field(custom, "name")
        past.called(id, name, field(custom, "input"), _CHAT, free_text=True)
    return name


def _answered(past: PastMessages, tools: dict[str, str], id: str, content: Any) -> None:
    past.answered(id, result=not is_text_for_model(tools.get(id, ""), text_of(content)))
