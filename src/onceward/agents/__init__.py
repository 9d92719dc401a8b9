"""
Agents: every tool call of an agent happens once, in the framework that people already use.

    gate = AgentGate("sqlite:///agent.db", scope="live:acme", tools={"search": Tool("read-only")})
    agent = create_agent(model, tools, middleware=[OncewardMiddleware(gate)])        # onceward.agents.langchain

One file for each framework (`langchain`, `openai_agents`, `pydantic_ai`, `mcp`, `temporal`, `anthropic`, `openai`,
`google_adk`), imported by whoever uses it. To write another, start with `Framework`.

May import: `_core`, `runtime`, `stores`, `gate`, `retry`, `journal`; a framework only in the file of its adapter. Start
reading with `tool_call.py` (what makes two calls the same), then `agent_gate.py`, then `framework.py`.
"""

from onceward.agents.agent_gate import AgentGate
from onceward.agents.agent_run import AgentRun
from onceward.agents.framework import PLAIN, FailedResult, Framework, NotFinal, NotKept
from onceward.agents.model_text import ForModel
from onceward.agents.spend import Spend, SpendView, actual_price
from onceward.agents.tool_call import PastCall, ToolCall, number_in_history
from onceward.agents.tools import Tool, declared_tool, tool, tool_from_annotations

__all__ = [
    "PLAIN",
    "AgentGate",
    "AgentRun",
    "FailedResult",
    "ForModel",
    "Framework",
    "NotFinal",
    "NotKept",
    "PastCall",
    "Spend",
    "SpendView",
    "Tool",
    "ToolCall",
    "actual_price",
    "declared_tool",
    "number_in_history",
    "tool",
    "tool_from_annotations",
]
