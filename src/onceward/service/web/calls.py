"""
One call: who makes it, and what it says. And the door that it comes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from onceward import RateLimitError, TokenInvalid
from onceward.http.serving.identity import Identity, identity_of
from onceward.http.serving.profile import Profile
from onceward.service.access import AsyncAccess, Caller, FloodControl, bearer, client_address
from onceward.service.access.addresses import Network
from onceward.service.web.faults import RequestMalformed


class Door:
    """Who may come in. Whoever has a valid token is never slowed; everybody else is counted by address."""

    def __init__(self, access: AsyncAccess, flood: FloodControl, trusted: Sequence[Network] = ()) -> None:
        self.access = access
        self._flood = flood
        self._trusted = trusted

    async def admit(self, request: Request) -> Caller:
        """The caller; `TokenInvalid`, or `RateLimitError` for an address that has tried too often."""
        try:
            token = bearer(request.headers.getlist("authorization"))
            if token is None:
                raise TokenInvalid("this needs a token: send `Authorization: Bearer TOKEN`")
            return await self.access.authenticate(token)
        except TokenInvalid:
            self._slow(request)
            raise

    def greet(self, request: Request) -> None:
        """Somebody without a token, where none is needed."""
        self._slow(request)

    def _slow(self, request: Request) -> None:
        peer = request.client.host if request.client is not None else "unknown"
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        seconds = self._flood.retry_after(client_address(peer, headers, self._trusted))
        if seconds is not None:
            raise RateLimitError(
                "too many calls without a valid token from this address", retry_after_seconds=float(seconds)
            )


class Call:
    """One call, as an endpoint's function sees it."""

    def __init__(self, request: Request, caller: Caller | None, body: Any) -> None:
        self.request = request
        self._caller = caller
        self.body = body
        """What was sent, as the endpoint's own type; None if it takes nothing."""

    @property
    def caller(self) -> Caller:
        """Who is calling."""
        if self._caller is None:
            raise TokenInvalid
        return self._caller

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str | None:
        """A parameter of the query; refused if it is there twice."""
        values = self.request.query_params.getlist(name)
        if len(values) > 1:
            raise RequestMalformed(f"the parameter {name} is there {len(values)} times; send it once")
        return values[0] if values else None

    def identity(self, profile: Profile) -> Identity | None:
        """The key or the step that this call names."""
        headers = [(name.lower(), value) for name, value in self.request.headers.raw]
        return identity_of(headers, profile)
