"""The processes of the agents group: a gate by itself, `AgentGate` over it, and LangChain's middleware over that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

from bench.work import SETTLED, Work
from bench.worker import Broken

BURST = 10
"""Calls between two looks at the clock."""

Call = Callable[[str], Any]
AwaitedCall = Callable[[str], Coroutine[Any, Any, Any]]


def _gate(work: Work) -> tuple[Call, AwaitedCall]:
    from onceward import AsyncGate, Gate

    gate, awaiting = Gate("memory://", scope="test:bench"), AsyncGate("memory://", scope="test:bench")

    async def effect() -> dict[str, Any]:
        return work.effect()

    return (
        lambda key: gate.call(key, work.effect, request=work.request(key), name="charge").value,
        lambda key: awaiting.call(key, effect, request=work.request(key), name="charge"),
    )


def _agents(work: Work) -> tuple[Call, AwaitedCall]:
    from onceward.agents import AgentGate, ToolCall

    gate = AgentGate("memory://", scope="test:bench")

    async def effect() -> dict[str, Any]:
        return work.effect()

    def call(key: str) -> ToolCall:
        return ToolCall("run", "charge", work.request(key), id=key)

    return lambda key: gate.call(call(key), work.effect), lambda key: gate.acall(call(key), effect)


def _langchain(work: Work) -> tuple[Call, AwaitedCall]:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from onceward.agents import AgentGate
    from onceward.agents.langchain import OncewardMiddleware

    middleware = OncewardMiddleware(AgentGate("memory://", scope="test:bench"), run="run")

    def request(key: str) -> ToolCallRequest:
        call: Any = {"name": "charge", "args": work.request(key), "id": key, "type": "tool_call"}
        messages = [HumanMessage("charge", id="m"), AIMessage("", tool_calls=[call])]
        runtime: Any = None
        return ToolCallRequest(tool_call=call, tool=None, state={"messages": messages}, runtime=runtime)

    def handler(asked: ToolCallRequest) -> ToolMessage:
        work.effect()
        return ToolMessage("charged", tool_call_id=asked.tool_call["id"] or "", name="charge")

    async def ahandler(asked: ToolCallRequest) -> ToolMessage:
        return handler(asked)

    return (
        lambda key: middleware.wrap_tool_call(request(key), handler),
        lambda key: middleware.awrap_tool_call(request(key), ahandler),
    )


MAKERS = {"gate": _gate, "agents": _agents, "langchain": _langchain}


class Agents:
    """One way to call a tool, blocking and awaiting, fresh and replayed."""

    def __init__(self, _folder: Path, name: str) -> None:
        self._work = Work()
        self._call, self._acall = MAKERS[name](self._work)
        self._loop = asyncio.new_event_loop()
        self._keys = (f"fresh-{number}" for number in count())
        for number in range(SETTLED):
            self._call(f"settled-{number}")
            self._loop.run_until_complete(self._acall(f"asettled-{number}"))

    def check(self) -> None:
        """A replay has no effect, and a fresh call has one."""
        before = self._work.effects
        self._call("settled-1")
        self._loop.run_until_complete(self._acall("asettled-1"))
        if self._work.effects != before:
            raise Broken("a replay had an effect")
        self._call("checked")
        if self._work.effects != before + 1:
            raise Broken("a fresh call had no effect")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """As often as fits."""
        return (
            self._loop.run_until_complete(self._awaited(case, seconds))
            if case.startswith("a")
            else self._blocking(case, seconds)
        )

    def _blocking(self, case: str, seconds: float) -> dict[str, Any]:
        done, call, keys = 0, self._call, self._chosen(case)
        cpu, begin = time.process_time(), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(BURST):
                call(next(keys))
            done += BURST
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        return {"operations": done, "seconds": cpu, "cpu": cpu, "elapsed": elapsed}

    async def _awaited(self, case: str, seconds: float) -> dict[str, Any]:
        done, call, keys = 0, self._acall, self._chosen(case)
        cpu, begin = time.process_time(), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(BURST):
                await call(next(keys))
            done += BURST
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        return {"operations": done, "seconds": cpu, "cpu": cpu, "elapsed": elapsed}

    def _chosen(self, case: str) -> Any:
        if case.endswith("fresh"):
            return self._keys
        first = "a" if case.startswith("a") else ""
        return (f"{first}settled-{number % SETTLED}" for number in count())

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """There is nothing to trace here."""
        raise Broken(f"no {operations} traced operations of {case}")

    def close(self) -> None:
        """The end of its loop."""
        self._loop.close()
