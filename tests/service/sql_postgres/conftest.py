"""PostgreSQL servers with a database that is prepared for tenants, in the versions that are here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import pytest
from tenant_support import DATABASE, NAMESPACE, Tenant

from onceward.service.sql.postgres import PostgresEngine
from servers.postgres import DEBIAN_15, PostgresServer, needed, running, throwaway
from servers.tenants import prepare


@cache
def _server(version: int) -> PostgresServer:
    return running() if version == 18 else throwaway(DEBIAN_15)


@cache
def prepared(version: int, managed: bool = False) -> str:
    """The URL of the service's role in a database that an administrator has prepared."""
    return prepare(_server(version), "engine_managed" if managed else "engine", managed=managed)


@pytest.fixture(params=[18, pytest.param(15, marks=pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="no PG 15"))])
def version(request: pytest.FixtureRequest) -> int:
    """The version of PostgreSQL."""
    needed()
    return int(request.param)


@pytest.fixture
def url(version: int) -> str:
    """A prepared database."""
    return prepared(version)


@pytest.fixture
def play(url: str) -> Callable[..., Any]:
    """Tell a story on an engine, with a database of a tenant's that is new."""

    def tell(story: Callable[[Tenant], Awaitable[Any]], **options: Any) -> Any:
        async def run() -> Any:
            async with PostgresEngine(url, **options) as engine:
                await engine.drop(NAMESPACE, DATABASE)
                await engine.create(NAMESPACE, DATABASE)
                return await story(Tenant(engine))

        return asyncio.run(run())

    return tell
