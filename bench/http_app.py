"""
The application that the HTTP group measures: Starlette with one route that charges, bare or behind a middleware.

Nothing here imports the package: the same module runs in the peers' environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.work import Work

CHARGES = "/charges"
SLOW = "/charges/slow"
"""The same, but it takes a while: long enough for a crowd to find the first of them at work."""
SLOW_SECONDS = 0.5
STATE = "/state"
"""What has happened so far. A GET without a key, so that no middleware has a say."""


def application(middleware: Sequence[Middleware] = ()) -> Starlette:
    """The application, with this in front of its routes."""
    work = Work()

    async def charge(request: Request) -> JSONResponse:
        asked = await request.json()
        return JSONResponse({**work.effect(), "order": asked["order"]}, status_code=201)

    async def slow(request: Request) -> JSONResponse:
        await asyncio.sleep(SLOW_SECONDS)
        return await charge(request)

    async def state(request: Request) -> JSONResponse:
        return JSONResponse({"effects": work.effects, "resident_kb": resident_kb()})

    routes = [
        Route(CHARGES, charge, methods=["POST"]),
        Route(SLOW, slow, methods=["POST"]),
        Route(STATE, state, methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=middleware)


def bare(folder: Path, address: str) -> Starlette:
    """Nothing in front of it: what the others are measured against."""
    return application()


def resident_kb() -> int:
    """What this process holds in memory now."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
