"""
`Dashboard`: the pages as an ASGI application, behind a login.

Every response forbids scripts and styles other than our own, frames, and caching. Every action is a form, and is
carried out only for a session whose role allows it, from our own origin, with the session's token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from onceward._core.errors import (
    AlreadySettled,
    Forbidden,
    IllegalMove,
    OncewardError,
    RateLimitError,
    RequestInvalid,
    StoreUnavailable,
    TokenInvalid,
)
from onceward.dashboard.assets import VERSION, serve_asset
from onceward.dashboard.data import DashboardData
from onceward.dashboard.html import Content, element, join
from onceward.dashboard.layout import Chrome, NavigationEntry, fragment, notice, page
from onceward.dashboard.page import DashboardOptions, Done, Page, PageMissing, PageRequest, Shown
from onceward.dashboard.pages import PAGES
from onceward.dashboard.sessions import DashboardRole, DashboardSession, Principal, Sessions, is_form_of, is_same_origin
from onceward.runtime.environment import REAL, Environment

LOGIN_BYTES_MAX = 4_096
"""Of a login form: what a stranger can make a process hold."""
FORM_BYTES_MAX = 65_536
"""Of any other form, read once it is known who sends it. A longer result is given on the command line."""
FIELDS_MAX = 300
FRAGMENT = "x-onceward-fragment"
"""The header with which the script asks for the inside of a page."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_STATUSES: tuple[tuple[type[OncewardError], int], ...] = (
    (TokenInvalid, 401),
    (Forbidden, 403),
    (RateLimitError, 429),
    (RequestInvalid, 400),
    (StoreUnavailable, 503),
    (AlreadySettled, 409),
    (IllegalMove, 409),
)

_log = logging.getLogger("onceward.dashboard")


class Doorkeeper(Protocol):
    """Decides who may log in."""

    label: str
    """What the login form asks for."""
    help: str
    """Where to find it."""

    async def enter(self, request: Request, given: str) -> Principal:
        """Whoever gave this; `TokenInvalid` or `RateLimitError` if nobody."""

    async def again(self, request: Request, principal: Principal) -> Principal:
        """Somebody who came in before, at a later request; `TokenInvalid` if they may not any more."""


