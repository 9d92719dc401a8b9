# ruff: noqa: E402 - whether FastMCP is there is checked before it is imported
"""
FastMCP: every effect of a server's tools happens once for each key.

    mcp = FastMCP("shop")
    mcp.add_middleware(OncewardMiddleware(gate))        # after every other one, so that it is next to the tool

The client's side is `onceward.agents.mcp.KeyedClient`; the names in `_meta` are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from onceward.agents._requirements import require

require("fastmcp", "4.0", "fastmcp")

from fastmcp.exceptions import DisabledError, NotFoundError, ToolError, ValidationError
from fastmcp.server.dependencies import without_injected_parameters
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.server.middleware.error_handling import RetryMiddleware
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.utilities.types import get_cached_typeadapter
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, TextContent
from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from onceward._core.errors import ConfigurationError, KeyInvalid, KeyMissing
from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import FailedResult, Framework, NotFinal, NotKept
from onceward.agents.mcp import BEFORE_CODES, load_result, plain_result, principal_now, refusal_of_key
from onceward.agents.mcp_calls import REMEMBERED, Made, PassedError, ServedCall, ServedCalls
from onceward.agents.mcp_fields import CODE, REPLAYED
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool, declared_tool, tool_from_annotations

__all__ = ["OncewardMiddleware"]


class OncewardMiddleware(Middleware):
    """
    Tool calls go through a gate. Add it last: a middleware that repeats calls must be outside of it.

    `run` names the piece of work for clients that send no keys: a text, or a function of the middleware's context.
    `require_key` refuses calls that have neither. `scope_of` says whose call it is, given the context, on a server with
    many tenants. `trust_annotations` believes what the server's own annotations say of its tools.
    """

    def __init__(
        self,
        gate: AgentGate,
        *,
        run: str | Callable[[MiddlewareContext[Any]], str | None] | None = None,
        require_key: bool = False,
        scope_of: Callable[[MiddlewareContext[Any]], str] | None = None,
        trust_annotations: bool = False,
    ) -> None:
        self._calls = ServedCalls(gate, run=run, require_key=require_key, scope_of=scope_of)
        self._trust_annotations = trust_annotations
        self._signatures: dict[int, tuple[Any, TypeAdapter[Any] | None]] = {}

    async def delivered(self) -> None:
        """The client has every answer so far; for the end of a server that was given a run."""
        await self._calls.delivered()

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """Called by FastMCP around each call of a tool."""
        message, fast = context.message, context.fastmcp_context
        known = None
        if fast is not None:
            self._check_place(fast.fastmcp.middleware)
            known = await fast.fastmcp.get_tool(message.name)
            if known is None:
                return await call_next(context)  # FastMCP says that there is no such tool.
        arguments, declared = message.arguments or {}, self._declared(known)
        if self._calls.gate.tool(message.name, declared).gated:
            self._check_arguments(known, arguments)
        call = ServedCall(message.name, arguments, _meta_of(fast), context, principal_now())
        try:
            made = await self._calls.make(
                call, lambda: _answered(context, call_next), framework=FRAMEWORK, declared=declared
            )
        except (KeyMissing, KeyInvalid) as error:
            raise refusal_of_key(error) from error
        return _for_client(made)

    def _declared(self, known: Any) -> Tool | None:
        if known is None:
            return None
        said = declared_tool(getattr(known, "fn", None))
        return tool_from_annotations(known.annotations) if said is None and self._trust_annotations else said

    def _check_arguments(self, known: Any, arguments: dict[str, Any]) -> None:
        """Refuse arguments that the tool does not take, before a key is claimed for them; as FastMCP would."""
        fn = getattr(known, "fn", None)
        if fn is None:
            return
        if id(fn) not in self._signatures:
            if len(self._signatures) >= REMEMBERED:
                self._signatures.clear()
            self._signatures[id(fn)] = fn, _signature(fn)  # With the function, so that its id stays its own.
        adapter = self._signatures[id(fn)][1]
        if adapter is None:
            return
        try:
            adapter.validate_python(arguments)
        except PydanticValidationError as error:
            raise ValidationError(str(error), log_level=logging.WARNING) from error

    def _check_place(self, chain: list[Middleware]) -> None:
        """Refuse to be outside of what repeats calls: the tool would run several times in one operation."""
        mine = next((place for place, one in enumerate(chain) if one is self), None)
        if mine is not None and any(isinstance(one, RetryMiddleware) for one in chain[mine + 1 :]):
            raise ConfigurationError(
                "RetryMiddleware is between OncewardMiddleware and the tools, where it would repeat effects: add "
                "OncewardMiddleware after it"
            )


def _signature(fn: Callable[..., Any]) -> TypeAdapter[Any] | None:
    """Validates arguments as FastMCP does, for a function that does nothing; None if that cannot be made."""
    try:
        bare = without_injected_parameters(fn)

        @wraps(bare)
        def nothing(*args: Any, **kwargs: Any) -> None:
            return None

        return get_cached_typeadapter(nothing)
    except Exception:
        return None  # FastMCP checks them all the same, after the claim.


def _meta_of(fast: Any) -> Mapping[str, Any]:
    """The request's `_meta`. The message of the middleware has lost it; a call within the server has none."""
    request = None if fast is None else fast.request_context
    meta = None if request is None else request.meta
    return meta if isinstance(meta, Mapping) else {}


async def _answered(context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
    """The server's answer; raises what is no answer to keep."""
    try:
        result = await call_next(context)
    except (NotFoundError, DisabledError) as error:
        raise NotFinal(PassedError(error)) from error
    except ValidationError as error:
        if isinstance(error.__cause__, PydanticValidationError):
            raise NotFinal(PassedError(error)) from error  # The arguments, and not the tool.
        raise
    except MCPError as error:
        if error.error.code in BEFORE_CODES:
            raise NotFinal(PassedError(error)) from error
        raise
    except ToolError as error:
        if error.__cause__ is None:
            raise NotFinal(PassedError(error)) from error  # An error that the tool tells.
        raise FailedResult(None, _words(error)) from error
    if isinstance(result, InputRequiredToolResult) or (isinstance(result, ToolResult) and result.is_error):
        raise NotFinal(result)
    return result


def _words(error: ToolError) -> str:
    """What FastMCP says of a crash. Of some it says "please retry", which must not be read in doubt."""
    said = str(error)
    return type(error.__cause__).__name__ if "retry" in said.lower() else said


def _for_client(made: Made) -> ToolResult:
    result = made.result
    if isinstance(result, PassedError):
        raise result.error
    if isinstance(result, ForModel):
        return ToolResult(content=[TextContent(text=result.text)], meta={CODE: result.code}, is_error=True)
    if made.replayed and isinstance(result, ToolResult):
        return result.model_copy(update={"meta": {**(result.meta or {}), REPLAYED: True}})
    return result


def _dump(result: Any) -> Any:
    if not isinstance(result, ToolResult):
        return NotKept(result)  # A shape of an extension, such as a task: it cannot be made anew.
    sent = CallToolResult(content=result.content, structured_content=result.structured_content, _meta=result.meta)
    return sent.model_dump(mode="json", by_alias=True, exclude_none=True)


def _load(value: Any, call: ToolCall) -> ToolResult:
    return _tool_result(load_result(value, call))


def _plain(value: Any, call: ToolCall) -> ToolResult:
    return _tool_result(plain_result(value, call))


def _tool_result(sent: CallToolResult) -> ToolResult:
    return ToolResult(content=sent.content, structured_content=sent.structured_content, meta=sent.meta)


FRAMEWORK = Framework("fastmcp", dump=_dump, load=_load, plain=_plain)
