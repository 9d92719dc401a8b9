"""Databases on PostgreSQL that an administrator has prepared for tenants' SQL."""

from __future__ import annotations

from functools import cache

import psycopg

from onceward.service.sql.postgres.preparation import ROLE, preparation_script

from .postgres import PostgresServer, running


def prepare(server: PostgresServer, name: str, *, managed: bool = False) -> str:
    """Make a database and prepare it; the URL of the service's role there."""
    server.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute(preparation_script(name, managed=managed).encode())
    return server.url(name, user=ROLE)


@cache
def prepared(name: str = "tenants") -> str:
    """A database of this process's own server, prepared when it is first asked for."""
    return prepare(running(), name)
