"""
A LangGraph node without a model that notifies and charges in one body: after a crash, the body is entered again.

What the next node reads takes the place of what a model reads; a refusal stops the graph, and is what its user reads.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from crash_kit import Kit
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph

from onceward.agents import Tool
from onceward.agents.langchain import NodeGate
from onceward.errors import InDoubt

kit = Kit()
gate = kit.gate(notify=Tool("blind"))
once = None if gate is None else NodeGate(gate)


class State(TypedDict, total=False):
    """What the graph keeps."""

    order: str
    receipts: list[Any]


def work(state: State) -> Any:
    """Notify, then charge, in one body."""
    order = state["order"]
    if once is None:
        receipts = [kit.notify(order), kit.charge(order)]
    else:
        receipts = [
            once.call("notify", order, lambda: kit.notify(order)),
            once.call("charge", order, lambda: kit.charge(order)),
        ]
    kit.die_at("answer")
    return {"receipts": receipts}


async def awork(state: State) -> Any:
    """Notify, then charge, in one body."""
    order = state["order"]
    if once is None:
        receipts = [kit.notify(order), kit.charge(order)]
    else:
        receipts = [
            await once.acall("notify", order, lambda: kit.notify(order)),
            await once.acall("charge", order, lambda: kit.charge(order)),
        ]
    kit.die_at("answer")
    return {"receipts": receipts}


def tell(state: State) -> Any:
    """The next node."""
    kit.die_at("saved")
    kit.model_reads(state["receipts"])
    return {}


def graph(saver: Any) -> Any:
    """The graph as its user wrote it."""
    built = StateGraph(State)
    built.add_node("work", awork if kit.awaits else work)
    built.add_node("tell", tell)
    built.add_edge(START, "work")
    built.add_edge("work", "tell")
    return built.compile(checkpointer=saver)


CONFIG: Any = {"configurable": {"thread_id": "t1"}}
given: Any = None if kit.restarted else {"order": "42"}
path = str(kit.folder / "graph.db")


async def amain() -> None:
    """Awaiting."""
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        await graph(saver).ainvoke(given, CONFIG, durability="sync")


try:
    if kit.awaits:
        asyncio.run(amain())
    else:
        with SqliteSaver.from_conn_string(path) as saver:
            graph(saver).invoke(given, CONFIG, durability="sync")
except InDoubt as error:
    kit.model_reads(f"InDoubt: {error}")
kit.finished()
