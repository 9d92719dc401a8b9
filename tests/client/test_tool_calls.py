"""The id that a model gave its tool call, as the key: with the real types of both SDKs, and with plain dicts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message, ServerToolUseBlock, TextBlock, ToolUseBlock
from langchain_core.messages import AIMessage
from openai.types.chat import ChatCompletion, ChatCompletionMessageCustomToolCall, ChatCompletionMessageFunctionToolCall
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall
from pydantic import TypeAdapter
from pydantic_ai.messages import NativeToolCallPart, ToolCallPart

from onceward import Client, Gate, KeyMissing, tool_call_key
from onceward.errors import KeyInvalid

FUN = {"name": "charge", "arguments": '{"order": 17}'}
CALLS = {
    "anthropic": (ToolUseBlock(id="toolu_01A09", name="charge", input={"order": 17}, type="tool_use"), "toolu_01A09"),
    "anthropic, on their side": (
        ServerToolUseBlock(id="srvtoolu_01", name="web_search", input={}, type="server_tool_use"),
        "srvtoolu_01",
    ),
    "openai, chat": (
        ChatCompletionMessageFunctionToolCall.model_validate({"id": "call_9", "type": "function", "function": FUN}),
        "call_9",
    ),
    "openai, chat, custom": (
        ChatCompletionMessageCustomToolCall.model_validate(
            {"id": "call_c", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
        ),
        "call_c",
    ),
    "openai, responses": (
        ResponseFunctionToolCall(id="fc_item", call_id="call_7", name="charge", arguments="{}", type="function_call"),
        "call_7",
    ),
    "openai, responses, custom": (
        ResponseCustomToolCall(id="ctc_item", call_id="call_8", name="sql", input="", type="custom_tool_call"),
        "call_8",
    ),
    "langchain": (
        AIMessage("", tool_calls=[{"name": "charge", "args": {"order": 17}, "id": "call_l"}]).tool_calls[0],
        "call_l",
    ),
    "langchain, without its type": ({"name": "charge", "args": {"order": 17}, "id": "call_l"}, "call_l"),
    "pydantic ai": (ToolCallPart("charge", {"order": 17}, tool_call_id="pyd_1"), "pyd_1"),
    "pydantic ai, on their side": (NativeToolCallPart("web_search", {}, tool_call_id="pyd_2"), "pyd_2"),
    "bedrock": ({"toolUse": {"toolUseId": "tooluse_1", "name": "charge", "input": {"order": 17}}}, "tooluse_1"),
    "bedrock, the inner one": ({"toolUseId": "tooluse_1", "name": "charge", "input": {"order": 17}}, "tooluse_1"),
    "gemini": ({"functionCall": {"id": "fc-1", "name": "charge", "args": {"order": 17}}}, "fc-1"),
    "gemini, as its SDK names it": ({"function_call": {"id": "fc-1", "name": "charge", "args": {}}}, "fc-1"),
    "gemini, the inner one": (SimpleNamespace(id="fc-1", name="charge", args={"order": 17}), "fc-1"),
    "openai agents": (
        SimpleNamespace(
            raw_item=ResponseFunctionToolCall(
                id="fc_item", call_id="call_7", name="charge", arguments="{}", type="function_call"
            )
        ),
        "call_7",
    ),
    "a provider that leaves the type out": ({"id": "call_1", "function": FUN}, "call_1"),
}  # fmt: skip


def _stored(call: Any) -> Any:
    """A call as a loop stores it."""
    if isinstance(call, ToolCallPart | NativeToolCallPart):
        return TypeAdapter(type(call)).dump_python(call)
    if isinstance(call, SimpleNamespace):
        return {name: _stored(value) for name, value in vars(call).items()}
    return call.model_dump() if hasattr(call, "model_dump") else call


@pytest.mark.requirement("A19")
@pytest.mark.parametrize("name", CALLS)
def test_the_id_passes_unchanged(name: str) -> None:
    """
    From the SDK's own object, and from the same as a dict: what a loop stored.
    """
    call, id = CALLS[name]
    stored = _stored(call)

    assert (id, id) == (tool_call_key(call), tool_call_key(stored))


@pytest.mark.requirement("A19")
def test_an_agents_loop_retries_each_tool_under_its_own_id(tmp_path: Path) -> None:
    """
    Whole answers of both SDKs, as they are parsed from the wire; the loop runs twice, and each tool call has one row.
    """
    said = Message.model_validate(
        {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
            "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
            "content": [
                {"type": "text", "text": "I'll note both."},
                {"type": "tool_use", "id": "toolu_1", "name": "note", "input": {"text": "a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "note", "input": {"text": "a"}},
            ],
        }
    )  # fmt: skip
    also = ChatCompletion.model_validate(
        {
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": FUN}]}}],
        }
    )  # fmt: skip
    calls: list[Any] = [block for block in said.content if block.type == "tool_use"]
    calls += also.choices[0].message.tool_calls or []
    with Client(f"sqlite:///{tmp_path}/agent.db") as client:
        db = client.db("me", "notes")
        db.query("CREATE TABLE notes (text TEXT)")
        replayed = [
            db.query("INSERT INTO notes VALUES ('a')", idempotency_key=tool_call_key(call)).replayed
            for call in calls * 2
        ]

        assert replayed == [False] * 3 + [True] * 3
        assert db.query("SELECT count(*) FROM notes").rows == [[3]]


@pytest.mark.requirement("A19")
def test_a_gate_takes_it_as_a_recipe(tmp_path: Path) -> None:
    """
    In the library, too: the function's argument is the call itself.
    """
    ran: list[str] = []
    with Gate(f"sqlite:///{tmp_path}/agent.db", scope="test:me") as gate:

        @gate.once(key=lambda call: tool_call_key(call))
        def run(call: dict[str, Any]) -> str:
            ran.append(call["id"])
            return "done"

        call = {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {}}

        assert [run(call), run(call)] == ["done", "done"]
    assert ran == ["toolu_1"]


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        ("toolu_1", KeyInvalid, "that is text"),
        ([CALLS["anthropic"][0]], KeyInvalid, "one by one"),
        (TextBlock(text="hello", type="text", citations=None), KeyInvalid, "not a tool call"),
        ({"type": "text"}, KeyInvalid, "not a tool call"),
        ({"type": ["tool_use"]}, KeyInvalid, "not a tool call"),
        (None, KeyInvalid, "not a tool call"),
        ({"type": "tool_use"}, KeyMissing, "stream"),
        ({"type": "tool_use", "id": ""}, KeyMissing, "stream"),
        (ChoiceDeltaToolCall(index=0, type="function"), KeyMissing, "stream"),
        ({"functionCall": {"name": "charge", "args": {}}}, KeyMissing, "AgentGate"),
        ({"toolUse": {"name": "charge"}}, KeyMissing, "toolUseId"),
        ({"part_kind": "text", "content": "hello"}, KeyInvalid, "not a tool call"),
        ({"name": "charge"}, KeyInvalid, "not a tool call"),
        ({"type": "tool_use", "id": "a b"}, KeyInvalid, "spaces"),
        ({"type": "tool_use", "id": 17}, KeyInvalid, "must be a str"),
    ],
)
def test_what_is_no_tool_call_is_refused(call: Any, kind: type[KeyInvalid], says: str) -> None:
    """
    A key made of something else would be the wrong operation's.
    """
    with pytest.raises(KeyInvalid, match=says) as caught:
        tool_call_key(call)
    assert kind is type(caught.value)
