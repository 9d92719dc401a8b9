"""
Stores: registers of records, opened from a URL.

    memory://                     this process only: for tests and for trying things out
    sqlite:///relative/path.db    a file (sqlite:////absolute/path.db with four slashes)
    postgresql://user@host/name   a PostgreSQL database (needs onceward[postgres])
    redis://host:6379/0           a Redis server (rediss:// over TLS)

Nothing here decides anything. The one module a URL names is imported when that URL is opened, and no other.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward._core.record import Record, Standing, Write
from onceward._core.register import AsyncStore, Purged, Selection, Store
from onceward.environment import REAL, Environment

__all__ = [
    "AsyncStore",
    "Purged",
    "Record",
    "Selection",
    "Standing",
    "Store",
    "Write",
    "open_async_store",
    "open_store",
]

KNOWN = ("memory", "sqlite", "postgresql", "postgres", "redis", "rediss")


def open_store(url: str, *, environment: Environment = REAL) -> Store:
    """Open the store that a URL names, for blocking callers."""
    match _scheme(url):
        case "memory":
            from onceward.stores.memory import MemoryStore

            return MemoryStore.from_url(url, environment=environment)
        case "postgresql" | "postgres":
            _need("psycopg", extra="postgres")
            from onceward.stores.postgres import PostgresStore

            return PostgresStore.from_url(url, environment=environment)
        case "redis" | "rediss":
            _need("redis")
            from onceward.stores.redis import RedisStore

            return RedisStore.from_url(url, environment=environment)
        case _:
            from onceward.stores.sqlite import SqliteStore

            return SqliteStore.from_url(url, environment=environment)


def open_async_store(url: str, *, environment: Environment = REAL) -> AsyncStore:
    """Same as `open_store`, for awaiting callers."""
    match _scheme(url):
        case "memory":
            from onceward.stores.memory import AsyncMemoryStore

            return AsyncMemoryStore.from_url(url, environment=environment)
        case "postgresql" | "postgres":
            _need("psycopg", extra="postgres")
            from onceward.stores.postgres import AsyncPostgresStore

            return AsyncPostgresStore.from_url(url, environment=environment)
        case "redis" | "rediss":
            _need("redis")
            from onceward.stores.redis import AsyncRedisStore

            return AsyncRedisStore.from_url(url, environment=environment)
        case _:
            from onceward.stores.sqlite import AsyncSqliteStore

            return AsyncSqliteStore.from_url(url, environment=environment)


def check_url(url: str) -> None:
    """Refuse a URL that names no store that could be opened here: an unknown kind, or a driver that is missing."""
    match _scheme(url):
        case "postgresql" | "postgres":
            _need("psycopg", extra="postgres")
        case "redis" | "rediss":
            _need("redis")


def _scheme(url: str) -> str:
    """The store's kind, or an error that says what could be meant."""
    if not isinstance(url, str) or "://" not in url:
        # What stands after the first "@" or ":" may be a password.
        shown = re.split("[:@]", url)[0] if isinstance(url, str) else type(url).__name__
        raise ConfigurationError(
            f"a store is named by a URL such as sqlite:///agent.db or memory://, not by {shown[:40]!r}"
        )
    try:
        scheme = urlsplit(url).scheme.lower()
    except ValueError:  # Its words may hold the user and the password.
        raise ConfigurationError(
            "the store's URL cannot be read; special characters in a user or a password are percent-encoded (%40 for @)"
        ) from None
    if scheme not in KNOWN:
        from difflib import get_close_matches

        close = get_close_matches(scheme, KNOWN, n=1)
        hint = f"did you mean {close[0]}://?" if close else f"known: {', '.join(f'{name}://' for name in KNOWN)}"
        raise ConfigurationError(f"no store is called {scheme}://; {hint}")
    return scheme


def _need(driver: str, *, extra: str | None = None) -> None:
    """Say which extra brings a driver that is not installed."""
    from importlib.util import find_spec

    if find_spec(driver) is None:
        raise ConfigurationError(
            f"this store needs the package {driver!r}, which is missing: pip install 'onceward[{extra or driver}]'"
        )
