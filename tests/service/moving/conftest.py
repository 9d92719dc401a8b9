"""A folder of a service with a shop in it, and PostgreSQL databases to move it to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from moving_support import NAME, make_shop, place_of

from onceward.service.sql.moving.places import open_target
from onceward.service.sql.postgres import PostgresEngine
from servers.postgres import DEBIAN_15, needed
from servers.tenant_databases import prepared


@pytest.fixture(params=[18, pytest.param(15, marks=pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="no PG 15"))])
def version(request: pytest.FixtureRequest) -> int:
    """The version of PostgreSQL."""
    needed()
    return int(request.param)


@pytest.fixture
def url(version: int) -> str:
    """A prepared database, without a shop in it."""
    there = prepared(version)

    async def drop() -> None:
        async with PostgresEngine(there) as engine:
            await engine.drop(*NAME)

    asyncio.run(drop())
    with open_target(place_of(there)) as target:
        target.discard()  # What a test before left half done.
    return there


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A service's folder with a shop in it."""
    make_shop(tmp_path / "old")
    return tmp_path / "old"