class Dashboard:
    """The pages over one store."""

    def __init__(
        self,
        data: DashboardData,
        doorkeeper: Doorkeeper,
        *,
        base: str = "",
        store_name: str = "",
        pages: Sequence[Page] = PAGES,
        options: DashboardOptions = DashboardOptions(),  # noqa: B008 - immutable
        environment: Environment = REAL,
    ) -> None:
        self.data = data
        self.sessions = Sessions(environment, cookie_path=base or "/")
        self._doorkeeper = doorkeeper
        self._base = base
        self._store_name = store_name
        self._pages = tuple(pages)
        self._options = options

    def routes(self) -> list[BaseRoute]:
        """Where everything is, to be added to an application's own."""
        found: list[BaseRoute] = [
            Route(f"{self._base}/static/{{name}}", serve_asset, methods=["GET"]),
            Route(f"{self._base}/login", self._guarded(self._login), methods=["GET", "POST"]),
            Route(f"{self._base}/logout", self._guarded(self._logout), methods=["POST"]),
        ]
        for one in self._pages:
            path = f"{self._base}{one.path}" if one.path != "/" else self._base or "/"
            found.append(Route(path, self._guarded(self._serving(one)), methods=["POST" if one.action else "GET"]))
        found.append(Route(f"{self._base}/{{rest:path}}", self._guarded(self._missing), methods=["GET", "POST"]))
        return found

    def app(self) -> Starlette:
        """An application of its own."""
        return Starlette(routes=self.routes())

    # --- requests ---

    def _guarded(self, serve: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """With the headers of every response; and an error becomes a page, never a trace."""

        async def guarded(request: Request) -> Response:
            try:
                response = await serve(request)
            except PageMissing:
                response = self._trouble(
                    request, 404, "There is no such page", "It was moved or deleted, or never existed."
                )
            except ClientDisconnect:
                response = Response(status_code=499)
            except OncewardError as error:
                status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 400)
                response = self._trouble(request, status, _title_of(status), str(error))
            except Exception:
                _log.exception("a page of the dashboard failed: %s", request.scope["path"])
                response = self._trouble(request, 500, "This page failed", "The log of this process says why.")
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return guarded

    def _serving(self, one: Page) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            session = await self._session_of(request)
            if session is None:
                return self._to_login(request)
            if one.path == "/" and not self._is_for(session.principal, one):
                return RedirectResponse(self._start_of(session.principal), 303)
            self._check_rights(session, one)
            form: dict[str, str] = {}
            if one.action:
                form = await self._form(request, FORM_BYTES_MAX)
                self._check_form(request, session, form)
            asked = PageRequest(
                self.data,
                await asyncio.to_thread(self._chrome, session),
                session,
                self._options,
                request.path_params,
                dict(request.query_params),
                form,
                request,
            )
            result = await self._run(one, asked)
            if isinstance(result, Done):
                session.said = result.said
                return RedirectResponse(self._base + result.path, 303)
            return self._shown(request, asked, one, result)

        return serve

    def _start_of(self, principal: Principal) -> str:
        """The first page that somebody may open."""
        entries = self._entries(principal)
        if not entries:
            raise Forbidden("this token cannot open any page here: log in with another")
        return self._base + entries[0].path

    async def _run(self, one: Page, asked: PageRequest) -> Shown | Done:
        if one.run_async is not None:
            return await one.run_async(asked)
        if one.run is None:
            raise PageMissing
        return await asyncio.to_thread(one.run, asked)

    def _check_rights(self, session: DashboardSession, one: Page) -> None:
        principal = session.principal
        if not self._is_for(principal, one):
            raise PageMissing
        if principal.role < one.role:
            raise Forbidden(
                f"this needs the role {one.role.word}, and this session has {principal.role.word}: log in with a "
                f"higher role"
            )

    @staticmethod
    def _check_form(request: Request, session: DashboardSession, form: dict[str, str]) -> None:
        if not is_same_origin(request) or not is_form_of(session, form.get("csrf")):
            raise Forbidden("this form did not come from a page of this session: go back, reload, and send it again")

    @staticmethod
    def _is_for(principal: Principal, one: Page) -> bool:
        is_tenant = principal.reach.tenant is not None
        return principal.may_open(one.name) and not (one.operators_only and is_tenant)

    async def _session_of(self, request: Request) -> DashboardSession | None:
        session = self.sessions.find(request)
        if session is None:
            return None
        try:
            session.principal = await self._doorkeeper.again(request, session.principal)
        except TokenInvalid:
            self.sessions.end(request, Response())
            return None
        return session

    def _to_login(self, request: Request) -> Response:
        if FRAGMENT in request.headers:
            return Response(status_code=401)
        return RedirectResponse(f"{self._base}/login", 303)

    # --- coming and going ---

    async def _login(self, request: Request) -> Response:
        given, only_look = request.query_params.get("code", ""), False
        if request.method == "POST":
            form = await self._form(request, LOGIN_BYTES_MAX)
            if not is_same_origin(request):
                raise Forbidden("this form did not come from the login page: open it, and log in there")
            given, only_look = form.get("token", "").strip(), form.get("look") == "on"
        if not given:
            return self._login_page(None, 200)
        try:
            principal = await self._doorkeeper.enter(request, given)
        except (TokenInvalid, RateLimitError) as error:
            status = 429 if isinstance(error, RateLimitError) else 401
            return self._login_page(str(error), status)
        if only_look:
            principal = _lowered(principal)
        response = RedirectResponse(self._base or "/", 303)
        self.sessions.end(request, Response())  # A session from before does not go on under another name.
        self.sessions.begin(response, principal, secure=_is_secure(request))
        return response

    def _login_page(self, trouble: str | None, status: int) -> Response:
        label, told = self._doorkeeper.label, self._doorkeeper.help
        field = element(
            "div",
            element("label", label, for_="token"),
            element("input", id="token", name="token", type="password", autocomplete="current-password", required=True,
                    aria_describedby="token-help", aria_invalid="true" if trouble else None),
            element("p", told, class_="help", id="token-help"),
            class_="field",
        )  # fmt: skip
        look = element(
            "div",
            element("input", id="look", name="look", type="checkbox"),
            element("label", "Read only: decide nothing in this session", for_="look"),
            class_="check",
        )
        form = element(
            "form",
            notice("bad", trouble, alert=True) if trouble else None,
            field,
            look,
            element("button", "Log in", class_="primary"),
            method="post",
            action=f"{self._base}/login",
        )
        body = element("div", form, class_="card narrow")
        return HTMLResponse(page(self._empty_chrome(None), "Log in", body), status)

    async def _logout(self, request: Request) -> Response:
        session = self.sessions.find(request)
        response = RedirectResponse(f"{self._base}/login", 303)
        if session is not None:
            self._check_form(request, session, await self._form(request, LOGIN_BYTES_MAX))
            self.sessions.end(request, response)
        return response

    # --- responses ---

    async def _missing(self, request: Request) -> Response:
        if await self._session_of(request) is None:
            return self._to_login(request)
        raise PageMissing

    def _shown(self, request: Request, asked: PageRequest, one: Page, shown: Shown) -> Response:
        said = asked.session.take_said()
        body: Content = shown.body if said is None else join((notice("good", said, alert=True), shown.body))
        if FRAGMENT in request.headers:
            return HTMLResponse(fragment(shown.title, body))
        return HTMLResponse(page(asked.chrome, shown.title, body, current=one.name, live=shown.live))

    def _trouble(self, request: Request, status: int, title: str, text: str) -> Response:
        session = self.sessions.find(request)
        body = notice("bad", element("p", text[:1_000]), element("a", "Back to the start", href=self._base or "/"))
        return HTMLResponse(page(self._empty_chrome(session), title, body), status)

    def _empty_chrome(self, session: DashboardSession | None) -> Chrome:
        entries = self._entries(session.principal) if session is not None else []
        return Chrome(self._base, VERSION, entries, session, {}, self._store_name)

    def _entries(self, principal: Principal) -> list[NavigationEntry]:
        return [
            NavigationEntry(one.name, one.path if one.path != "/" else "", one.title)
            for one in self._pages
            if one.title and self._is_for(principal, one)
        ]

    def _chrome(self, session: DashboardSession) -> Chrome:
        """The frame, with the numbers of what waits. It blocks for a moment at most."""
        reach, data = session.principal.reach, self.data
        entries = self._entries(session.principal)
        pages = {one.page for one in entries}
        waiting: dict[str, int] = {}
        if "doubt" in pages:
            waiting["doubt"] = len(data.in_doubt(reach).value or ())
        if "letters" in pages:
            letters = data.letters(reach).value
            waiting["letters"] = 0 if letters is None else len(letters.letters) + letters.unreadable
        return Chrome(self._base, VERSION, entries, session, waiting, self._store_name)

    @staticmethod
    async def _form(request: Request, most: int) -> dict[str, str]:
        """The fields of a form. The last of a name counts."""
        pieces, size = [], 0
        async for piece in request.stream():
            size += len(piece)
            if size > most:
                raise RequestInvalid(f"the form is longer than {most:,} bytes: use the command line for that much")
            pieces.append(piece)
        try:
            text = b"".join(pieces).decode()
            fields = parse_qsl(text, keep_blank_values=True, strict_parsing=False, max_num_fields=FIELDS_MAX)
            return dict(fields)
        except (UnicodeDecodeError, ValueError):
            raise RequestInvalid("this is not a form of the dashboard") from None


def _lowered(principal: Principal) -> Principal:
    from dataclasses import replace

    return replace(principal, role=DashboardRole.VIEW)


def _is_secure(request: Request) -> bool:
    """
    Whether the browser came by TLS: to us, or to a proxy that says so.

    Whoever claims that wrongly gets a cookie that its browser does not send back, and harms nobody.
    """
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").strip() == "https"


def _title_of(status: int) -> str:
    return {
        400: "That could not be read",
        403: "You may not do that",
        409: "It has changed since you looked",
        429: "Too many attempts",
        503: "The store does not respond",
    }.get(status, "That did not work")
