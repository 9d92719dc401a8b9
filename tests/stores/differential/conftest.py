"""Every kind of store, empty, as often as a test asks for one: memory, SQLite, PostgreSQL and Redis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from onceward.gate import lease_renewer
from onceward.runtime.environment import REAL, Environment
from onceward.stores import open_store
from servers import postgres, redis

Opened = Callable[..., Any]

ALL = ("memory", "sqlite", "postgres", "redis")
WITHOUT_SERVER = ("memory", "sqlite")
DATABASE = "differential"
"""A database of our own: a purge sees every row of the table, whoever wrote it."""


def wanted() -> tuple[str, ...]:
    """The stores to compare: all four, unless STORES leaves some out."""
    if "STORES" not in os.environ:
        return ALL
    named = os.environ["STORES"].replace(" ", "").split(",")
    return tuple(kind for kind in ALL if kind in named)


@pytest.fixture(autouse=True)
def _nothing_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease runs out here, and a thread for each of hundreds of gates would outlive its test."""
    monkeypatch.setattr(lease_renewer, "_keep_sweeping", lambda *_: None)


@pytest.fixture(scope="session")
def kinds() -> tuple[str, ...]:
    """The stores to compare. Memory is what the others are compared with, so it is always among them."""
    return tuple(dict.fromkeys(("memory", *wanted())))


@pytest.fixture(scope="session")
def database(kinds: tuple[str, ...]) -> Iterator[Any]:
    """A superuser's connection to our database."""
    if "postgres" not in kinds:
        yield None
        return
    import psycopg

    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    with psycopg.connect(server.url(DATABASE), autocommit=True) as connection:
        yield connection


@pytest.fixture
def opened(tmp_path: Path, database: Any) -> Iterator[Opened]:
    """Opens an empty store of a kind: `opened("redis")`. One at a time of each."""
    numbers, stores = count(), []
    shared: list[Any] = []

    def opening(kind: str, *, environment: Environment = REAL) -> Any:
        match kind:
            case "memory":
                store = open_store("memory://", environment=environment)
            case "sqlite":
                url = f"sqlite:///{tmp_path}/{next(numbers)}.db?synchronous=normal"  # No power is cut here.
                store = open_store(url, environment=environment)
            case "postgres":
                if not shared:
                    shared.append(open_store(postgres.running().url(DATABASE)))
                    shared[0].load(b"?" * 32)  # The tables are made when it is first used.
                    stores.append(shared[0])
                database.execute("DELETE FROM onceward_records")
                return shared[0]
            case "redis":
                store = open_store(redis.running().url())
            case _:
                raise ValueError(kind)
        stores.append(store)
        return store

    yield opening
    for store in stores:
        store.close()
