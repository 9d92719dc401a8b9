"""
Stores: registers of records, opened from a URL.

    memory://                     this process only: for tests and for trying things out
    sqlite:///relative/path.db    a file (sqlite:////absolute/path.db with four slashes)

Nothing here decides anything. The one module a URL names is imported when that URL is opened, and no other.
"""

from __future__ import annotations

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

KNOWN = ("memory", "sqlite")


def open_store(url: str, *, environment: Environment = REAL) -> Store:
    """Open the store that a URL names, for blocking callers."""
    match _scheme(url):
        case "memory":
            from onceward.stores.memory import MemoryStore

            return MemoryStore.from_url(url, environment=environment)
        case _:
            from onceward.stores.sqlite import SqliteStore

            return SqliteStore.from_url(url, environment=environment)


def open_async_store(url: str, *, environment: Environment = REAL) -> AsyncStore:
    """Same as `open_store`, for awaiting callers."""
    match _scheme(url):
        case "memory":
            from onceward.stores.memory import AsyncMemoryStore

            return AsyncMemoryStore.from_url(url, environment=environment)
        case _:
            from onceward.stores.sqlite import AsyncSqliteStore

            return AsyncSqliteStore.from_url(url, environment=environment)


def _scheme(url: str) -> str:
    """The store's kind, or an error that says what could be meant."""
    if not isinstance(url, str) or "://" not in url:
        raise ConfigurationError(
            f"a store is named by a URL such as sqlite:///agent.db or memory://, not {str(url)[:40]!r}"
        )
    scheme = urlsplit(url).scheme.lower()
    if scheme not in KNOWN:
        from difflib import get_close_matches

        close = get_close_matches(scheme, KNOWN, n=1)
        hint = f"did you mean {close[0]}://?" if close else f"known: {', '.join(f'{name}://' for name in KNOWN)}"
        raise ConfigurationError(f"no store is called {scheme}://; {hint}")
    return scheme
