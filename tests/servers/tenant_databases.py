"""
PostgreSQL databases that an administrator has prepared for tenants, in the versions that are here.
"""

from __future__ import annotations

from functools import cache

import psycopg

from onceward.service.sql.postgres.preparation import ROLE, preparation_script

from .postgres import DEBIAN_15, PostgresServer, running, throwaway


@cache
def server_of(version: int) -> PostgresServer:
    """This process's server of that version."""
    return running() if version == 18 else throwaway(DEBIAN_15)


@cache
def prepared(version: int, managed: bool = False) -> str:
    """The URL of the service's role in a prepared database."""
    server, name = server_of(version), "tenants_managed" if managed else "tenants"
    server.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute(preparation_script(name, managed=managed))  # type: ignore[arg-type]
    return server.url(name, user=ROLE)
