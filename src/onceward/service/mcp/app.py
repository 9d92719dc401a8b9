"""
The endpoint `/mcp`: JSON-RPC over POST, as MCP's streamable HTTP allows for servers without sessions and streams.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from onceward._core.errors import KeyInvalid, KeyMissing, OncewardError
from onceward.agents.mcp_fields import CODE, KEY, REPLAYED
from onceward.http.server.media_type import parse_media_type
from onceward.service.access import Caller
from onceward.service.mcp.tools import ServiceTool, instructions, make_tools
from onceward.service.web.api_calls import ApiAnswer, call_api
from onceward.service.web.bodies import BodyIntake, refuse_debtor
from onceward.service.web.calls import Authenticator
from onceward.service.web.endpoints import BODY_BYTES_MAX, WITH_BODY, ApiEndpoint, strict_application
from onceward.service.web.problems import MediaTypeUnsupported, error_response
from onceward.service.web.service_contract import AppContract

GROUP: Final = "MCP"
PATH: Final = "/mcp"
VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Of the protocol, newest first. A newer client falls back to these."""
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
_REPLAY_HEADERS = ("idempotency-replayed", "plan-replayed")


class _Refused(Exception):
    """An error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpRequest(msgspec.Struct):
    """One message of JSON-RPC. Unknown members are for later versions."""

    jsonrpc: str
    method: str | None = None
    id: str | int | UnsetType | None = UNSET
    params: Raw | UnsetType = UNSET


class InitializeParams(msgspec.Struct, rename="camel"):
    """What a client says of itself; only the version matters."""

    protocol_version: str = ""


class CallParams(msgspec.Struct):
    """A call of a tool. Arguments keep every digit: they go on as they came."""

    name: str
    arguments: Raw = Raw(b"{}")
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class McpApp:
    """The endpoint, in front of the service's own API."""

    def __init__(self, api: ASGIApp, authenticator: Authenticator, *, only_reads: Callable[[str], bool] | None) -> None:
        self._api = api
        self._authenticator = authenticator
        self._tools = make_tools(only_reads)

    def contract(self) -> AppContract:
        """What is published about it. A tool's change has its key as an argument, and the API's terms."""
        answers = ApiEndpoint("POST", PATH, cast("Any", self.serve), "Call a tool with the Model Context Protocol.",
                              refusals=WITH_BODY)  # fmt: skip
        return AppContract(GROUP, [answers], limits={"bodyBytesMax": BODY_BYTES_MAX})

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return strict_application([Route(PATH, self.serve, methods=["POST"])])

    async def serve(self, request: Request) -> Response:
        """One message."""
        try:
            # First who is calling, as everywhere. A web page cannot call this in its visitor's name: the token is no
            # cookie, so that the Origin of a request proves nothing and is not asked for.
            caller = await self._authenticator.admit(request)
            kind, _ = parse_media_type(request.headers.get("content-type", "").encode("latin-1"))
            if kind != "application/json":
                raise MediaTypeUnsupported
            account = self._authenticator.account_of(caller)
            refuse_debtor(account)
            with BodyIntake(account, most=BODY_BYTES_MAX) as intake:
                read = await intake.read(request)
                parsing = partial(_parsed, read, McpRequest, PARSE_ERROR)
                return await self._respond(request, caller, self._authenticator.parser.run(account, parsing, len(read)))
        except OncewardError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)

    async def _respond(self, request: Request, caller: Caller, parsing: Awaitable[McpRequest]) -> Response:
        id: Any = None
        try:
            message = await parsing
            if message.id is UNSET or message.method is None:
                return Response(status_code=202)  # A notification, or a response: nothing to answer.
            id = message.id
            return _json({"jsonrpc": "2.0", "id": id, "result": await self._answer(request, caller, message)})
        except _Refused as refused:
            status = 400 if refused.code in (PARSE_ERROR, INVALID_REQUEST) else 200
            said = {"code": refused.code, "message": str(refused)}
            return _json({"jsonrpc": "2.0", "id": id, "error": said}, status)

    async def _answer(self, request: Request, caller: Caller, message: McpRequest) -> Any:
        params = b"{}" if message.params is UNSET else message.params
        match message.method:
            case "initialize":
                return self._initialized(_parsed(params, InitializeParams, INVALID_PARAMS).protocol_version)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.document() for tool in self._tools.values()]}
            case "tools/call":
                return await self._call(request, caller, _parsed(params, CallParams, INVALID_PARAMS))
        raise _Refused(METHOD_NOT_FOUND, f"there is no method {str(message.method)[:80]!r} here")

    def _initialized(self, asked: str) -> dict[str, Any]:
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "onceward", "version": _version()},
            "instructions": instructions(self._tools),
        }

    async def _call(self, request: Request, caller: Caller, call: CallParams) -> dict[str, Any]:
        tool = self._tools.get(call.name)
        if tool is None:
            raise _Refused(INVALID_PARAMS, f"there is no tool {call.name[:80]!r}; there are {', '.join(self._tools)}")
        sent = (call.meta or {}).get(KEY)
        try:
            if not isinstance(sent, str | None):
                raise KeyInvalid(f"_meta[{KEY!r}] must be a text")
            given = msgspec.json.decode(call.arguments, type=tool.arguments)
            wanted = tool.request(given, caller.tenant, sent)
            answer = await call_api(self._api, request, wanted)
        except msgspec.MsgspecError as error:
            return _told(f"The arguments are not valid: {error}. Nothing was done.", "request_invalid")
        except UnicodeEncodeError:
            return _told("A key, plan or step has characters that cannot be sent. Nothing was done.", "key_invalid")
        except (KeyMissing, KeyInvalid) as error:
            return _told(str(error), error.code)
        return _result(tool, answer)


def _version() -> str:
    try:
        return version("onceward")
    except PackageNotFoundError:  # Run from a folder.
        return "0"


def _result(tool: ServiceTool, answer: ApiAnswer) -> dict[str, Any]:
    """A tool's result from what the API answered; the bytes of a replay are those of the first answer."""
    if answer.status != 200:
        return _told(*_problem(answer))
    body = answer.body if tool.shown is None else tool.shown(answer.body)
    replayed = any(name in answer.headers for name in _REPLAY_HEADERS)
    return {
        "content": [{"type": "text", "text": body.decode()}],
        "structuredContent": Raw(body),
        "isError": False,
        **({"_meta": {REPLAYED: True}} if replayed else {}),
    }


def _problem(answer: ApiAnswer) -> tuple[str, str]:
    """What the model reads of a refusal, and its code."""
    try:
        document = msgspec.json.decode(answer.body)
        code = str(document.get("code", "refused"))
        words = [str(document[name]) for name in ("title", "detail", "hint") if document.get(name)]
    except (msgspec.MsgspecError, AttributeError):
        return f"The service refused this ({answer.status}).", "refused"
    return " ".join(dict.fromkeys(words)) or f"The service refused this ({code}).", code


def _told(text: str, code: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {CODE: code}}


def _parsed(read: bytes | Raw, kind: Any, code: int) -> Any:
    try:
        return msgspec.json.decode(read, type=kind)
    except msgspec.ValidationError as error:
        raise _Refused(INVALID_REQUEST if code == PARSE_ERROR else code, str(error)) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise _Refused(code, "the body is not JSON") from None


def _json(document: dict[str, Any], status: int = 200) -> Response:
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return Response(msgspec.json.encode(document), status, headers)
