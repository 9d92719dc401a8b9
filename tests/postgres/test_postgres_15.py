"""The suite on PostgreSQL 15, where it is installed: what one handle can be asked, in both colours."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from onceward.stores import open_async_store, open_store
from onceward.testing.conformance.suite import *  # noqa: F403
from servers.postgres import DEBIAN_15, PostgresServer, needed, throwaway

needed()
if not DEBIAN_15.is_dir():
    pytest.skip("PostgreSQL 15 is not installed here", allow_module_level=True)


@functools.cache
def _server() -> PostgresServer:
    return throwaway(DEBIAN_15)


def postgresql_15(colour: str, environment: Any) -> Any:
    """Opens stores on the server of that version."""
    opener: Any = open_store if colour == "blocking" else open_async_store
    return opener(_server().url(), environment=environment)


@pytest.fixture(autouse=True)
def _empty_15() -> None:
    if _server().execute("SELECT to_regclass('onceward_records') IS NOT NULL") == [(True,)]:
        _server().execute("DELETE FROM onceward_records")


STORES = (postgresql_15,)
