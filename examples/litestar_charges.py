"""
Litestar: a charge that is sent many times, and made once, and remembered as Stripe remembers it.

With `profile="stripe"` failures are remembered, too: the same key gets the same refusal, and a new try needs a new key.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from litestar import Litestar, Request, Response, post
from litestar.middleware import DefineMiddleware
from serving import post as send
from serving import send_duplicates, served

from onceward import AsyncGate
from onceward.http import IncomingRequest
from onceward.http.asgi import IdempotencyMiddleware

TENANTS = {"Bearer token-acme": "acme", "Bearer token-globex": "globex"}
charges: list[tuple[str, int]] = []
"""The effect."""


def tenant_of(request: IncomingRequest) -> str | None:
    tenant = TENANTS.get(request.header("authorization") or "")
    return f"test:{tenant}" if tenant else None


@post("/charges")
async def charge(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    order = await request.json()
    if order["amount"] > 1_000_000:
        return Response({"error": "card_declined"}, status_code=402)
    charges.append((request.state.operation.scope, order["amount"]))
    return Response({"charge": f"ch_{len(charges)}", **order}, status_code=201)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gate = AsyncGate(f"sqlite:///{Path(folder) / 'shop.db'}", scope="test:shop")
        app = Litestar(
            [charge],
            middleware=[
                DefineMiddleware(
                    IdempotencyMiddleware,
                    gate=gate,
                    scope=tenant_of,
                    profile="stripe",
                    in_flight="wait",
                    replay_header="Idempotency-Replayed",
                )
            ],
            on_shutdown=[gate.close],
            openapi_config=None,
        )
        with served(app) as url:
            requests = send_duplicates(f"{url}/charges")
            declined = [send(f"{url}/charges", {"amount": 2_000_000}, "o-18", "token-acme") for _ in range(2)]
            print(f"declined, and declined again: {declined[0].status}, replayed {declined[1].replayed}")
    print(f"{requests + 2} requests, {len(charges)} charges, one for each of 2 tenants")


if __name__ == "__main__":
    main()
