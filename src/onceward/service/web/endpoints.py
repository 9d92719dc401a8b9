"""
A table of endpoints (`ApiEndpoint`), and the application that it makes (`build_application`).

An endpoint says who may call it, what it takes (a msgspec struct: unknown members are refused) and what it returns. The
same table makes the OpenAPI document, so that the two cannot part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from onceward._core.errors import (
    AmbiguousIdentity,
    BodyTooLarge,
    Forbidden,
    InFlight,
    KeyInvalid,
    KeyReused,
    OncewardError,
    PlanIncomplete,
    RateLimitError,
    RequestInvalid,
    StoreUnavailable,
    TokenInvalid,
    UploadTimeout,
)
from onceward.http.server.media_type import parse_media_type
from onceward.http.server.problems import pending_response
from onceward.http.server.profile import PROFILES, Profile
from onceward.http.server.thread_offload import HEAVY_BYTES
from onceward.protocol.errors import ResourceNotFound
from onceward.protocol.usage_header import USAGE_HEADER
from onceward.service.access import Caller, Role
from onceward.service.access.accounts import Account
from onceward.service.web.bodies import BodyIntake, refuse_debtor
from onceward.service.web.calls import ApiCall, Authenticator, OnCallEnded
from onceward.service.web.problems import (
    HeadTooLarge,
    InternalError,
    MediaTypeUnsupported,
    MethodNotAllowed,
    Overloaded,
    RequestMalformed,
    error_response,
    handle_unexpected,
)
from onceward.service.web.request_head import RequestHead, head_of
from onceward.service.web.whole_response import try_to_send

BODY_BYTES_MAX = 5_000_000
"""A longer body is refused before it is read to its end."""


class EndpointResponse(NamedTuple):
    """What an endpoint's function returns: a JSON value, and how it is sent."""

    value: Any
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


def pending_or_refused(first: InFlight, profile: Profile) -> EndpointResponse:
    """The response while the first request with a key runs: a 202, or the refusal raised again, as the profile says."""
    if profile.in_flight != "accept":
        raise first
    reply = pending_response(profile, first.retry_after_seconds)
    return EndpointResponse(msgspec.Raw(reply.body), reply.status, reply.headers)


class Parameter(NamedTuple):
    """A parameter of the query, or a header."""

    name: str
    meaning: str
    schema: dict[str, Any]
    location: str = "query"


class EndpointResource(StrEnum):
    """What an endpoint is about, and so which tokens may call it, whatever their role."""

    DATABASE = "database"
    """One database, named in the path: `{namespace}` and `{database}`."""
    DATABASES = "databases"
    """The databases of `{namespace}` that the token is for; the endpoint leaves the others out."""
    RECORDS = "records"
    """Records in the databases that the token is for; for a token with a list, the endpoint leaves out all others."""
    ACCOUNT = "account"
    """Figures of the tenant's account, without any names: for every token of the tenant."""
    TENANT = "tenant"
    """Anything else of the tenant's: not for tokens that have a list of databases."""


class ApiEndpoint(NamedTuple):
    """One address and method."""

    method: str
    path: str
    run: Callable[[ApiCall], Awaitable[EndpointResponse]]
    summary: str
    response: type[Any] | None = None
    body: type[msgspec.Struct] | None = None
    role: Role = Role.READ
    """What a caller's token must at least be for."""
    about: EndpointResource = EndpointResource.TENANT
    """What it is about: unless it says so, it is not for tokens of single databases."""
    signed: bool = False
    """No token: the sender's signature over the raw body is the credential, and the app serves it by itself."""
    public: bool = False
    """No token: anybody may ask."""
    parameters: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = (200,)
    """Of successful responses."""
    keyed: bool = False
    """Whether a key or a step may come with it."""
    exact: bool = False
    """Whether numbers of the body keep every digit: those with a fraction are Decimals, and never floats."""
    example: Any = None
    """A body that works, for the page and for whoever tries it."""
    refusals: tuple[type[OncewardError], ...] = ()
    """What it may refuse with, besides what `refusals_of` adds to every endpoint of its kind. They are published."""
    bounds: Mapping[str, Mapping[str, Any]] = {}
    """Limits in force, as JSON Schema: of members of the body (`QueryRequest.sql`), or of the path (`path.id`)."""


