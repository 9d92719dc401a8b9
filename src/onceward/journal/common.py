"""
What both colours of a journal share, in whichever thread: how notes get into the table, and what is looked for.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError
from onceward.environment import REAL, Environment
from onceward.gate.operating import digest_of_key
from onceward.journal import views
from onceward.journal.batches import Batches
from onceward.journal.keeping import LazyDriver, Trouble, write
from onceward.journal.notes import Note, Subject, run_of, turn_of
from onceward.journal.telling import Redacted, Teller
from onceward.journal.views import Wanted
from onceward.tables import Blocking, Flow, transacted

Seconds = float | timedelta

RETAIN_SECONDS = 7 * 86_400.0
ROWS_MAX = 1_000_000
"""Attempts that are kept at most: a few hundred megabytes."""


class JournalBase:
    """What is noted, and who writes what is noted behind the work; the shells write the rest."""

    def __init__(
        self,
        url: str,
        *,
        scope: str,
        worker: str,
        secret: bytes | None = None,
        redacted: Redacted | None = None,
        environment: Environment = REAL,
        create: bool = True,
    ) -> None:
        self._teller = Teller.checked(environment, scope, worker, secret, redacted)
        self._environment = environment
        self._trouble = Trouble(environment)
        self._tables = Blocking(LazyDriver(url, environment, create=create))
        self._batches = Batches(self._write_now, self._trouble, environment)

    @property
    def missed(self) -> int:
        """Notes that could not be written."""
        return self._trouble.missed

    def _write_now(self, notes: list[Note]) -> bool:
        return self._tables.run(self._writing(notes))

    def _writing(self, notes: list[Note]) -> Flow[bool]:
        return write(self._environment, self._trouble, notes)

    def _run_of(self, id: str, input_ref: str | None) -> Subject:
        return run_of(self._environment, self._teller.scope, id, self._teller.worker, input_ref)

    def _turn_of(self, run: str, seq: int) -> Subject:
        return turn_of(self._environment, self._teller.scope, run, seq)


def pruned(retain: Seconds, rows: int) -> Flow[int]:
    """Delete in small transactions until nothing is left to delete."""
    keep = microseconds(retain, "retain")
    total = 0
    for steps in (partial(views.prune, keep), partial(views.prune_beyond, rows)):
        while deleted := (yield from transacted("journal.prune", steps)):
            total += deleted
    return total


def wanted_of(
    teller: Teller, run: str | None, key: str | None, digest: str | None, after: str | None, limit: int
) -> Wanted:
    """What to look for: a run's attempts, or those at one key."""
    if key is not None and digest is not None:
        raise ConfigurationError("an attempt is found by its key or by its digest; give one of them")
    at = digest if key is None else digest_of_key(teller.scope, key)
    return Wanted(teller.scope, run=run, digest=at, after=after, limit=limit, oldest_first=True)
