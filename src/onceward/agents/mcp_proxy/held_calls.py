"""
Which messages of a client are held back: calls of tools that are not read-only, and what names such a call.

A call's key is the tool's template, or `_meta["dev.onceward/key"]` from the client, or its place in the run. A call
without any of these is refused, because a retry could not be told from another call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from onceward._core.errors import RequestInvalid
from onceward._core.strict_json import parse_json
from onceward.agents.agent_gate import AgentGate
from onceward.agents.agent_run import AgentRun
from onceward.agents.mcp_fields import KEY
from onceward.agents.mcp_proxy.answers import FRAMEWORK, INVALID_PARAMS, INVALID_REQUEST
from onceward.agents.mcp_proxy.messages import Id, RpcMessage, call_params
from onceward.agents.mcp_proxy.tools_file import ServerTools
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool, tool_from_annotations

_VERSION = "io.modelcontextprotocol/protocolVersion"
"""In `_meta` of every request, since the protocol of July 2026."""


class Refused(NamedTuple):
    """A message that may not pass, and why."""

    code: int
    reason: str


class HeldBack(NamedTuple):
    """A call that is claimed before the server sees it."""

    message: RpcMessage
    id: Id
    tool: str
    arguments: dict[str, Any]
    key: str | None
    declared: Tool | None
    is_modern: bool
    """Whether the client's protocol wants every result to say that it is complete."""

    @property
    def id_text(self) -> str:
        """Its id as the client wrote it."""
        return self.message.raw("id")


class CallJudge:
    """Judges calls: which pass, which are held back, and which are refused."""

    def __init__(self, gate: AgentGate, run: AgentRun | None, tools: ServerTools, *, trusts: bool) -> None:
        self._gate, self._run, self._tools, self._trusts = gate, run, tools, trusts
        self._declared: dict[str, Tool] = {}
        self._listed: set[str] = set()

    def judge(self, message: RpcMessage) -> HeldBack | Refused | None:
        """What becomes of a `tools/call`; None if it may pass."""
        params = call_params(message)
        if params is None:
            return Refused(INVALID_PARAMS, "its params have no name, or are ambiguous: nothing was run")
        name = params["name"]
        declared = self._declared.get(name)
        tool = self._gate.tool(name, declared)
        if not tool.gated or params.get("inputResponses"):
            return None
        if not isinstance(id := message.id, int | str):
            return Refused(INVALID_REQUEST, "a call needs an id, which is text or a whole number: nothing was run")
        try:
            parse_json(message.raw("params"))
        except RequestInvalid as error:
            return Refused(INVALID_PARAMS, f"{error}; nothing was run")
        arguments, meta = params.get("arguments"), params.get("_meta")
        if not isinstance(arguments, dict | None) or not isinstance(meta, dict | None):
            return Refused(INVALID_PARAMS, "arguments and _meta are objects: nothing was run")
        key = (meta or {}).get(KEY)
        if key is not None and not isinstance(key, str):
            return Refused(INVALID_PARAMS, f"_meta[{KEY!r}] must be text: nothing was run")
        if key is None and tool.key is None and self._run is None:
            return Refused(
                INVALID_PARAMS,
                f"the call of {name} has no key in _meta[{KEY!r}], and this proxy has no run to number it in: nothing "
                "was run. Send a key that a retry will have again, or start the proxy with --run",
            )
        return HeldBack(message, id, name, arguments or {}, key, declared, _VERSION in (meta or {}))

    async def make(self, held: HeldBack, ask: Any) -> Any:
        """Make a call once: what is kept of its result, or words for the model."""
        if self._run is not None and held.key is None:
            return await self._run.acall(
                held.tool, held.arguments, ask, framework=FRAMEWORK, declared=held.declared, tell_errors=True
            )
        call = ToolCall(
            "" if self._run is None else self._run.name, held.tool, held.arguments, id=str(held.id), key=held.key
        )
        return await self._gate.acall(call, ask, framework=FRAMEWORK, declared=held.declared, tell_errors=True)

    async def delivered(self, call: ToolCall) -> None:
        """The client has the answer: the next equal call of the run is another one."""
        if self._run is not None and call.key is None:
            await self._run.adelivered(call)

    def learn(self, listing: Any) -> list[str]:
        """Take in an answer to `tools/list`; after the last page, names in the tools file that no tool has."""
        if not isinstance(listing, dict) or not isinstance(listing.get("tools"), list):
            return []
        for one in listing["tools"]:
            if isinstance(one, Mapping) and isinstance(one.get("name"), str):
                self._listed.add(one["name"])
                self._believe(one["name"], one.get("annotations"))
        if listing.get("nextCursor") is not None:
            return []
        return sorted(self._tools.tools.keys() - self._listed)

    def _believe(self, name: str, annotations: object) -> None:
        said = tool_from_annotations(annotations) if self._trusts and annotations is not None else None
        if said is None:
            self._declared.pop(name, None)
        else:
            self._declared[name] = said

    def forget(self) -> None:
        """The server's tools have changed: what it said of them before counts no longer."""
        self._declared.clear()
        self._listed.clear()


def unknown_names(names: list[str]) -> str:
    """What a person is told about names in the tools file that no tool has."""
    return f"the tools file names {', '.join(map(json.dumps, names[:10]))}, and this server has no such tool"
