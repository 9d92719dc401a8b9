"""A FastAPI handler behind the middleware: is a charge made once? And the same handler without the middleware."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from onceward import AsyncGate
from onceward.http.asgi import IdempotencyMiddleware
from onceward.testing.assert_once import AssertOnce
from onceward.testing.effects import Effects
from onceward.testing.once_story import DoubledEffect


def shop(effects: Effects) -> FastAPI:
    """The application; `effects` stands for the payment provider."""
    app = FastAPI()

    @app.post("/charges", status_code=201)
    async def charge(order: dict[str, Any]) -> dict[str, Any]:
        effects.record("charge")
        return {"charged": order["amount"]}

    return app


async def post(app: Any) -> tuple[int, Any]:
    """What a client sends, again and again: the same key, the same body."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        response = await client.post("/charges", json={"amount": 1250}, headers={"Idempotency-Key": "o-17"})
    return response.status_code, response.json()


def test_a_charge_is_made_once(
    assert_once: AssertOnce, onceward_async_gate: AsyncGate, onceward_effects: Effects
) -> None:
    app = shop(onceward_effects)
    app.add_middleware(IdempotencyMiddleware, gate=onceward_async_gate, scope="test:acme")

    report = assert_once(post, app)
    assert "settle.before" in report.points


def test_without_the_middleware_it_is_made_twice(assert_once: AssertOnce, onceward_effects: Effects) -> None:
    with pytest.raises(DoubledEffect, match="2 x charge, where one run makes 1"):
        assert_once(post, shop(onceward_effects))
