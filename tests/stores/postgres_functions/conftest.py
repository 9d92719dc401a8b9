"""A database with the functions in it, empty for each test."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from functions_support import Connection, database_with_functions, rows

from servers.postgres import PostgresServer, running


@pytest.fixture(scope="session")
def server() -> PostgresServer:
    """This worker's server."""
    return running()


@pytest.fixture(scope="session")
def _installed(server: PostgresServer) -> Iterator[str]:
    with database_with_functions(server) as url:
        yield url


@pytest.fixture
def url(_installed: str) -> str:
    """The URL of a database with the functions, and with empty tables."""
    rows(
        _installed, "TRUNCATE onceward_records, charges; UPDATE onceward_meta SET value = 0 WHERE name = 'fence_floor'"
    )
    return _installed


@pytest.fixture
def sql(url: str) -> Iterator[Connection]:
    """A caller without Python's gate: a plain connection, rolled back in the end."""
    with psycopg.connect(url) as connection:
        yield connection
        connection.rollback()
