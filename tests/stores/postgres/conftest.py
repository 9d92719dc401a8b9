"""A real server for every test in this folder, and empty tables for each."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from postgres_support import EMPTY

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
            for statement in EMPTY:
                admin.execute(statement)
    yield
    failpoints.disarm()


@pytest.fixture
def url(server: PostgresServer) -> str:
    """The address of the tests' database."""
    return server.url("onceward")
