"""
A Pydantic AI agent that keeps its messages in a file, as its documentation has it, and goes on from there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from crash_kit import Kit
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from onceward.agents.pydantic_ai import Onceward

kit = Kit()
saved = kit.folder / "messages.json"


def save(messages: list[ModelMessage]) -> None:
    """Keep the messages: in one step, so that a crash leaves the ones before."""
    part = saved.with_suffix(".part")
    part.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))
    part.replace(saved)


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The scripted model: two calls in one answer, then an end. Its ids are new in every process."""
    kit.model_reads(messages[-1].parts)
    if any(isinstance(message, ModelResponse) for message in messages):
        kit.die_at("saved")
        return ModelResponse([TextPart("done")])
    new = "b" if kit.restarted else "a"
    calls = [ToolCallPart(name, {"order": "42"}, tool_call_id=f"{name}-{new}") for name in ("notify", "charge")]
    return ModelResponse(calls)


class Saves(AbstractCapability[Any]):
    """Saves around every question to the model; and may die when an answer of a tool is known, and not yet saved."""

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        save(request_context.messages)
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: ModelResponse) -> ModelResponse:
        save([*request_context.messages, response])
        return response

    async def after_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, result: Any) -> Any:
        if call.tool_name == "charge":
            kit.die_at("answer")
        return result


gate = kit.gate()
agent = Agent(FunctionModel(answer), capabilities=[Saves(), *([Onceward(gate)] if gate is not None else [])])

if kit.awaits:

    @agent.tool_plain(sequential=True)
    async def notify(order: str) -> dict[str, str]:
        """The other call."""
        return kit.notify(order)

    @agent.tool_plain(sequential=True)
    async def charge(order: str) -> dict[str, str]:
        """The call that a process dies in."""
        return kit.charge(order)

else:
    agent.tool_plain(kit.notify, sequential=True)
    agent.tool_plain(kit.charge, sequential=True)

asked: dict[str, Any] = {"user_prompt": "Charge order 42, and tell them."}
if saved.exists():
    asked = {"message_history": ModelMessagesTypeAdapter.validate_json(saved.read_bytes())}
if kit.awaits:
    asyncio.run(agent.run(**asked, conversation_id="order-42"))
else:
    agent.run_sync(**asked, conversation_id="order-42")
kit.finished()
