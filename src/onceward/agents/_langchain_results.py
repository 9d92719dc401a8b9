"""
Results of LangChain's tools as they are stored, and given back under the id of the call that asks now.
"""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp

from onceward.agents.framework import Framework, NotKept
from onceward.agents.tool_call import ToolCall


def _dump(result: Any) -> Any:
    """A message's content, and its artifact if that is plain data. A Command acts on the graph, and is not kept."""
    if not isinstance(result, ToolMessage):
        return NotKept(result)
    return {"content": result.content, "artifact": result.artifact if _is_plain(result.artifact) else None}


def _load(kept: Any, call: ToolCall) -> ToolMessage:
    return ToolMessage(kept["content"], artifact=kept["artifact"], tool_call_id=call.id or "", name=call.tool)


def _plain(value: Any, call: ToolCall) -> ToolMessage:
    """What a probe found or a person gave, as a tool that returns it would have answered."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return ToolMessage(text, tool_call_id=call.id or "", name=call.tool)


def _is_plain(value: Any) -> bool:
    """Whether it comes back as it was: JSON's own types only."""
    if isinstance(value, dict):
        return type(value) is dict and all(type(name) is str and _is_plain(item) for name, item in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


LANGCHAIN = Framework("langchain", dump=_dump, load=_load, plain=_plain, control_flow=(GraphBubbleUp,))


def error_in(result: Any) -> ToolMessage | None:
    """The message in which a framework reports an error, if this is one."""
    for one in result if isinstance(result, list) else (result,):
        if isinstance(one, ToolMessage) and one.status == "error":
            return one
    return None
