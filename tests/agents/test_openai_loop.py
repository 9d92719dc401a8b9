"""
Loops over OpenAI's API: Chat Completions and Responses, dicts and the SDK's objects, both colours.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from onceward._core.errors import KeyInvalid, NothingHappened
from onceward.agents import AgentGate, Tool, tool
from onceward.agents.openai import atool_messages, tool_messages

ORDER = {"order": "42"}


def chat_answer(*calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """An answer of Chat Completions with these calls."""
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


class World:
    """Where the effects are, and the loop's tools in either colour."""

    def __init__(self, path: Path, awaits: bool) -> None:
        self.path, self.awaits = path, awaits
        self.charged: list[str] = []
        self.error: BaseException | None = None

    def charge(self, order: str) -> Any:
        """Charge an order."""
        self.charged.append(order)
        if self.error is not None:
            raise self.error
        return {"charged": order, "number": len(self.charged)}

    def messages(self, messages: list[Any], run: str = "order-42", **functions: Any) -> list[dict[str, Any]]:
        """What a process of its own returns for these messages."""
        functions = functions or {"charge": self.charge}
        gate = AgentGate(f"sqlite:///{self.path}/agent.db", scope="test:agents", tools={"search": Tool("read-only")})

        async def awaiting() -> list[dict[str, Any]]:
            async with gate:
                return await atool_messages(gate, run, messages, functions)

        if self.awaits:
            return asyncio.run(awaiting())
        with gate:
            return tool_messages(gate, run, messages, functions)


