"""
A graph of one's own with LangGraph's `ToolNode`: both calls are one task, so that a crash in one repeats both.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from crash_kit import Kit
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from langchain_script import DONE, ScriptedModel, calls, read
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from onceward.agents import Tool
from onceward.agents.langchain import tool_wrappers

kit = Kit()
notified = threading.Event()
"""The first call is done."""


def answered(answer: Any) -> Any:
    """Between the answer of a call and the framework."""
    if answer.name == "notify":
        notified.set()
    else:
        kit.die_at("answer")
    return answer


def tools() -> list[BaseTool]:
    """The tools, in the colour of this process."""

    def notify(order: str) -> dict[str, str]:
        """Notify the customer."""
        return kit.notify(order)

    def charge(order: str) -> dict[str, str]:
        """Charge the order, once the customer is notified."""
        assert notified.wait(60)
        return kit.charge(order)

    async def anotify(order: str) -> dict[str, str]:
        """Notify the customer."""
        return kit.notify(order)

    async def acharge(order: str) -> dict[str, str]:
        """Charge the order, once the customer is notified."""
        assert await asyncio.to_thread(notified.wait, 60)
        return kit.charge(order)

    return [tool("notify")(anotify), tool("charge")(acharge)] if kit.awaits else [tool(notify), tool(charge)]


def script(messages: list[BaseMessage]) -> AIMessage:
    """Both calls at once, and then the end."""
    kit.model_reads(read(messages))
    if messages[-1].type == "tool":
        kit.die_at("saved")
        return DONE
    return calls((f"n-{os.getpid()}", "notify", {"order": "42"}), (f"c-{os.getpid()}", "charge", {"order": "42"}))


def node() -> ToolNode:
    """The node, gated or not, with ours inside the wrapper that may die."""
    gate = kit.gate(notify=Tool("blind"))
    gated = tool_wrappers(gate) if gate is not None else None

    def wrap(request: Any, execute: Any) -> Any:
        return answered(gated["wrap_tool_call"](request, execute) if gated else execute(request))

    async def awrap(request: Any, execute: Any) -> Any:
        return answered(await (gated["awrap_tool_call"](request, execute) if gated else execute(request)))

    return ToolNode(tools(), wrap_tool_call=wrap, awrap_tool_call=awrap)


def graph(saver: Any) -> Any:
    """The graph as its user wrote it."""
    model = ScriptedModel(script=script)

    def think(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("think", think)
    built.add_node("tools", node())
    built.add_edge(START, "think")
    built.add_conditional_edges("think", tools_condition)
    built.add_edge("tools", "think")
    return built.compile(checkpointer=saver)


CONFIG: Any = {"configurable": {"thread_id": "t1"}}
given: Any = None if kit.restarted else {"messages": [("user", "charge order 42")]}
path = str(kit.folder / "graph.db")


async def amain() -> None:
    """Awaiting."""
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        await graph(saver).ainvoke(given, CONFIG, durability="sync")


if kit.awaits:
    asyncio.run(amain())
else:
    with SqliteSaver.from_conn_string(path) as saver:
        graph(saver).invoke(given, CONFIG, durability="sync")
kit.finished()
