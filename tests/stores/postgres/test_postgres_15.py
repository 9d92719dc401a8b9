"""
The suite on PostgreSQL 15, where it is installed: in both colours.

What has to do with a server's version is what it understands and how it compares, waits and counts.
"""

from __future__ import annotations

import functools

import pytest

from onceward.testing.store_suite.suite import *  # noqa: F403
from servers.handles import Deferred
from servers.postgres import DEBIAN_15, PostgresServer, needed, throwaway
from servers.suites import leave_out_clients

pytestmark = pytest.mark.dose(1, of="place")

needed()
if not DEBIAN_15.is_dir():
    pytest.skip("PostgreSQL 15 is not installed here", allow_module_level=True)

leave_out_clients(globals())


@functools.cache
def _server() -> PostgresServer:
    return throwaway(DEBIAN_15)


@pytest.fixture(autouse=True)
def _empty_15() -> None:
    if _server().execute("SELECT to_regclass('onceward_records') IS NOT NULL") == [(True,)]:
        _server().execute("DELETE FROM onceward_records")
        _server().execute("UPDATE onceward_meta SET value = 0 WHERE name = 'fence_floor'")


STORES = (Deferred("postgresql://15", lambda: _server().url()),)
