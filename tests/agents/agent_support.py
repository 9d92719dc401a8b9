"""Agents in both colours from one text, and a world that counts what is done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from onceward.agents import AgentGate, AgentRun, ToolCall


class Colour:
    """The same calls, blocking or awaiting, from one text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.awaits = name == "async"
        self._loop = asyncio.new_event_loop() if self.awaits else None

    def call(self, gate: AgentGate, call: ToolCall, fn: Callable[[], Any], **more: Any) -> Any:
        """One tool call through a gate."""
        return self.do(gate.acall(call, _awaiting(fn), **more)) if self.awaits else gate.call(call, fn, **more)

    def run(self, run: AgentRun, tool: str, arguments: Any, fn: Callable[[], Any], **more: Any) -> Any:
        """One tool call of a run."""
        if self.awaits:
            return self.do(run.acall(tool, arguments, _awaiting(fn), **more))
        return run.call(tool, arguments, fn, **more)

    def delivered(self, run: AgentRun) -> None:
        """The answers of a run have arrived."""
        self.do(run.adelivered()) if self.awaits else run.delivered()

    def open_call(self, gate: AgentGate, call: ToolCall, **more: Any) -> Any:
        """A call that somebody else makes."""
        return self.do(gate.aopen_call(call, **more)) if self.awaits else gate.open_call(call, **more)

    def end(self, held: Any, result: Any) -> Any:
        """It returned."""
        return self.do(held.end(result)) if self.awaits else held.end(result)

    def fail(self, held: Any, error: BaseException, *, tell_errors: bool) -> Any:
        """It raised."""
        failing = held.fail(error, tell_errors=tell_errors)
        return self.do(failing) if self.awaits else failing

    def do(self, work: Any) -> Any:
        """Await something."""
        assert self._loop is not None
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """The end of its loop."""
        if self._loop is not None:
            self._loop.close()


def _awaiting(fn: Callable[[], Any]) -> Callable[[], Any]:
    async def run() -> Any:
        await asyncio.sleep(0)
        return fn()

    return run


class Effects:
    """The outside world: counts what was done to it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> dict[str, int]:
        self.count += 1
        return {"number": self.count}

    def failing(self) -> dict[str, int]:
        """Have the effect, and raise."""
        self.count += 1
        raise TimeoutError("no answer came")