ANYWHERE: tuple[type[OncewardError], ...] = (
    *(RequestMalformed, HeadTooLarge, UploadTimeout, ResourceNotFound, MethodNotAllowed, InternalError),
    *(Overloaded, RateLimitError),
)
"""Refusals of any address, whatever is there."""
WITH_TOKEN: tuple[type[OncewardError], ...] = (TokenInvalid, RateLimitError, Forbidden, StoreUnavailable)
WITH_BODY: tuple[type[OncewardError], ...] = (MediaTypeUnsupported, BodyTooLarge)
WITH_KEY: tuple[type[OncewardError], ...] = (KeyInvalid, PlanIncomplete, AmbiguousIdentity, KeyReused, InFlight)


def refusals_of(endpoint: ApiEndpoint) -> tuple[type[OncewardError], ...]:
    """Every error that an endpoint may respond with, besides those of `ANYWHERE`."""
    found = () if endpoint.signed or endpoint.public else WITH_TOKEN
    found += WITH_BODY if endpoint.body is not None else ()
    found += WITH_KEY if endpoint.keyed else ()
    return tuple(dict.fromkeys((*found, *endpoint.refusals)))


def build_application(
    endpoints: Iterable[ApiEndpoint],
    authenticator: Authenticator,
    *,
    body_bytes_max: int = BODY_BYTES_MAX,
    profile: Profile = PROFILES["default"],
) -> Starlette:
    """The ASGI application of some endpoints. The profile says which status a refusal has."""
    by_path: dict[str, list[ApiEndpoint]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, []).append(one)
    routes = [
        Route(path, EndpointHandler(some, authenticator, body_bytes_max, profile), methods=[one.method for one in some])
        for path, some in by_path.items()
    ]
    return strict_application(routes)


def strict_application(routes: Sequence[BaseRoute]) -> Starlette:
    """An application for these addresses only: a path with a trailing slash is another one."""
    app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
    app.router.redirect_slashes = False
    return app


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: no such address, no such method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    response = error_response(MethodNotAllowed() if status == 405 else ResourceNotFound())
    allow = (getattr(error, "headers", None) or {}).get("Allow")
    if allow:
        response.headers["allow"] = allow
    return response


EXCEPTION_HANDLERS: dict[Any, Any] = {HTTPException: _handle_http_exception, Exception: handle_unexpected}
"""For unknown addresses and methods, and for errors that were not expected."""


