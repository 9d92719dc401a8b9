"""A real server for every test in this folder, and empty tables for each."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from onceward.runtime import failpoints
from servers.postgres import PostgresServer, running, wanted


@pytest.fixture(scope="session")
def server() -> PostgresServer:
    """This worker's server."""
    return running()


@pytest.fixture(scope="session")
def admin(server: PostgresServer) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A superuser's connection to the tests' database."""
    with psycopg.connect(server.url("onceward"), autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest) -> Iterator[None]:
    if wanted():
        admin = request.getfixturevalue("admin")
        if admin.execute("SELECT to_regclass('onceward_records') IS NOT NULL").fetchone() == (True,):
            admin.execute("DELETE FROM onceward_records")
            admin.execute("UPDATE onceward_meta SET value = 0 WHERE name = 'fence_floor'")
    yield
    failpoints.disarm()


@pytest.fixture
def url(server: PostgresServer) -> str:
    """The address of the tests' database."""
    return server.url("onceward")
