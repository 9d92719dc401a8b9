"""Peers in front of the application, as their documentation shows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware

from bench.http_app import application


def idemkit_redis(folder: Path, address: str) -> Starlette:
    """idemkit on Redis."""
    from idemkit import RedisBackend

    return _idemkit(RedisBackend.from_url(address))


def idemkit_postgres(folder: Path, address: str) -> Starlette:
    """idemkit on PostgreSQL, with its own pool (asyncpg, 4 to 20 connections)."""
    from idemkit import PostgresBackend

    made = [str(Path(sys.executable).with_name("idemkit")), "init-pg", address]
    subprocess.run(made, check=True, capture_output=True)
    return _idemkit(PostgresBackend.from_url(address))


def _idemkit(backend: object) -> Starlette:
    from idemkit import HttpConfig, IdempotencyMiddleware

    config = HttpConfig(scope=lambda request: "live:acme")
    return application([Middleware(IdempotencyMiddleware, backend=backend, config=config)])


def header_redis(folder: Path, address: str) -> Starlette:
    """asgi-idempotency-header on Redis."""
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import RedisBackend
    from redis.asyncio import from_url

    backend = RedisBackend(redis=from_url(address))
    return application([Middleware(IdempotencyHeaderMiddleware, backend=backend)])
