"""
`/ready`: whether the store answers, and where databases are. It is asked once a second at most, however many ask here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onceward._core.errors import OncewardError, RateLimitError
from onceward.runtime.environment import REAL, Environment
from onceward.service.access import AsyncAccess, FloodControl
from onceward.service.web.calls import Authenticator
from onceward.service.web.problems import error_response

REMEMBERED_SECONDS = 1.0
BURST = 100
PER_SECOND = 20.0
"""Of one address: far more than whoever watches asks, from however many checkers."""


class Readiness:
    """The endpoint. It needs no token, so it has flood control of its own: watching uses up nothing of a caller's."""

    def __init__(
        self,
        access: AsyncAccess,
        authenticator: Authenticator,
        environment: Environment = REAL,
        *,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._access = access
        self._check_besides = check
        """Asks whatever else has to answer: where databases are."""
        self._authenticator = authenticator
        self._environment = environment
        self._flood = FloodControl(environment.monotonic, burst=BURST, per_second=PER_SECOND)
        self._turn = asyncio.Lock()
        self._until = -1.0
        self._error: OncewardError | None = None

    async def serve(self, request: Request) -> Response:
        """One call."""
        try:
            wait = self._flood.retry_after(self._authenticator.address(request))
            if wait is not None:
                raise RateLimitError(f"too many calls from this address. Retry in {wait} s", retry_after_seconds=wait)
        except OncewardError as error:
            return error_response(error)
        away = await self._check()
        return JSONResponse({"status": "ready"}) if away is None else error_response(away)

    async def _check(self) -> OncewardError | None:
        async with self._turn:  # Whoever waits here has the same answer.
            if self._environment.monotonic() >= self._until:
                self._error = None
                try:
                    await self._access.check()
                    if self._check_besides is not None:
                        await self._check_besides()
                except OncewardError as error:
                    self._error = error
                self._until = self._environment.monotonic() + REMEMBERED_SECONDS
            return self._error
