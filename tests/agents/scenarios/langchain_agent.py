"""
LangChain's `create_agent`: one answer of the model with two calls, each a task of its own; resumed by its thread.

AGENT_MODE is how it is invoked: `sync` (the default), `exit` (LangGraph saves only when it ends, so that a restart asks
anew), `exit-named` (as that, and the application names the run).
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from typing import Any

from crash_kit import Kit
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from langchain_script import DONE, ScriptedModel, calls, read
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from onceward.agents import Tool
from onceward.agents.langchain import OncewardMiddleware

kit = Kit()
mode = os.environ.get("AGENT_MODE", "sync")
durability: Any = mode.removesuffix("-named")
notified = threading.Event()
"""The first call is done, and LangGraph has it on disk, if it saves that before the end."""
if kit.restarted and mode == "sync":
    notified.set()


def is_notice(writes: Any) -> bool:
    """Whether these writes of a task have the first call's answer."""
    return any("notified" in str(value) for _, value in writes)


class Saver(SqliteSaver):
    """Says when the first call is saved."""

    def put_writes(self, config: Any, writes: Any, *more: Any, **named: Any) -> None:
        super().put_writes(config, writes, *more, **named)
        if is_notice(writes):
            notified.set()


class AsyncSaver(AsyncSqliteSaver):
    """Says when the first call is saved."""

    async def aput_writes(self, config: Any, writes: Any, *more: Any, **named: Any) -> None:
        await super().aput_writes(config, writes, *more, **named)
        if is_notice(writes):
            notified.set()


class Outermost(AgentMiddleware[Any, Any]):
    """What stands between the answer of a call and the framework."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self.answered(handler(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self.answered(await handler(request))

    def answered(self, answer: Any) -> Any:
        if answer.name == "notify" and mode != "sync":
            notified.set()
        if answer.name == "charge":
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
    """Both calls at once, with ids of their own in every process; then the end."""
    kit.model_reads(read(messages))
    if messages[-1].type == "tool":
        kit.die_at("saved")
        return DONE
    return calls((f"n-{os.getpid()}", "notify", {"order": "42"}), (f"c-{os.getpid()}", "charge", {"order": "42"}))


def agent(saver: Any) -> Any:
    """The agent as its user wrote it."""
    gate = kit.gate(notify=Tool("blind"))
    run = os.environ.get("AGENT_RUN") if mode == "exit-named" else None
    gated = [OncewardMiddleware(gate, run)] if gate is not None else []
    return create_agent(ScriptedModel(script=script), tools(), middleware=[Outermost(), *gated], checkpointer=saver)


CONFIG: Any = {"configurable": {"thread_id": "t1"}}
given: Any = None if kit.restarted and mode == "sync" else {"messages": [("user", "charge order 42")]}
path = str(kit.folder / "graph.db")


async def amain() -> None:
    """Awaiting."""
    async with AsyncSaver.from_conn_string(path) as saver:
        await agent(saver).ainvoke(given, CONFIG, durability=durability)


if mode == "exit":
    warnings.filterwarnings("ignore", message="durability='exit'")  # It is what this mode is about.
if kit.awaits:
    asyncio.run(amain())
else:
    with Saver.from_conn_string(path) as saver:
        agent(saver).invoke(given, CONFIG, durability=durability)
kit.finished()
