"""
The calls that an MCP server is asked for, and how each goes through a gate: by the key that the client sent, by the
tool's own template, or by its place in a run. Shared by the SDK's extension and FastMCP's middleware.

    keys = ServedCalls(gate, run=None, require_key=False, scope_of=None)
    made = await keys.make(ServedCall(name, arguments, meta, context, principal), fn, framework=..., declared=...)

A key belongs to whoever sent it: on a server with authentication, the key of one client never finds the answer that
another was given. Templates belong to the server's author, who separates tenants with `scope_of`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError, KeyInvalid, KeyMissing
from onceward._core.keys import length_prefixed
from onceward.agents.agent_gate import AgentGate
from onceward.agents.agent_run import AgentRun
from onceward.agents.framework import Framework
from onceward.agents.mcp_fields import KEY
from onceward.agents.tool_call import ToolCall, check_run
from onceward.agents.tools import Tool

REMEMBERED = 1_000
"""Tenants and runs that a server remembers; what is forgotten is found again in the store."""


class ServedCall(NamedTuple):
    """One call, as a server got it."""

    tool: str
    arguments: dict[str, Any]
    meta: Mapping[str, Any]
    context: Any
    """The framework's own, for `run` and `scope_of`."""
    principal: tuple[str | None, ...] | None = None
    """Who is authenticated: client, issuer, subject."""


class Made(NamedTuple):
    """What came of it."""

    result: Any
    """The framework's result, or `ForModel`."""
    replayed: bool
    """Whether the tool was not run now."""


class PassedError:
    """An error that the framework answers with before anything has happened: raised again behind the gate."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class ServedCalls:
    """The gate of one server."""

    def __init__(
        self,
        gate: AgentGate,
        *,
        run: str | Callable[[Any], str | None] | None,
        require_key: bool,
        scope_of: Callable[[Any], str] | None,
    ) -> None:
        self.gate = gate
        self._run = check_run(run) if isinstance(run, str) else run
        self._require_key, self._scope_of = require_key, scope_of
        self._gates: OrderedDict[str, AgentGate] = OrderedDict()
        self._runs: OrderedDict[tuple[str, str], AgentRun] = OrderedDict()

    async def make(
        self, call: ServedCall, fn: Callable[[], Awaitable[Any]], *, framework: Framework, declared: Tool | None
    ) -> Made:
        """Make a call once, if it has an identity; a call without one is made as it is, unless keys are demanded."""
        gate = self._gate_of(call)
        tool = gate.tool(call.tool, declared)
        if not tool.gated:
            return Made(await fn(), False)
        key, run = self._key_of(call), self._run_of(call)
        ran = False

        async def once() -> Any:
            nonlocal ran
            ran = True
            return await fn()

        if key is None and tool.key is None:
            if run is None:
                self._refuse_if_demanded(call)
                return Made(await fn(), False)
            numbered = await self._numbered(gate, run)
            result = await numbered.acall(call.tool, call.arguments, once, framework=framework, declared=declared)
        else:
            asked = ToolCall(run or "", call.tool, call.arguments, key=key)
            result = await gate.acall(asked, once, framework=framework, declared=declared, tell_errors=True)
        return Made(result, not ran)

    async def delivered(self) -> None:
        """The client has every answer so far: equal calls of a run from now on are others."""
        for run in list(self._runs.values()):
            await run.adelivered()

    def _gate_of(self, call: ServedCall) -> AgentGate:
        if self._scope_of is None:
            return self.gate
        scope = self._scope_of(call.context)
        if not isinstance(scope, str) or not scope:
            raise ConfigurationError(
                "scope_of found no tenant for this call, so it was not made: return the tenant's scope, "
                "or refuse callers without a tenant earlier"
            )
        found = self._gates.get(scope)
        if found is None:
            found = self._gates[scope] = self.gate.scoped(scope)
            if len(self._gates) > REMEMBERED:
                self._gates.popitem(last=False)
        return found

    def _key_of(self, call: ServedCall) -> str | None:
        key = call.meta.get(KEY)
        if key is None:
            return None
        if not isinstance(key, str) or not key:
            raise KeyInvalid(f"_meta[{KEY!r}] must be a text of 1 to 255 characters, the same when a call is repeated")
        return self._owned(call, key)

    def _run_of(self, call: ServedCall) -> str | None:
        run = self._run(call.context) if callable(self._run) else self._run
        return None if run is None else self._owned(call, check_run(run))

    def _owned(self, call: ServedCall, name: str) -> str:
        """A name of this client, which no other client can say."""
        if call.principal is None or self._scope_of is not None:
            return name
        hasher = sha256(b"onceward/mcp-principal/1")
        for part in call.principal:
            hasher.update(b"\0" if part is None else b"\1" + length_prefixed(part))
        return f"{hasher.hexdigest()[:32]}:{name}"

    def _refuse_if_demanded(self, call: ServedCall) -> None:
        if self._require_key:
            raise KeyMissing(
                f"the call of {call.tool} was not made, because it has an effect and no key. Send a key in "
                f"_meta[{KEY!r}], the same one whenever this call is repeated (onceward.agents.mcp.KeyedClient does)"
            )

    async def _numbered(self, gate: AgentGate, name: str) -> AgentRun:
        """The run. A client that calls again has the answers to what it asked before."""
        place = (gate.scope, name)
        run = self._runs.get(place)
        if run is None:
            run = self._runs[place] = gate.run(name)
            if len(self._runs) > REMEMBERED:
                _, forgotten = self._runs.popitem(last=False)
                await forgotten.adelivered()
        else:
            self._runs.move_to_end(place)
        await run.adelivered()
        return run
