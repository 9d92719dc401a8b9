"""
What a server answered to a call, what is stored of it, and the answers that we write ourselves.

Stored is the text of the result as the server wrote it, so that a replay has its bytes. Not stored, and the key is free
again: JSON-RPC errors and `isError`, because the server has told what came of the call; and results that are not the
last word (`input_required`, a task), because the call goes on elsewhere.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from onceward.agents.framework import FailedResult, Framework
from onceward.agents.mcp_fields import CODE, REPLAYED
from onceward.agents.mcp_proxy.messages import Id, RpcMessage, members_at
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL, NOT_SENT = -32700, -32600, -32602, -32603, -32000
"""Codes of JSON-RPC; the last is from the range that is free for implementations."""


class Answered(Exception):
    """The server answered, and what it said is not kept: it goes to the client as it came, and the key is free."""

    def __init__(self, answer: RpcMessage) -> None:
        super().__init__("the server answered with an error, or asks for something first")
        self.answer = answer


class NotSent(Exception):
    """The call never reached the server: nothing happened, and the key is free."""


class ServerGone(RuntimeError):
    """The server ended, or the connection to it, before it answered: nobody knows what happened."""


class Received(NamedTuple):
    """An answer of the server to a call, and how its errors are to be taken."""

    message: RpcMessage
    errors_leave_doubt: bool = False


class Kept(NamedTuple):
    """A stored result, and the call that it answers."""

    text: str
    call: ToolCall


def _dump(received: Received) -> str:
    message, result = received.message, received.message.get("result")
    if message.get("error") is not None and "result" not in message.members:
        raise Answered(message)
    if not isinstance(result, dict) or "error" in message.members:
        raise FailedResult(message, "the server's answer has no result that can be read")
    if result.get("isError") is True and received.errors_leave_doubt:
        raise FailedResult(message, _first_text(result))
    if result.get("isError") is True or result.get("resultType", "complete") != "complete" or "task" in result:
        raise Answered(message)
    return message.raw("result")


def _first_text(result: dict[str, Any]) -> str:
    content = result.get("content")
    texts = [one.get("text") for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    return next((text for text in texts if isinstance(text, str)), "the server reported an error")


def _plain(value: Any, call: ToolCall) -> Kept:
    """A result of what a person reconciled: plain data of their own."""
    text = value if isinstance(value, str) else json.dumps(value)
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": False}
    if isinstance(value, dict):
        result["structuredContent"] = value
    return Kept(json.dumps(result), call)


FRAMEWORK = Framework(
    "mcp-proxy", dump=_dump, load=Kept, plain=_plain, control_flow=(Answered, NotSent)
)  # An error of the server is raised, so that `AgentRun` leaves its number to the next equal call.


def id_text(id: Id) -> str:
    """An id as JSON."""
    return json.dumps(id)


def answer(id: str, result: str) -> bytes:
    """An answer with a result, both as JSON."""
    return f'{{"jsonrpc":"2.0","id":{id},"result":{result}}}'.encode()


def refusal(id: str, code: int, message: str) -> bytes:
    """An answer with an error. `id` is JSON."""
    error = json.dumps({"code": code, "message": message})
    return f'{{"jsonrpc":"2.0","id":{id},"error":{error}}}'.encode()


def replay(id: str, kept: Kept) -> bytes:
    """A stored result as the answer to another call; every byte of it but the mark that it is a replay."""
    return answer(id, _marked(kept.text))


def for_model(id: str, words: ForModel, *, complete: bool) -> bytes:
    """Words for the model, as the result of a call. `complete`: the client's protocol wants that said."""
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": words.text}],
        "isError": True,
        "_meta": {CODE: words.code},
    }
    if complete:
        result["resultType"] = "complete"
    return answer(id, json.dumps(result))


def _marked(result: str) -> str:
    """A result with the mark of a replay in its `_meta`."""
    try:
        members, _ = members_at(result, 0)
    except RecursionError:  # It was read when it came, from a place with more room left. It is an answer all the same.
        return result
    metas = [one for one in members if one.name == "_meta"]
    mark = f"{json.dumps(REPLAYED)}:true"
    if not metas or not isinstance(metas[-1].value, dict):
        rest = result[1:].lstrip(" \t\n\r")
        return f'{{"_meta":{{{mark}}}{"" if rest.startswith("}") else ","}{rest}'
    meta = metas[-1]
    if REPLAYED in meta.value:
        return result
    inside = meta.start + 1
    return f"{result[:inside]}{mark}{',' if meta.value else ''}{result[inside:]}"
