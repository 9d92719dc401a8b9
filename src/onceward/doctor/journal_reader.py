"""
Looks at a journal: whether a key was executed more than once, and what has no end. It only reads.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from onceward._core.errors import ConfigurationError
from onceward.journal.note_writer import LazyDriver
from onceward.journal.views import PAGE_MAX, CallFilter, calls
from onceward.runtime.environment import REAL
from onceward.stores import tables_url
from onceward.stores.tables import TablesRunner, read_tables

ATTEMPTS_MAX: Final = 100_000
"""The latest so many are looked at: a journal may hold years."""


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """What a journal shows."""

    attempts: int
    keys: int
    doubled: tuple[str, ...]
    """Digests of keys that were executed more than once."""
    unended: int
    is_cut: bool
    """Whether there are more attempts than were looked at."""


def read_journal(url: str) -> JournalFacts | None:
    """The latest attempts, counted; None if no journal is kept there."""
    if tables_url(url) is None:
        return None
    executed: Counter[tuple[str, str]] = Counter()
    attempts = unended = 0
    after: str | None = None
    with closing(TablesRunner(LazyDriver(url, REAL, create=False))) as tables, suppress(ConfigurationError):
        # A configuration error is that there are no tables: nobody keeps a journal here.
        while attempts < ATTEMPTS_MAX:
            page = tables.run(read_tables(partial(calls, CallFilter(after=after, limit=PAGE_MAX))))
            attempts += len(page)
            unended += sum(one.outcome is None for one in page)
            executed.update((one.scope, one.digest) for one in page if one.digest and one.outcome == "executed")
            if len(page) < PAGE_MAX:
                break
            after = page[-1].id
    doubled = tuple(digest for (_, digest), times in executed.items() if times > 1)
    return JournalFacts(attempts, len(executed), doubled, unended, attempts >= ATTEMPTS_MAX)
