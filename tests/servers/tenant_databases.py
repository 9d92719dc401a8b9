"""
PostgreSQL databases that an administrator has prepared for tenants whose databases move, in the versions that are here.
"""

from __future__ import annotations

from functools import cache

from .postgres import DEBIAN_15, PostgresServer, running, throwaway
from .tenants import prepare


@cache
def server_of(version: int) -> PostgresServer:
    """This process's server of that version."""
    return running() if version == 18 else throwaway(DEBIAN_15)


@cache
def prepared(version: int) -> str:
    """The URL of the service's role in a prepared database."""
    return prepare(server_of(version), "moving")
