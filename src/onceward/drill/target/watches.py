"""
Watches: how the effect of somebody's function is counted, from outside.

    rows:DSN:TABLE         rows of a table: rows:sqlite:///shop.db:orders, rows:postgresql://localhost/shop:orders
    file:PATH              lines of a file; one that is not there has none
    folder:PATH            files in a folder
    http:URL               a whole number behind a URL, as JSON; http:URL#/count is at that pointer
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urldefrag, urlsplit
from urllib.request import urlopen

from onceward._core.errors import ConfigurationError, OncewardError, RequestInvalid
from onceward._core.strict_json import parse_json
from onceward.drill.database import connect, is_postgres, is_sqlite
from onceward.testing.http_suite.target import resolve_pointer

FILE_BYTES_MAX = 256 * 1024 * 1024
ANSWER_BYTES_MAX = 1_000_000
HTTP_SECONDS = 10.0

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


@dataclass(frozen=True)
class EffectWatch:
    """An effect that can be counted."""

    about: str
    """What is counted, without addresses: it goes into the bundle."""
    count: Callable[[], int]
    """How many there are now; `ConfigurationError` if that cannot be said."""


def watch_of(text: str) -> EffectWatch:
    """What a text such as `rows:sqlite:///shop.db:orders` names. Nothing is opened yet."""
    kind, _, rest = text.partition(":")
    match kind:
        case "rows" if rest:
            return _rows(rest)
        case "file" if rest:
            return EffectWatch("lines of a file", lambda: _lines(Path(rest)))
        case "folder" if rest:
            return EffectWatch("files in a folder", lambda: _files(Path(rest)))
        case "http" | "https" if rest:
            return _number(text if rest.startswith("//") else rest)
    raise ConfigurationError(
        "--watch names what your function changes: rows:DSN:TABLE, file:PATH, folder:PATH or http:URL, not "
        f"{text[:60]!r}"
    )


def _rows(text: str) -> EffectWatch:
    url, _, table = text.rpartition(":")
    if not _TABLE.fullmatch(table) or "://" not in url or not (is_sqlite(url) or is_postgres(url)):
        raise ConfigurationError(
            "--watch rows:DSN:TABLE names a table of a SQLite or PostgreSQL database, such as "
            "rows:sqlite:///shop.db:orders"
        )
    quoted = ".".join(f'"{part}"' for part in table.split("."))

    def count() -> int:
        if is_sqlite(url) and not Path(urlsplit(url).path[1:]).exists():
            raise ConfigurationError(
                f"--watch: there is no file {urlsplit(url).path[1:]}; write the path of your database"
            )
        try:
            with closing(connect(url)) as connection:
                cursor = connection.cursor()
                cursor.execute(f"SELECT count(*) FROM {quoted}")  # noqa: S608 (checked above)
                [(rows,)] = cursor.fetchall()
                return int(rows)
        except OncewardError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"--watch: the rows of {table} cannot be counted: {' '.join(str(error).split())[:200]}"
            ) from None

    return EffectWatch(f"rows of {table}", count)


def _lines(path: Path) -> int:
    try:
        if not path.exists():
            return 0
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigurationError(f"--watch: {path} is larger than {FILE_BYTES_MAX:,} bytes; watch a smaller file")
        with path.open("rb") as file:
            return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise ConfigurationError(f"--watch: cannot read {path}: {error.strerror}") from None


def _files(path: Path) -> int:
    try:
        return sum(1 for _ in path.iterdir()) if path.exists() else 0
    except OSError as error:
        raise ConfigurationError(f"--watch: cannot read {path}: {error.strerror}") from None


def _number(address: str) -> EffectWatch:
    url, pointer = urldefrag(address)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ConfigurationError("--watch http:URL needs a URL: http:http://localhost:8000/count#/charges")

    def count() -> int:
        try:
            with urlopen(url, timeout=HTTP_SECONDS) as response:  # noqa: S310 - http or https, seen above
                found: Any = resolve_pointer(parse_json(response.read(ANSWER_BYTES_MAX)), pointer)
        except (OSError, URLError, ValueError, RequestInvalid, KeyError) as error:
            raise ConfigurationError(f"--watch: no number could be read from that URL: {error}") from None
        if isinstance(found, bool) or not isinstance(found, int):
            raise ConfigurationError(
                "--watch: the URL does not return a whole number; add a #/pointer to one, such as #/count"
            )
        return found

    return EffectWatch("a number behind a URL", count)
