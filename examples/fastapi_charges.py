"""
FastAPI: a charge that is sent many times, and made once, with a provider behind it that honours keys.

`guarantee="keyed"` on the route: if the handler fails without a word, the next request sends the charge again under
the same key, and the provider recognises it.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from serving import post, send_duplicates, served

from onceward import AsyncGate
from onceward.http import IncomingRequest, Route
from onceward.http.asgi import IdempotencyMiddleware

TENANTS = {"Bearer token-acme": "acme", "Bearer token-globex": "globex"}
provider: dict[str, str] = {}
"""Stands for your payment provider: one charge for each key it is sent."""
failures = ["the connection to the provider broke"]


class Order(BaseModel):
    amount: int


def tenant_of(request: IncomingRequest) -> str | None:
    tenant = TENANTS.get(request.header("authorization") or "")
    return f"test:{tenant}" if tenant else None


async def charge(order: Order, request: Request) -> dict[str, Any]:
    key = request.state.operation.downstream_key("stripe")
    made = provider.setdefault(key, f"ch_{len(provider) + 1}")
    if failures:
        raise ConnectionError(failures.pop())  # The charge is made, and the answer is lost.
    return {"charge": made, "amount": order.amount}


def application(gate: AsyncGate) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await gate.close()

    app = FastAPI(lifespan=lifespan)
    app.add_api_route("/charges", charge, methods=["POST"], status_code=201)
    app.add_middleware(
        IdempotencyMiddleware,
        gate=gate,
        scope=tenant_of,
        in_flight="wait",
        routes=[Route("/charges", require_key=True, guarantee="keyed")],
    )
    return app


def main() -> None:
    logging.disable()  # Onceward says in the log why a keyed request was answered 500; it is printed below.
    with tempfile.TemporaryDirectory() as folder:
        gate = AsyncGate(f"sqlite:///{Path(folder) / 'shop.db'}", scope="test:shop")
        with served(application(gate)) as url:
            try:
                post(f"{url}/charges", {"amount": 1250}, "o-17", "token-acme")
            except ValueError:
                print("the first one fails after the provider was asked: 500")
            requests = 1 + send_duplicates(f"{url}/charges")
    print(f"{requests} requests, {len(provider)} charges at the provider, one for each of 2 tenants")


if __name__ == "__main__":
    main()
