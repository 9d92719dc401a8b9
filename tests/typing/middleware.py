"""The middlewares as frameworks take them. Checked by `mypy --strict` and pyright, never run."""

from __future__ import annotations

from fastapi import FastAPI
from litestar import Litestar
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware

from onceward import AsyncGate, Reply, current_operation
from onceward.http import Route, profile
from onceward.http.asgi import IdempotencyMiddleware

gate = AsyncGate("memory://", scope="test:types")


def starlette() -> None:
    """Added to an application, or given to it."""
    app = Starlette(middleware=[Middleware(IdempotencyMiddleware, gate=gate, scope="test:acme", profile="ietf")])
    app.add_middleware(
        IdempotencyMiddleware,
        gate=gate,
        scope=lambda request: request.header("x-tenant"),
        profile=profile("stripe", require_key=True),
        routes=[Route("/charges", methods=["POST"], guarantee="keyed", keyed_for=3600)],
        require_key=True,
        in_flight="wait",
    )


def fastapi() -> None:
    """The same."""
    FastAPI().add_middleware(IdempotencyMiddleware, gate=gate, scope="test:acme", marker="envelope", retain=60)


def litestar() -> None:
    """By its own wrapper, which takes any arguments."""
    Litestar([], middleware=[DefineMiddleware(IdempotencyMiddleware, gate=gate, scope="test:acme")])


def handler(session: object) -> None:
    """A handler that nobody hands the operation to."""
    current_operation().settle_inside(session, Reply.json({"order": 1}, status=201))