@pytest.fixture(params=["def", "async def"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Both colours."""
    return World(tmp_path, request.param == "async def")


def test_a_call_that_is_made_again_has_one_effect_and_the_first_answer(world: World) -> None:
    """The model answers anew after a restart, with another id: the message is the same but for that."""
    question = {"role": "user", "content": "charge 42"}
    first = world.messages([question, chat_answer(("c1", "charge", ORDER))])
    second = world.messages([question, chat_answer(("c2", "charge", ORDER))])

    assert world.charged == ["42"]
    assert first == [{"role": "tool", "tool_call_id": "c1", "content": '{"charged": "42", "number": 1}'}]
    assert second == [first[0] | {"tool_call_id": "c2"}]


def test_equal_calls_are_numbered_from_the_messages(world: World) -> None:
    """Two in one answer and one in the next are three; all of them again are the same three."""
    for attempt in ("a", "b"):
        messages: list[Any] = [chat_answer((f"{attempt}1", "charge", ORDER), (f"{attempt}2", "charge", ORDER))]
        messages += world.messages(messages)
        messages.append(chat_answer((f"{attempt}3", "charge", ORDER)))
        messages += world.messages(messages)

        assert [json.loads(one["content"])["number"] for one in messages if one["role"] == "tool"] == [1, 2, 3]
    assert len(world.charged) == 3


@pytest.mark.fault("message-history-refusals-count-as-answers")
def test_a_call_in_doubt_keeps_its_number(world: World) -> None:
    """The model reads that it may have happened, asks again in its next answer, and meets the same doubt."""
    world.error = ConnectionError("reset")
    messages: list[Any] = [chat_answer(("c1", "charge", ORDER))]
    messages += world.messages(messages)
    world.error = None
    messages.append(chat_answer(("c2", "charge", ORDER)))
    messages += world.messages(messages)

    assert world.charged == ["42"]
    assert "failed (ConnectionError: reset), but may have happened" in messages[1]["content"]
    assert "may already have happened" in messages[3]["content"]


def test_a_failure_that_had_no_effect_may_be_tried_anew(world: World) -> None:
    """The function says that nothing happened: the key is free."""
    world.error = NothingHappened("closed")
    messages: list[Any] = [chat_answer(("c1", "charge", ORDER))]
    messages += world.messages(messages)
    world.error = None
    messages.append(chat_answer(("c2", "charge", ORDER)))
    messages += world.messages(messages)

    assert "had no effect" in messages[1]["content"]
    assert json.loads(messages[3]["content"])["charged"] == "42"


def test_only_calls_without_an_answer_are_made(world: World) -> None:
    """A loop that saved one of two answers before it died makes the other."""
    messages = [
        chat_answer(("c1", "notify", ORDER), ("c2", "charge", ORDER)),
        {"role": "tool", "tool_call_id": "c1", "content": "notified"},
    ]
    answers = world.messages(messages, notify=pytest.fail, charge=world.charge)

    assert [one["tool_call_id"] for one in answers] == ["c2"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("c1", "unknown", ORDER), "there is no tool of this name"),
        (("c1", "charge", {"wrong": "42"}), "its arguments do not fit"),
        (("c1", "charge", ["42"]), "its arguments are not a JSON object"),
    ],
)
def test_what_can_be_no_call_is_told_and_claims_nothing(world: World, call: Any, said: str) -> None:
    """The model's mistakes: it reads them, and nothing is in doubt."""
    answers = world.messages([chat_answer(call)])
    with AgentGate(f"sqlite:///{world.path}/agent.db", scope="test:agents") as gate:
        assert gate.blocking.records.list() == ()

    assert world.charged == []
    assert said in answers[0]["content"]


def test_tools_that_only_read_are_not_gated_and_their_errors_are_told(world: World) -> None:
    """Whether said in the mapping or with the decorator."""
    looked = []

    def search(order: str) -> str:
        looked.append(order)
        raise LookupError("gone")

    @tool("read-only")
    def look(order: str) -> str:
        looked.append(order)
        return "found"

    for _ in range(2):
        answers = world.messages(
            [chat_answer(("c1", "search", ORDER), ("c2", "look", ORDER))], search=search, look=look
        )

    assert len(looked) == 4
    assert answers[0]["content"] == "'search' failed (LookupError: gone), and had no effect."
    assert answers[1]["content"] == "found"


def test_the_items_of_the_responses_api_are_answered_as_such(world: World) -> None:
    """`function_call` and custom tools; numbered like the others."""
    items: list[Any] = [
        {"role": "user", "content": "charge 42"},
        {"type": "function_call", "call_id": "c1", "name": "charge", "arguments": json.dumps(ORDER)},
        {"type": "custom_tool_call", "call_id": "c2", "name": "charge", "input": "7"},
    ]
    items += world.messages(items)
    items.append({"type": "function_call", "call_id": "c3", "name": "charge", "arguments": json.dumps(ORDER)})
    items += world.messages(items)

    assert world.charged == ["42", "7", "42"]
    assert [(one["type"], one["call_id"]) for one in items if "output" in one] == [
        ("function_call_output", "c1"),
        ("custom_tool_call_output", "c2"),
        ("function_call_output", "c3"),
    ]


def test_without_the_gate_a_restart_charges_twice(world: World) -> None:
    """The control: the loop that everybody writes."""
    for id in ("c1", "c2"):
        for call in chat_answer((id, "charge", ORDER))["tool_calls"]:
            world.charge(**json.loads(call["function"]["arguments"]))

    assert world.charged == ["42", "42"]


def test_a_run_must_have_a_name(world: World) -> None:
    """A loop has no run but the one that it names."""
    with pytest.raises(KeyInvalid, match="the name of a run is"):
        world.messages([chat_answer(("c1", "charge", ORDER))], run="")


def test_objects_of_the_sdk_are_read_like_dicts(world: World) -> None:
    """The real client, over a transport that answers from a script: the message goes into the list as it is."""
    ids = iter(["c1", "c2"])

    def answer(request: httpx2.Request) -> httpx2.Response:
        told = any(one["role"] == "tool" for one in json.loads(request.content)["messages"])
        message = {"role": "assistant", "content": "done"} if told else chat_answer((next(ids), "charge", ORDER))
        choice = {"index": 0, "finish_reason": "stop" if told else "tool_calls", "message": message}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return httpx2.Response(200, json=body)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with OpenAI(api_key="none", base_url="http://model.invalid/v1", http_client=http) as client:
        for _ in range(2):
            messages: list[Any] = [{"role": "user", "content": "charge 42"}]
            while True:
                messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
                if not messages[-1].tool_calls:
                    break
                messages += world.messages(messages)

    assert messages[-1].content == "done"
    assert world.charged == ["42"]
