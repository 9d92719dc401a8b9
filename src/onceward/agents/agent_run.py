"""
`AgentRun` numbers the equal calls of a run where the framework keeps no history: a loop of your own, a proxy.

    run = gate.run("order-42")
    result = run.call("charge", {"order_id": "42"}, lambda: charge("42"), id=block.id)
    save(messages)          # the answer is where a restart will find it ...
    run.delivered()         # ... so an equal call from now on is another one, in any process

In one process, an equal call with another id (or without one) is another call, unless the one before came to no answer.
Across processes, a call whose answer was delivered has had its number; one that was not delivered keeps it, so that a
loop that starts over from its input is given the answers that it had. Delivered calls are records in the gate's store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onceward._core.key_derivation import input_hash
from onceward.agents.framework import PLAIN, Framework
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall, check_run
from onceward.agents.tools import Tool

if TYPE_CHECKING:
    from onceward.agents.agent_gate import AgentGate

_Identity = tuple[str, str]
_FREE: Any = object()
"""In the place of an id: a call that came to no answer. The next equal one is this again."""


class CallNumbers:
    """The numbers of equal calls that one process has seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[_Identity, tuple[int, list[Any]]] = {}

    def known(self, identity: _Identity) -> bool:
        """Whether a call like this was seen before."""
        return identity in self._numbers

    def take(self, identity: _Identity, id: object, base: int) -> int:
        """The number of a call; `base` is how many were delivered before this process saw the first."""
        with self._lock:
            start, ids = self._numbers.setdefault(identity, (base, []))
            if id is not None and id in ids:
                return start + ids.index(id)
            mine = object() if id is None else id
            if _FREE in ids:
                place = ids.index(_FREE)
                ids[place] = mine
                return start + place
            ids.append(mine)
            return start + len(ids) - 1

    def free(self, identity: _Identity, number: int) -> None:
        """This call came to no answer."""
        with self._lock:
            start, ids = self._numbers[identity]
            ids[number - start] = _FREE


class RunAttempt:
    """One attempt at a call of a run: whether it came to an answer."""

    __slots__ = ("_identity", "_numbers", "answered", "call")

    def __init__(self, numbers: CallNumbers, identity: _Identity, call: ToolCall) -> None:
        self._numbers, self._identity, self.call = numbers, identity, call
        self.answered = True

    def free(self) -> None:
        """It came to no answer, or to one that is not final: an equal call is this one again."""
        if self.answered:
            self.answered = False
            self._numbers.free(self._identity, self.call.nth)


class AgentRun:
    """One piece of work, whose equal calls are numbered here. Safe for threads."""

    def __init__(self, gate: AgentGate, run: str) -> None:
        self.name = check_run(run)
        self._gate = gate
        self._numbers = CallNumbers()
        self._undelivered: list[ToolCall] = []

    def call(
        self,
        tool: str,
        arguments: Any,
        fn: Callable[[], Any],
        *,
        id: str | None = None,
        turn: int | None = None,
        framework: Framework = PLAIN,
        declared: Tool | None = None,
        tell_errors: bool = True,
    ) -> Any:
        """Make a call once: its result, or `ForModel` with words for the model."""
        if not self._gate.tool(tool, declared).gated:
            return fn()
        identity = (tool, input_hash(arguments))
        base = 0 if self._numbers.known(identity) else self._before(tool, arguments)
        call = ToolCall(self.name, tool, arguments, self._numbers.take(identity, id, base), id, turn)
        attempt = RunAttempt(self._numbers, identity, call)
        try:
            result = self._gate.call(
                call, fn, framework=framework, declared=declared, tell_errors=tell_errors, unfinished=attempt.free
            )
        except BaseException:
            attempt.free()
            raise
        return self._came_to(attempt, result)

    async def acall(
        self,
        tool: str,
        arguments: Any,
        fn: Callable[[], Any],
        *,
        id: str | None = None,
        turn: int | None = None,
        framework: Framework = PLAIN,
        declared: Tool | None = None,
        tell_errors: bool = True,
        shield: bool = True,
    ) -> Any:
        """Make a call once, awaiting it: its result, or `ForModel` with words for the model."""
        if not self._gate.tool(tool, declared).gated:
            return await self._gate.aungated(fn)
        identity = (tool, input_hash(arguments))
        base = 0 if self._numbers.known(identity) else await self._abefore(tool, arguments)
        call = ToolCall(self.name, tool, arguments, self._numbers.take(identity, id, base), id, turn)
        attempt = RunAttempt(self._numbers, identity, call)
        asked: Any = {"framework": framework, "declared": declared, "tell_errors": tell_errors, "shield": shield}
        try:
            result = await self._gate.acall(call, fn, unfinished=attempt.free, **asked)
        except GeneratorExit:
            raise  # Garbage is being collected: no lock may be taken.
        except BaseException:
            attempt.free()
            raise
        return self._came_to(attempt, result)

    def _before(self, tool: str, arguments: Any) -> int:
        """How many equal calls there were before this object saw one; an adapter that has a history overrides it."""
        return self._gate.delivered_before(self.name, tool, arguments)

    async def _abefore(self, tool: str, arguments: Any) -> int:
        return await self._gate.adelivered_before(self.name, tool, arguments)

    def _came_to(self, attempt: RunAttempt, result: Any) -> Any:
        if isinstance(result, ForModel):
            attempt.free()
        elif attempt.answered:
            self._undelivered.append(attempt.call)
        return result

    def delivered(self, *calls: ToolCall) -> None:
        """These answers, or all so far, are where a restart will find them: equal calls from now on are others."""
        for call in calls or tuple(self._undelivered):
            self._gate.mark_delivered(call)
            self._noted(call)

    async def adelivered(self, *calls: ToolCall) -> None:
        """These answers, or all so far, are where a restart will find them: equal calls from now on are others."""
        for call in calls or tuple(self._undelivered):
            await self._gate.amark_delivered(call)
            self._noted(call)

    def _noted(self, call: ToolCall) -> None:
        with suppress(ValueError):  # Another thread has noted it meanwhile.
            self._undelivered.remove(call)
