"""
Looks at a live store: its own checks, what it holds, and the tables beside it that have keys. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from onceward._core.operation import to_datetime
from onceward._core.record import Record, is_in_doubt
from onceward.doctor.sql_reader import LiveTable, live_tables
from onceward.stores import Selection, open_store
from onceward.stores._store_kinds import kind_of
from onceward.stores._upkeep import StoreCheck

_PAGE: Final = 500
_WITH_TABLES: Final = ("sqlite", "postgresql", "postgres")


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a store shows."""

    kind: str
    checks: tuple[StoreCheck, ...]
    records: int
    in_doubt: int
    oldest_in_doubt: str | None
    """When the oldest one was first claimed."""
    tables: tuple[LiveTable, ...] | None
    """The user's own, with a key; None: this kind of store has none, or reading them needs the extra `lint`."""

    @property
    def problems(self) -> list[StoreCheck]:
        """The checks that failed."""
        return [one for one in self.checks if not one.ok]


def read_store(url: str) -> StoreFacts:
    """Look a store over, which must be there. Raises the store's own errors if it is away, or may not be read."""
    find = kind_of(url).upkeep
    upkeep = find() if find is not None else None
    checks = tuple(upkeep.check(url)) if upkeep is not None else ()
    records, in_doubt, oldest = _count(upkeep.held(url) if upkeep is not None else _scanned(url))
    scheme = urlsplit(url).scheme.lower()
    return StoreFacts(
        scheme,
        checks,
        records,
        in_doubt,
        None if oldest is None else to_datetime(oldest.first_at).isoformat(timespec="seconds"),
        tuple(_tables(url)) if scheme in _WITH_TABLES and find_spec("sqlglot") and find_spec("pgparse") else None,
    )


def _tables(url: str) -> Iterable[LiveTable]:
    from onceward.lint.sql.schema_database import read_database

    return live_tables(read_database(url.partition("?")[0] if url.startswith("sqlite") else url))


def _scanned(url: str) -> Iterator[Record]:
    """Every record of a store without upkeep."""
    with closing(open_store(url)) as store:
        after = b""
        while page := store.scan(after, _PAGE, Selection()):
            yield from page
            after = page[-1].id


def _count(records: Iterable[Record]) -> tuple[int, int, Record | None]:
    total = in_doubt = 0
    oldest: Record | None = None
    for record in records:
        total += 1
        if is_in_doubt(record):
            in_doubt += 1
            if oldest is None or record.first_at < oldest.first_at:
                oldest = record
    return total, in_doubt, oldest
