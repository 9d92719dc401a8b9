"""
A LangGraph node with a retry policy, a checkpointer, and a key made of stable fields of its state: one charge.

LangGraph repeats the node with pauses, and resumes the thread; that neither charges twice is the key's work. Its
`jitter=True` adds up to a second to the pause. It is not full jitter, which would be anything from 0 up to the pause.
"""

import tempfile
from inspect import signature
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from onceward import current_operation
from onceward.agents import AgentGate, Tool
from onceward.agents.langchain import NodeGate

requests: list[str] = []
charges: dict[str, str] = {}


class Job(TypedDict):
    """What stays the same, however often the node is entered."""

    user_id: str
    task_id: str
    step: str


def post_charge() -> str:
    """A provider that honours keys: the answer to the first request is lost, the second gets it again."""
    requests.append(current_operation().downstream_key())
    receipt = charges.setdefault(requests[-1], f"ch_{len(charges) + 1}")
    if len(requests) == 1:
        raise ConnectionError("charged, and the answer is lost")
    return receipt


def retried(policy: RetryPolicy, add_node: Any = StateGraph.add_node) -> dict[str, Any]:
    """The policy under the name that the installed version has for it: LangGraph 0.2 calls it `retry`."""
    return {"retry_policy" if "retry_policy" in signature(add_node).parameters else "retry": policy}


POLICY = RetryPolicy(initial_interval=0.5, backoff_factor=2.0, max_interval=30.0, max_attempts=3, jitter=True)

with tempfile.TemporaryDirectory() as folder, SqliteSaver.from_conn_string(f"{folder}/graph.db") as saver:
    charge = Tool("keyed", key="{user_id}:{task_id}:{step}")
    with AgentGate(f"sqlite:///{folder}/agent.db", scope="live:acme", tools={"charge": charge}) as gate:
        once, graph = NodeGate(gate), StateGraph(Job)
        graph.add_node("charge", lambda job: print(once.call("charge", job, post_charge)), **retried(POLICY))
        graph.add_edge(START, "charge")
        app, job = graph.compile(checkpointer=saver), Job(user_id="u1", task_id="t9", step="charge")
        for thread in ("t1", "t2"):  # The job is given to the graph once more, on another thread.
            app.invoke(job, {"configurable": {"thread_id": thread}}, durability="sync")
print(f"3 entries of the node, {len(requests)} requests, {len(charges)} charge")
