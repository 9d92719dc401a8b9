"""Ours in front of the application, as the documentation shows it: a gate on a store, with defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware

from bench.http_app import application
from onceward import AsyncGate
from onceward.http.asgi import IdempotencyMiddleware


def ours(folder: Path, address: str, **changes: Any) -> Starlette:
    """On a store; every caller is one tenant, said by a function as it would be for many."""
    gate = AsyncGate(address.format(folder=folder), scope="live")
    middleware: Any = IdempotencyMiddleware  # Starlette's types do not know of keywords that are not listed.
    return application([Middleware(middleware, gate=gate, scope=lambda request: "live:acme", **changes)])


def waiting(folder: Path, address: str) -> Starlette:
    """The same, and duplicates of a request that is under way wait for its answer."""
    return ours(folder, address, in_flight="wait")
