"""
An agent of LangChain's that charges a customer, loses the connection, and is resumed: one charge.

The bank books the charge, its answer is lost, and the run stops. Resumed by its thread, the agent comes to the same
call. It is not made again: the model (a script) is told that it may have happened, looks, and finds it.
"""

import logging
import tempfile
from contextlib import suppress
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver

from onceward.agents import AgentGate, Tool
from onceward.agents.langchain import OncewardMiddleware

logging.disable()
bank: list[str] = []


@tool
def charge(order: str) -> str:
    """Charge an order."""
    bank.append(order)
    raise ConnectionError("booked, and the answer is lost")


@tool
def find_charge(order: str) -> str:
    """Look a charge up."""
    return f"{order} is charged" if order in bank else "not charged"


class Script(GenericFakeChatModel):
    """Says what it was given to say."""

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


wanted: Any = [[{"id": f"call-{name}", "name": name, "args": {"order": "42"}}] for name in ("charge", "find_charge")]
script = Script(messages=iter([*(AIMessage("", tool_calls=calls) for calls in wanted), AIMessage("42 is charged.")]))
kinds = {"charge": Tool("blind", check="find_charge"), "find_charge": Tool("read-only")}
thread: Any = {"configurable": {"thread_id": "t1"}}
with (
    tempfile.TemporaryDirectory() as folder,
    SqliteSaver.from_conn_string(f"{folder}/graph.db") as saver,
    AgentGate(f"sqlite:///{folder}/agent.db", scope="live:acme", tools=kinds) as gate,
):
    agent = create_agent(script, [charge, find_charge], middleware=[OncewardMiddleware(gate)], checkpointer=saver)
    with suppress(ConnectionError):
        agent.invoke({"messages": [{"role": "user", "content": "charge order 42"}]}, thread, durability="sync")
    for message in agent.invoke(None, thread, durability="sync")["messages"][2:]:
        print(f"{message.type}: {message.content}")
print(f"2 runs, {len(bank)} charge")