class EndpointHandler:
    """One address, all its methods."""

    def __init__(
        self, endpoints: Sequence[ApiEndpoint], authenticator: Authenticator, body_bytes_max: int, profile: Profile
    ) -> None:
        self._endpoints = {one.method: one for one in endpoints}
        if "GET" in self._endpoints:
            self._endpoints["HEAD"] = self._endpoints["GET"]
        self._authenticator = authenticator
        self._max = body_bytes_max
        self._profile = profile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call, as an ASGI application."""
        response = await self.serve(Request(scope, receive, send))
        await response(scope, receive, send)

    async def serve(self, request: Request) -> Response:
        """One call, from the request to the response."""
        endpoint, observer = self._endpoints[request.method], self._authenticator.observer
        head = head_of(request.scope)
        on_ended: OnCallEnded | None = None
        refused: OncewardError | None = None
        response: Response | None = None
        call: ApiCall | None = None
        intake: BodyIntake | None = None
        try:
            # First who is calling: without a token nobody learns anything, not even whether the body is valid.
            authenticator = self._authenticator
            caller = authenticator.known_caller(head) or await authenticator.admit(request)
            caller.require(role=endpoint.role)
            if observer is not None:
                on_ended = observer.begun(caller, request)
            if _is_ambiguous(head):
                raise RequestMalformed("the request has both Content-Length and Transfer-Encoding; send one of them")
            if b"%2f" in request.scope.get("raw_path", b"").lower():
                # A name cannot have a slash in it, and whoever stands in front may see another path.
                raise ResourceNotFound
            _check_resource(caller, endpoint, request.scope["path_params"])
            if request.scope["query_string"]:
                _check_query(request, endpoint)
            body, size = None, 0
            account = authenticator.account_of(caller)
            if endpoint.body is not None:
                _check_media_type(head)
                refuse_debtor(account)
                intake = BodyIntake(account, most=self._max)
                read = await intake.read(request)
                size = len(read)
                body = await self._parsed(account, read, endpoint.body, exact=endpoint.exact)
            call = ApiCall(request, caller, account, body, size)
            response = _ResultResponse(await endpoint.run(call))
        except OncewardError as error:
            refused, response = error, error_response(error, self._profile)
            if _is_ambiguous(head):
                response.headers["connection"] = "close"
        except ClientDisconnect:
            response = Response(status_code=499)
        finally:
            if call is not None and response is not None and (used := call.usage.header()):
                response.raw_headers.append((_USAGE, used.encode("latin-1")))
            if intake is not None:
                intake.give_back()  # The bytes of the body, which were held until the call is over.
            if on_ended is not None:
                on_ended(response, refused)
        return response

    async def _parsed(self, account: Account, read: bytes, kind: type[msgspec.Struct], *, exact: bool = False) -> Any:
        """What was sent, as the endpoint's own type."""
        try:
            if len(read) <= HEAVY_BYTES:
                return self._authenticator.parser.parse_at_once(account, read, kind, exact=exact)
            return await self._authenticator.parser.parse(account, read, kind, exact=exact)
        except RequestInvalid:
            raise
        except msgspec.ValidationError as error:
            raise RequestMalformed(f"the body is not valid for this endpoint: {error}") from None


class _ResultResponse(Response):
    """What an endpoint's function has returned, as JSON. Its headers are written once, and not made from a mapping."""

    def __init__(self, result: EndpointResponse) -> None:
        self.status_code, self.background = result.status, None
        self.body = msgspec.json.encode(result.value)
        headers = _JSON_HEADERS
        if result.headers:
            given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in result.headers]
            named = {name for name, _ in given}
            headers = [*(pair for pair in headers if pair[0] not in named), *given]
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), *headers]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if try_to_send(scope, self.status_code, self.raw_headers, self.body):
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


_JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_USAGE = USAGE_HEADER.encode()


def _check_media_type(head: RequestHead) -> None:
    """Refuse what is not plain JSON in UTF-8, by what its headers say."""
    for name in (b"content-type", b"content-encoding"):
        if head.single is None and len(head.all(name)) > 1:
            raise RequestMalformed(f"the header {name.decode()} was sent more than once; send it once")
    sent = head.first(b"content-type") or b""
    if sent != b"application/json":
        kind, parameters = parse_media_type(sent)
        if kind != "application/json" or parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            raise MediaTypeUnsupported
    if head.first(b"content-encoding") not in (None, b"identity"):
        raise MediaTypeUnsupported("the body is compressed; send it uncompressed")


def _is_ambiguous(head: RequestHead) -> bool:
    """Whether its end could be read in two ways: then what follows on the connection is not to be trusted, either."""
    return b"transfer-encoding" in head and b"content-length" in head


def _check_resource(caller: Caller, endpoint: ApiEndpoint, names: Mapping[str, str]) -> None:
    """Whether the resource is one of the caller's. Asked before anything is looked up, here and nowhere else."""
    if endpoint.about is EndpointResource.TENANT:
        caller.require(whole_tenant=True)
    elif endpoint.about in (EndpointResource.ACCOUNT, EndpointResource.RECORDS):
        return
    elif endpoint.about is EndpointResource.DATABASES:
        caller.require(tenant=names["namespace"])
    else:
        caller.require(tenant=names["namespace"], database=names["database"])


def _check_query(request: Request, endpoint: ApiEndpoint) -> None:
    known = {one.name for one in endpoint.parameters if one.location == "query"}
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise RequestMalformed(
            f"{unknown[0][:40]!r} is not a parameter of this endpoint; it has {', '.join(sorted(known)) or 'none'}"
        )
