"""
Starlette: a charge that is sent many times, and made once.

The middleware stands in front of the whole application. Who is calling is read from the token; the handler finds its
operation in `request.state.operation`.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from serving import send_duplicates, served
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from onceward import AsyncGate
from onceward.http import IncomingRequest
from onceward.http.asgi import IdempotencyMiddleware

TENANTS = {"Bearer token-acme": "acme", "Bearer token-globex": "globex"}
charges: list[tuple[str, int]] = []
"""The effect."""


def tenant_of(request: IncomingRequest) -> str | None:
    tenant = TENANTS.get(request.header("authorization") or "")
    return f"test:{tenant}" if tenant else None  # None: nothing is run.


async def charge(request: Request) -> JSONResponse:
    order = await request.json()
    charges.append((request.state.operation.scope, order["amount"]))
    return JSONResponse({"charge": f"ch_{len(charges)}", **order}, status_code=201)


def application(gate: AsyncGate) -> Starlette:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await gate.close()

    return Starlette(
        routes=[Route("/charges", charge, methods=["POST"])],
        middleware=[Middleware(IdempotencyMiddleware, gate=gate, scope=tenant_of, in_flight="wait")],
        lifespan=lifespan,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gate = AsyncGate(f"sqlite:///{Path(folder) / 'shop.db'}", scope="test:shop")
        with served(application(gate)) as url:
            requests = send_duplicates(f"{url}/charges")
    print(f"{requests} requests, {len(charges)} charges, one for each of 2 tenants")


if __name__ == "__main__":
    main()
