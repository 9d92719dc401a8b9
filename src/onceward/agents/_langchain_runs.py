"""
Which run a call of LangGraph belongs to: as the application names it, or from what the checkpointer keeps.

    tools    the thread and the user's last message, by its id; in a sub-agent, the thread and the task it works for
    nodes    the thread and the task: the same in a retry and after a crash, another one whenever the node is due again

Both are kept only if the checkpoint was on disk before the effect. Whether it is, LangGraph knows: it is said here.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import HumanMessage
from langgraph.runtime import ExecutionInfo

from onceward._core.errors import ConfigurationError
from onceward.agents.agent_run import CallNumbers
from onceward.agents.tool_call import check_run

Run: TypeAlias = str | Callable[[Any], str] | None
"""The name of a run, or a function of the framework's context that gives it."""

# Private to LangGraph, and the only places where it says these; a version without them is believed to be safe.
_CHECKPOINTER = "__pregel_checkpointer"
_DURABILITY = "__pregel_durability"

_NO_RUN = (
    "{what} belongs to no run: this graph has no checkpointer, so after a crash a repeated call could not be "
    "told from a new one. Nothing was run. Compile the graph with a checkpointer and a thread_id, name the run "
    "(run='order-42', or a function), or give the tool a key: Tool(key='charge:{{order_id}}')"
)
_NOT_SYNC = (
    "durability={mode!r} may lose the checkpoint that names this run: after a crash, calls that took place would look "
    "like new ones and take place again. Invoke the graph with durability='sync', or name the run yourself (run=...)"
)
_NO_IDS = (
    "the messages of this state have no ids, so the user's last message does not name a run, and nothing was run. "
    "Use MessagesState (its reducer add_messages gives ids), or name the run (run=...)"
)


class RunSource:
    """Where the names of runs come from. Says once if one may not survive a crash."""

    def __init__(self, run: Run) -> None:
        if run is not None and not callable(run):
            check_run(run)
        self._run = run
        self._lock = threading.Lock()
        self._warned = False

    def named(self, context: Any) -> str | None:
        """The run as the application names it; None if it leaves that to the framework."""
        if self._run is None:
            return None
        return check_run(self._run(context) if callable(self._run) else self._run)

    def of_messages(self, info: ExecutionInfo | None, config: Mapping[str, Any], asked: HumanMessage | None) -> str:
        """The run of a tool call: what the user asked for on this thread, or what a sub-agent was called for."""
        thread, frames = self._thread(info, config, "a tool call")
        work, _, _ = frames.rpartition("|")
        if ":" in work or asked is None:  # The frame of a task has its id; one that keeps its state has none.
            return "/".join(filter(None, (thread, work)))
        if asked.id is None:
            raise ConfigurationError(_NO_IDS)
        return "/".join(filter(None, (thread, work, asked.id)))

    def of_task(self, info: ExecutionInfo, config: Mapping[str, Any]) -> str:
        """The run of a call in a node: this thread and task."""
        thread, _ = self._thread(info, config, "a call in a node")
        return f"{thread}/{info.task_id}"

    def _thread(self, info: ExecutionInfo | None, config: Mapping[str, Any], what: str) -> tuple[str, str]:
        known = config.get("configurable", {})
        if info is None or info.thread_id is None or not known.get(_CHECKPOINTER, True):
            raise ConfigurationError(_NO_RUN.format(what=what))
        mode = known.get(_DURABILITY, "async")  # It is noted only if somebody chose.
        if mode != "sync":
            self._warn(_NOT_SYNC.format(mode=mode))
        return info.thread_id, info.checkpoint_ns

    def _warn(self, text: str) -> None:
        with self._lock:
            told, self._warned = self._warned, True
        if not told:
            warnings.warn(text, stacklevel=2)


def since_asked(messages: Sequence[Any]) -> tuple[HumanMessage | None, Sequence[Any]]:
    """The user's last message, and it with all that came after; everything if there is none."""
    for place in range(len(messages) - 1, -1, -1):
        if isinstance(messages[place], HumanMessage):
            return messages[place], messages[place:]
    return None, messages


class NodeNumbers:
    """
    Numbers the equal calls in one execution of a node's body. A body that is entered again counts from 0 again.

    In the loop of a node's own, a call that came to no answer keeps its number, as everywhere.
    """

    EXECUTIONS = 10_000
    """How many are remembered; an older one has long ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[Any, ...], CallNumbers] = {}

    def of(self, info: ExecutionInfo) -> CallNumbers:
        """The numbers of this execution."""
        execution = (info.thread_id, info.task_id, info.node_attempt, info.node_first_attempt_time)
        with self._lock:
            numbers = self._seen.setdefault(execution, CallNumbers())
            if len(self._seen) > self.EXECUTIONS:
                del self._seen[next(iter(self._seen))]
            return numbers
