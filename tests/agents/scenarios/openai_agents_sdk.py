"""
An agent of the OpenAI Agents SDK with a session, which is asked again after a crash.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from crash_kit import Kit
from openai_agents_script import Script, says, wants

from agents import Agent, FunctionTool, Runner, SQLiteSession, function_tool, set_tracing_disabled
from onceward.agents.openai_agents import gated

kit = Kit()
notified = asyncio.Event()


def blocking_tools() -> list[FunctionTool]:
    """The tools as `def`."""

    @function_tool
    def notify(order: str) -> dict[str, str]:
        """Tell the customer."""
        return kit.notify(order)

    @function_tool
    def charge(order: str) -> dict[str, str]:
        """Charge an order."""
        return kit.charge(order)

    return [notify, charge]


def awaiting_tools() -> list[FunctionTool]:
    """The tools as `async def`."""

    @function_tool
    async def notify(order: str) -> dict[str, str]:
        """Tell the customer."""
        return kit.notify(order)

    @function_tool
    async def charge(order: str) -> dict[str, str]:
        """Charge an order."""
        return kit.charge(order)

    return [notify, charge]


def in_turn(tool: Any) -> Any:
    """One after the other; and the place between the tool's answer and the framework's save."""
    outer = copy.copy(tool)

    async def invoke(context: Any, text: str) -> Any:
        if tool.name == "charge":
            await notified.wait()
        result = await tool.on_invoke_tool(context, text)
        if tool.name == "charge":
            kit.die_at("answer")
        notified.set()
        return result

    outer.on_invoke_tool = invoke
    return outer


def answer(read: Any) -> list[Any]:
    """The model: two calls, unless their answers are there."""
    kit.model_reads(read)
    if any(one.get("type") == "function_call_output" for one in read):
        kit.die_at("saved")
        return [says("done")]
    process = "second" if kit.restarted else "first"
    return [wants("notify", f"notify-{process}", order="42"), wants("charge", f"charge-{process}", order="42")]


def main() -> None:
    """Run the agent, in the colour that is asked for."""
    set_tracing_disabled(True)
    gate = kit.gate()
    tools: list[Any] = list(awaiting_tools() if kit.awaits else blocking_tools())
    tools = [in_turn(tool) for tool in (tools if gate is None else gated(gate, "order-42", tools))]
    agent = Agent(name="billing", model=Script(answer, answer), tools=tools)
    session = SQLiteSession("order-42", kit.folder / "session.db")
    if kit.awaits:
        asyncio.run(Runner.run(agent, "charge order 42", session=session))
    else:
        Runner.run_sync(agent, "charge order 42", session=session)
    kit.finished()


main()
