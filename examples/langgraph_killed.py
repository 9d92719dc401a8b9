"""
A LangGraph agent is killed with `kill -9` while it charges a card, and started again: two requests, one charge.

The tool is keyed: it sends the bank a key that is the same on every attempt, so sending again is safe.
"""

import os
import subprocess
import sys
import tempfile
from typing import Any

from bank import Bank
from bank import charge as ask
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver

from onceward import current_operation
from onceward.agents import AgentGate, Tool
from onceward.agents.langchain import OncewardMiddleware


class Script(GenericFakeChatModel):
    """In the place of a model: charge order 42, then say done."""

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


@tool
def charge(order: str) -> str:
    """Charge an order."""
    charged = ask(os.environ["BANK"], {"order": order}, current_operation().downstream_key())
    return str(charged["charge"])


def agent(resumes: bool) -> None:
    """One process: begins the thread, or goes on with it."""
    calls: Any = [{"id": "call_1", "name": "charge", "args": {"order": "42"}}]
    asks, done = AIMessage("", tool_calls=calls), AIMessage("done")
    script = Script(messages=iter([done] if resumes else [asks, done]))
    gate = AgentGate("sqlite:///agent.db", scope="live:acme", tools={"charge": Tool("keyed")})
    with gate, SqliteSaver.from_conn_string("graph.db") as saver:
        graph = create_agent(script, [charge], middleware=[OncewardMiddleware(gate)], checkpointer=saver)
        asked: Any = None if resumes else {"messages": [HumanMessage("charge order 42")]}
        ended = graph.invoke(asked, {"configurable": {"thread_id": "t1"}}, durability="sync")
    print([message.content for message in ended["messages"][-2:]])


if sys.argv[1:]:
    agent(sys.argv[1] == "resume")
else:
    with tempfile.TemporaryDirectory() as folder, Bank() as bank:
        for word in ("begin", "resume"):
            command = [sys.executable, __file__, word]
            process = subprocess.Popen(command, cwd=folder, env={**os.environ, "BANK": bank.url})
            bank.victim = process if word == "begin" else None
            print(word, "ended with", process.wait(), flush=True)
        print(f"{bank.requests} requests, {len(bank.charges)} charge")
