"""
`KnownAddresses`: an application that remembers which of its endpoints an address leads to.

Starlette tries its routes one after the other, through three layers that catch errors. What it finds depends on method
and path only, so it is found once: after that, a request goes to its endpoint at once. Whatever is not an endpoint of
the API (pages, assets, what is refused) goes the long way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from onceward.service.web.endpoints import EndpointHandler
from onceward.service.web.problems import handle_unexpected

ADDRESSES_MAX = 1_000
"""Addresses that are remembered; then all are forgotten, and found again."""
CHARACTERS_MAX = 200
"""Of an address that is remembered: whatever a stranger makes up, the memory is a megabyte at most."""


class _Found(NamedTuple):
    handler: EndpointHandler
    names: dict[str, Any]


class KnownAddresses:
    """An ASGI application in front of another one."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._found: dict[tuple[str, str, str], _Found] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        found = None
        if scope["type"] == "http":
            address = scope["method"], scope["path"], scope.get("root_path", "")
            found = self._found.get(address) or self._look(scope, address)
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"] = dict(found.names)
        request = Request(scope, receive, send)
        try:
            response = await found.handler.serve(request)
        except Exception as error:  # As Starlette has it: answered, and passed on to the server.
            response = await handle_unexpected(request, error)
            await response(scope, receive, send)
            raise
        await response(scope, receive, send)

    def _look(self, scope: Scope, address: tuple[str, str, str]) -> _Found | None:
        """The endpoint that Starlette would call; None: let it find out."""
        for route in self._app.router.routes:
            match, more = route.matches(scope)
            if match is Match.FULL:
                if not isinstance(route, Route) or not isinstance(route.endpoint, EndpointHandler):
                    return None
                found = _Found(route.endpoint, more["path_params"])
                if sum(map(len, address)) <= CHARACTERS_MAX:
                    if len(self._found) >= ADDRESSES_MAX:
                        self._found.clear()
                    self._found[address] = found
                return found
        return None
