"""
The file of a SQLite store: which one a URL names, how it is created and opened, and what its errors mean.

No exception of the driver leaves the store. `translate_error` turns one into an error that says whose fault it is and
what to do; the primary result code decides, never the text of a message.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from onceward._core.errors import (
    ConfigurationError,
    OncewardError,
    RecordRefused,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
)

BUSY_SECONDS = 5.0
"""How long a call waits for other processes to finish writing: far above any write of ours, below HTTP timeouts."""
BUSY_SECONDS_MAX = 3600.0
SQLITE_LEAST = (3, 37, 0)
"""STRICT tables came with 3.37 (2021-11)."""

DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeError)
"""What `sqlite3` raises: its own, and Python's for a value that has no place in a column."""


_ABOUT_THE_FILE = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOMEM,
    )
)


class SqliteOptions(NamedTuple):
    """What can be chosen about a SQLite store."""

    synchronous: str = "full"
    settle: str = "durable"
    busy_seconds: float = BUSY_SECONDS
    read_first: bool = True


def parse(url: str) -> tuple[Path, SqliteOptions]:
    """The path and the options in a URL such as `sqlite:///agent.db?busy=2`."""
    parts = urlsplit(url)
    if parts.scheme.lower() != "sqlite" or "://" not in url:
        raise ConfigurationError(f"not the URL of a SQLite file: {url!r}; write sqlite:///agent.db")
    if parts.netloc:
        raise ConfigurationError(
            f"a SQLite file has no host, and {parts.netloc!r} is read as one: write sqlite:///{parts.netloc} with "
            "three slashes for a relative path, four for an absolute one"
        )
    if parts.fragment:
        raise ConfigurationError("a '#' in the path of a SQLite file is written %23")
    name = unquote(parts.path[1:])
    if not name or "\x00" in name:
        raise ConfigurationError("the URL names no file; write sqlite:///agent.db, or sqlite:////var/lib/agent.db")
    if name.lstrip("/").startswith(":memory:"):
        raise ConfigurationError(
            "SQLite's :memory: cannot be shared between connections; memory:// is the store for that"
        )
    return Path(name), _options(parts.query)


def _options(query: str) -> SqliteOptions:
    options = SqliteOptions()
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name, value:
            case "synchronous", "full" | "normal":
                options = options._replace(synchronous=value)
            case "settle", "durable" | "relaxed":
                options = options._replace(settle=value)
            case "read_first", "0" | "1":
                options = options._replace(read_first=value == "1")
            case "busy", _:
                options = options._replace(busy_seconds=_seconds(value))
            case _:
                raise ConfigurationError(
                    f"a SQLite store has no option {name}={value}; the options are synchronous=full|normal, "
                    "settle=durable|relaxed, busy=SECONDS and read_first=0|1"
                )
    return options


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= BUSY_SECONDS_MAX:
        raise ConfigurationError(f"busy={value} is not a number of seconds from 0 to {BUSY_SECONDS_MAX:.0f}")
    return seconds


def prepare_file(path: Path, *, create: bool = True) -> Path:
    """Make sure that there is a file, ours alone if we make it, and say where it really is."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise ConfigurationError(f"{real} is a folder; name a file in it, for example sqlite:///{path}/onceward.db")
    if not real.parent.is_dir():
        raise ConfigurationError(f"the folder {real.parent} does not exist; create it first (mkdir -p {real.parent})")
    if not create and not real.exists():
        raise ConfigurationError(f"there is no file {real}; `onceward store init --store sqlite:///{path}` makes one")
    try:
        handle = os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return real
    except OSError as error:
        raise StoreUnavailable(
            f"cannot create {real}: {error.strerror}; this process (user {os.geteuid()}) must be able to write there"
        ) from error
    try:
        # The umask can only have taken bits away; SQLite gives -wal and -shm the mode of this file.
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
    return real


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """
    A connection that begins no transaction by itself, never waits, and creates no file.

    Waiting is done by `BusyWait`: the store's clock is to be read when the lock is ours and not when the waiting
    began, and a person must be able to interrupt it.
    """
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old: at least 3.37 is needed")
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=32,
    )
    if read_only:
        connection.execute("PRAGMA query_only = 1")
    return connection


def is_busy(error: BaseException) -> bool:
    """Whether another connection was in the way, and waiting can help."""
    return isinstance(error, sqlite3.Error) and _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def stopped_before_writing(error: BaseException) -> bool:
    """Whether a write was stopped before it could change anything: busy, or not allowed."""
    return is_busy(error) or (isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_READONLY)


def breaks_connection(error: BaseException) -> bool:
    """Whether the connection is better not used again: what it has read or written is no longer certain."""
    return isinstance(error, sqlite3.Error) and _code(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT)


def is_about_the_file(error: BaseException) -> bool:
    """Whether an error is about the file, so that trying each write by itself would only fail as often."""
    return isinstance(error, sqlite3.Error) and _code(error) in _ABOUT_THE_FILE


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def translate_error(error: BaseException, path: Path) -> OncewardError:
    """The error to raise for one of the driver's."""
    if not isinstance(error, sqlite3.Error):
        return RecordRefused(f"{path} cannot hold this record: {error}")
    match _code(error):
        case sqlite3.SQLITE_TOOBIG:
            return RecordRefused(f"{path} cannot hold this record: {error}; SQLite's limit is 1 GB for a value")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(
                f"another process kept {path} locked for longer than the busy limit ({error}); nothing was "
                "written: retry",
                retry_after_seconds=1.0,
            )
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"no room left for {path} ({error}); free some space, then retry with the same key")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreCorrupt(f"{path} is damaged, or is not a SQLite database ({error}); restore a backup")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreUnavailable(
                f"{path} cannot be opened for writing ({error}); this process (user {os.geteuid()}) needs to read and "
                f"write the file, {path.name}-wal, {path.name}-shm and the folder they are in"
            )
        case _:
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            return StoreUnavailable(f"{path} did not answer: {error} ({name})", retry_after_seconds=1.0)


def mode_of(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def split_statements(script: str) -> Iterator[str]:
    """Cut a script for SQLite into statements (`executescript` would commit first, and failpoints are in between)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
