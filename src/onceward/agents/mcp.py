# ruff: noqa: E402 - whether the SDK is there is checked before it is imported
"""
MCP, with the Python SDK: a server whose tools happen once, and a client that says which call is which.

    once = OncewardExtension(gate)
    server = once.attach(MCPServer("shop", extensions=[once]))

    keyed = KeyedClient(client, run="order-42")
    result = await keyed.call_tool("charge", {"order_id": "42"})       # again after a time-out, under the same key

The key travels in `_meta`, because MCP has no other place that stays the same when a call is repeated: sessions and
request ids are new each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from onceward.agents._requirements import require

require("mcp", "2.1", "mcp")

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    URL_ELICITATION_REQUIRED,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    TextContent,
)
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from onceward._core.errors import ConfigurationError, KeyInvalid, KeyMissing
from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import FailedResult, Framework, NotFinal, NotKept
from onceward.agents.mcp_calls import Made, PassedError, ServedCall, ServedCalls
from onceward.agents.mcp_client import IDENTIFIER, KeyedClient, was_replayed
from onceward.agents.mcp_fields import CODE, KEY, REPLAYED
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool, declared_tool, tool_from_annotations

__all__ = ["IDENTIFIER", "KeyedClient", "OncewardExtension", "was_replayed"]

BEFORE_CODES = frozenset(
    {INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED}
)
"""Protocol errors that say that a call was not made: it is ill-formed, or asks for something first."""


class OncewardExtension(Extension):
    """
    Every effect of a server's tools happens once for each key: `MCPServer(..., extensions=[OncewardExtension(gate)])`.

    `run` names the piece of work for clients that send no keys: a text, or a function of the request's context.
    `require_key` refuses calls that have neither. `scope_of` says whose call it is, given the context, on a server with
    many tenants. `trust_annotations` believes what the server's own annotations say of its tools.
    """

    identifier = IDENTIFIER

    def __init__(
        self,
        gate: AgentGate,
        *,
        run: str | Callable[[ServerRequestContext[Any, Any]], str | None] | None = None,
        require_key: bool = False,
        scope_of: Callable[[ServerRequestContext[Any, Any]], str] | None = None,
        trust_annotations: bool = False,
    ) -> None:
        self._calls = ServedCalls(gate, run=run, require_key=require_key, scope_of=scope_of)
        self._trust_annotations = trust_annotations
        self._server: MCPServer[Any] | None = None

    def settings(self) -> dict[str, Any]:
        """What clients are told: that keys are honoured here, and where they go."""
        return {"key": KEY, "replayed": REPLAYED}

    def attach(self, server: MCPServer[Any]) -> MCPServer[Any]:
        """
        Know the server's tools; returns the server.

        The SDK shows an extension the calls, and not the tools. Knowing them, it reads their decorators and
        annotations, and answers invalid arguments before a key is claimed for them.
        """
        if not any(one is self for one in getattr(server, "_extensions", [self])):
            raise ConfigurationError("give the extension to the server first: MCPServer(..., extensions=[extension])")
        self._server = server
        return server

    async def delivered(self) -> None:
        """The client has every answer so far; for the end of a server that was given a run."""
        await self._calls.delivered()

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Called by the SDK around each call of a tool."""
        name, arguments = params.name, params.arguments or {}
        if self._server is None and self._trust_annotations:
            raise ConfigurationError("trust_annotations needs the tools: extension.attach(server)")
        known = self._known(name)
        if self._server is not None and known is None:
            return await call_next(ctx)  # The SDK says that there is no such tool.
        declared = self._declared(known)
        if known is not None and self._calls.gate.tool(name, declared).gated:
            try:
                known.fn_metadata.validate_arguments(arguments)
            except ValidationError as error:
                return error_result(f"Error executing tool {name}: {error}")
        call = ServedCall(name, arguments, params.meta or {}, ctx, principal_now())
        try:
            made = await self._calls.make(
                call, lambda: _answered(name, ctx, call_next), framework=FRAMEWORK, declared=declared
            )
        except (KeyMissing, KeyInvalid) as error:
            raise refusal_of_key(error) from error
        return _for_client(made)

    def _known(self, name: str) -> Any:
        """The SDK's own note of a tool. It has no public way to a tool's function."""
        return None if self._server is None else self._server._tool_manager.get_tool(name)

    def _declared(self, known: Any) -> Tool | None:
        if known is None:
            return None
        said = declared_tool(known.fn)
        return tool_from_annotations(known.annotations) if said is None and self._trust_annotations else said


async def _answered(name: str, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """The server's answer; raises what is no answer to keep."""
    try:
        result = await call_next(ctx)
    except MCPError as error:
        if error.code in BEFORE_CODES:
            raise NotFinal(PassedError(error)) from error
        raise
    if isinstance(result, dict) and "content" in result:
        result = CallToolResult.model_validate(result)  # An inner extension may answer in plain data.
    if isinstance(result, InputRequiredResult):
        raise NotFinal(result)
    if isinstance(result, CallToolResult) and result.is_error:
        if _has_crashed(name, result):
            raise FailedResult(result, "it raised an error")
        raise NotFinal(result)
    return result


def _has_crashed(name: str, result: CallToolResult) -> bool:
    """
    Whether a tool raised what it did not mean to, and not an error that it tells the model.

    The SDK (`UnexpectedToolError`) gives a crash one text: "Error executing tool <name>", followed by the same for a
    nested tool or resource, and nothing else. An error that was meant has its own words after the name.
    """
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    words = f"Error executing tool {name}"
    nested = (f"{words}: Error executing tool ", f"{words}: Error reading resource ")
    return len(texts) == 1 and (texts[0] == words or texts[0].startswith(nested))


def principal_now() -> tuple[str | None, ...] | None:
    """Who is authenticated in this request; None on a server without authentication."""
    token = get_access_token()
    return None if token is None else principal_components(token)


def refusal_of_key(error: KeyMissing | KeyInvalid) -> MCPError:
    """A call without the key that it needs: for the client's programmer, not for the model."""
    return MCPError(code=INVALID_PARAMS, message=str(error), data={CODE: error.code})


def error_result(text: str, code: str | None = None) -> CallToolResult:
    """Words for the model."""
    meta = None if code is None else {CODE: code}
    return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta=meta)


def _for_client(made: Made) -> HandlerResult:
    result = made.result
    if isinstance(result, PassedError):
        raise result.error
    if isinstance(result, ForModel):
        return error_result(result.text, result.code)
    if made.replayed and isinstance(result, CallToolResult):
        return result.model_copy(update={"meta": {**(result.meta or {}), REPLAYED: True}})
    return result


def dump_result(result: Any) -> Any:
    """What is kept of a result: what is sent to the client."""
    if not isinstance(result, CallToolResult):
        return NotKept(result)  # A shape of another extension, such as a task: it cannot be made anew.
    try:
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    except PydanticSerializationError:
        return NotKept(result)


def load_result(value: Any, call: ToolCall) -> CallToolResult:
    """The result that was kept."""
    return CallToolResult.model_validate(value)


def plain_result(value: Any, call: ToolCall) -> CallToolResult:
    """A result from what a probe found, or a person reconciled."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    structured = value if isinstance(value, Mapping) else {"result": value}
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


FRAMEWORK = Framework("mcp", dump=dump_result, load=load_result, plain=plain_result)
