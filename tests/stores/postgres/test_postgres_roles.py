"""Limits that a database administrator sets for a role, and a server that runs out of connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, handle, session

from onceward import StoreUnavailable
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import PostgresServer, needed

needed()

HELD_SECONDS = 0.5


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def limited(server: PostgresServer, url: str, admin: psycopg.Connection[Any]) -> Iterator[str]:
    """The URL of a role that may do what the store needs; tests give it limits."""
    with handle(url, "blocking") as store:
        store.call("load", bytes(32))
    with server.role("limited", "LOGIN SUPERUSER"):
        yield server.url("onceward", user="limited")


def test_a_statement_timeout_is_named_and_nothing_is_written(
    limited: str, url: str, colour: str, admin: psycopg.Connection[Any]
) -> None:
    """
    The role's limit ends our statement while it waits for a row: the error says which limit to change.
    """
    admin.execute("ALTER ROLE limited SET statement_timeout = '300ms'")
    with handle(limited, colour) as store, session(url) as other:
        other(row("test:role"))
        with pytest.raises(StoreUnavailable, match="statement_timeout above onceward_lock_timeout") as told:
            store.put(row("test:role"))
        other.connection.rollback()  # type: ignore[attr-defined]

        assert told.value.retry_after_seconds == 1.0
        assert None is store.call("load", row("test:role").id)
        assert True is store.put(row("test:role")).landed


def test_a_roles_lock_timeout_gives_way_to_ours(
    limited: str, url: str, colour: str, admin: psycopg.Connection[Any]
) -> None:
    """
    A millisecond would be too short for a busy key: a put waits as long as the store's URL says.
    """
    admin.execute("ALTER ROLE limited SET lock_timeout = '1ms'")
    with handle(limited, colour) as store, session(url) as other:
        other(row("test:role", operation="other"))
        threading.Timer(HELD_SECONDS, other.connection.commit).start()  # type: ignore[attr-defined]
        standing = store.put(row("test:role"))

        assert (standing.landed, standing.record.operation) == (False, "other")


def test_a_role_that_is_cut_off_when_idle_is_served_all_the_same(
    limited: str, colour: str, admin: psycopg.Connection[Any]
) -> None:
    """
    The server ends sessions that are idle: the next call opens a new one.
    """
    admin.execute("ALTER ROLE limited SET idle_session_timeout = '1s'")
    with handle(limited, colour) as store:
        held = store.put(row("test:role")).record
        threading.Event().wait(1.3)
        ended = store.put(settled(held), held.version)

        assert (ended.landed, store.call("load", held.id).state) == (True, "settled")


def test_a_server_without_a_free_connection_is_away_and_says_so(
    limited: str, colour: str, admin: psycopg.Connection[Any]
) -> None:
    """
    The role may have one connection, and somebody has it: bounded, typed, and over when the connection is free.
    """
    admin.execute("ALTER ROLE limited NOSUPERUSER CONNECTION LIMIT 1")
    admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON onceward_records, onceward_meta TO limited")
    try:
        with handle(limited, colour) as store:
            with psycopg.connect(limited), pytest.raises(StoreUnavailable, match="too many connections") as told:
                store.call("load", bytes(32))

            assert told.value.retry_after_seconds == 1.0
            assert None is _patiently(store, row("test:role").id)
    finally:
        admin.execute("DROP OWNED BY limited")


def _patiently(store: Any, id: bytes) -> Any:
    """The server takes a moment to notice that a connection was closed."""
    for _ in range(100):
        try:
            return store.call("load", id)
        except StoreUnavailable:
            threading.Event().wait(0.02)
    raise AssertionError("it never came back")
