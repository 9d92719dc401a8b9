"""
`Journal` blocks, `AsyncJournal` awaits. Thin shells: what is noted is in `notes`, how it is written in `keeping`.

Noting never raises and never decides anything. Looking does raise, as every look at a database may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError
from onceward._core.events import Listener
from onceward.environment import REAL, Environment
from onceward.gate.operating import digest_of_key
from onceward.journal import views
from onceward.journal.batches import Batches
from onceward.journal.keeping import LazyDriver, Trouble, write
from onceward.journal.notes import Note, Subject, run_of, turn_of
from onceward.journal.telling import Attempt, Ear, Place, Redacted, Teller, place, status_of
from onceward.journal.views import CallView, RunView, TurnView, Wanted
from onceward.tables import Awaiting, Blocking, Flow, looked, transacted

Seconds = float | timedelta

RETAIN_SECONDS = 7 * 86_400.0
ROWS_MAX = 1_000_000
"""Attempts that are kept at most: a few hundred megabytes."""


class _Shell:
    """What both colours share."""

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

    def _run(self, id: str, input_ref: str | None) -> Subject:
        return run_of(self._environment, self._teller.scope, id, self._teller.worker, input_ref)

    def _turn(self, run: str, seq: int) -> Subject:
        return turn_of(self._environment, self._teller.scope, run, seq)


class Journal(_Shell):
    """
    What was tried and how it ended, beside the records that a URL names. Safe for threads.

    `scope` and `worker` say whose attempts these are. Arguments are kept as a fingerprint (keyed, with a `secret`);
    `redacted(tool, arguments)` gives the text that may be kept as well. Nothing is opened before the first note.
    """

    @contextmanager
    def run(self, id: str, *, input_ref: str | None = None) -> Iterator[Run]:
        """A run, for the length of a `with` block. A run that is resumed has the id that it had."""
        with self._noted(self._run(id, input_ref), Place(id)):
            yield Run(self, Place(id))

    @contextmanager
    def call(self, tool: str, *, key: str | None = None, arguments: Any = None) -> Iterator[Attempt]:
        """
        An attempt at a tool call: written when the `with` block begins, and again when it ends.

        An exception goes through and is noted; otherwise say `call.wrote(rows)`, `call.told(outcome)` or
        `call.end("replayed")` if it was not executed.
        """
        with self._called(tool, key, arguments, place.get()) as attempt:
            yield attempt

    @contextmanager
    def _called(self, tool: str, key: str | None, arguments: Any, where: Place) -> Iterator[Attempt]:
        attempt = self._teller.attempt(tool, key, arguments, where)
        self._write_now([attempt.begun()])
        try:
            yield attempt
        except GeneratorExit:
            raise  # See `_noted`.
        except BaseException as error:
            self._write_now([attempt.over(error)])
            raise
        self._write_now([attempt.over(None)])

    def listener(self) -> Listener:
        """For `Gate(..., listeners=[journal.listener()])`: a note is written before the gate goes on."""
        return Ear(self._teller, self._write_now)

    def calls(
        self,
        *,
        run: str | None = None,
        key: str | None = None,
        digest: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[CallView]:
        """Attempts of this scope, oldest first: of a run, or at one key (as you gave it, or by its digest)."""
        return self._tables.run(looked(partial(views.calls, _wanted(self._teller, run, key, digest, after, limit))))

    def runs(self, *, id: str | None = None, limit: int = 100) -> list[RunView]:
        """Runs of this scope, the latest first."""
        return self._tables.run(looked(partial(views.runs, self._teller.scope, id, limit)))

    def turns(self, run: str) -> list[TurnView]:
        """The turns of a run."""
        return self._tables.run(looked(partial(views.turns, self._teller.scope, run)))

    def prune(self, *, retain: Seconds = RETAIN_SECONDS, rows: int = ROWS_MAX) -> int:
        """Delete what began longer ago, of every scope, and the oldest attempts beyond so many; how many rows."""
        return self._tables.run(pruned(retain, rows))

    def close(self) -> None:
        """Let go of files and connections."""
        self._batches.close()
        self._tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _noted(self, subject: Subject, here: Place) -> Iterator[None]:
        """A run or a turn around a block."""
        self._write_now([subject.begun()])
        before = place.get()
        place.set(here)
        try:
            yield
        except GeneratorExit:
            raise  # Perhaps thrown away by the garbage collector: no place to write. It has no end, as if killed.
        except BaseException as error:
            self._write_now([subject.ended(*status_of(error))])
            raise
        else:
            self._write_now([subject.ended(*status_of(None))])
        finally:
            place.set(before)  # Not by a token: a block may be ended in another context than it was begun in.


class Run:
    """A run under way."""

    def __init__(self, journal: Journal, here: Place) -> None:
        self._journal = journal
        self._here = here

    @property
    def id(self) -> str:
        """The run's."""
        return self._here.run or ""

    def turn(self, seq: int) -> AbstractContextManager[Turn]:
        """A turn of it, for the length of a `with` block."""
        return _turned(self._journal, self.id, seq)

    def call(self, tool: str, *, key: str | None = None, arguments: Any = None) -> AbstractContextManager[Attempt]:
        """Same as `Journal.call`."""
        return self._journal._called(tool, key, arguments, self._here)


class Turn(Run):
    """A turn under way."""

    @property
    def seq(self) -> int:
        """Which turn of the run."""
        return self._here.turn or 0


@contextmanager
def _turned(journal: Journal, run: str, seq: int) -> Iterator[Turn]:
    with journal._noted(journal._turn(run, seq), Place(run, seq)):
        yield Turn(journal, Place(run, seq))


class AsyncJournal(_Shell):
    """Same as `Journal`, but awaits: the database is asked by a few threads."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._awaiting = Awaiting(self._tables, "journal")

    @asynccontextmanager
    async def run(self, id: str, *, input_ref: str | None = None) -> AsyncIterator[AsyncRun]:
        """Same as `Journal.run`, for `async with`."""
        async with self._noted(self._run(id, input_ref), Place(id)):
            yield AsyncRun(self, Place(id))

    @asynccontextmanager
    async def call(self, tool: str, *, key: str | None = None, arguments: Any = None) -> AsyncIterator[Attempt]:
        """Same as `Journal.call`, for `async with`."""
        async with self._called(tool, key, arguments, place.get()) as attempt:
            yield attempt

    @asynccontextmanager
    async def _called(self, tool: str, key: str | None, arguments: Any, where: Place) -> AsyncIterator[Attempt]:
        attempt = self._teller.attempt(tool, key, arguments, where)
        await self._write([attempt.begun()])
        try:
            yield attempt
        except GeneratorExit:
            raise  # See `_noted`.
        except BaseException as error:
            await self._write([attempt.over(error)])
            raise
        await self._write([attempt.over(None)])

    def listener(self) -> Listener:
        """For `AsyncGate(..., listeners=[journal.listener()])`: written behind the work, so that nobody waits."""
        return Ear(self._teller, self._batches.put)

    def put(self, notes: list[Note]) -> None:
        """Have notes written behind the work."""
        self._batches.put(notes)

    async def flush(self) -> None:
        """Wait until everything that is to be written behind the work has been."""
        await asyncio.to_thread(self._batches.flush)

    async def calls(
        self,
        *,
        run: str | None = None,
        key: str | None = None,
        digest: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[CallView]:
        """Same as `Journal.calls`, but awaits."""
        return await self.find(_wanted(self._teller, run, key, digest, after, limit))

    async def find(self, wanted: Wanted) -> list[CallView]:
        """Attempts of any scope, for whoever may see them."""
        return await self._awaiting.run(looked(partial(views.calls, wanted)))

    async def runs(self, *, id: str | None = None, limit: int = 100) -> list[RunView]:
        """Same as `Journal.runs`, but awaits."""
        return await self._awaiting.run(looked(partial(views.runs, self._teller.scope, id, limit)))

    async def turns(self, run: str) -> list[TurnView]:
        """Same as `Journal.turns`, but awaits."""
        return await self._awaiting.run(looked(partial(views.turns, self._teller.scope, run)))

    async def prune(self, *, retain: Seconds = RETAIN_SECONDS, rows: int = ROWS_MAX) -> int:
        """Same as `Journal.prune`, but awaits."""
        return await self._awaiting.run(pruned(retain, rows))

    async def close(self) -> None:
        """Write what waits to be written, and let go of files and connections."""
        await asyncio.to_thread(self._batches.close)
        await self._awaiting.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _write(self, notes: list[Note]) -> bool:
        return await self._awaiting.run(self._writing(notes))

    @asynccontextmanager
    async def _noted(self, subject: Subject, here: Place) -> AsyncIterator[None]:
        await self._write([subject.begun()])
        before = place.get()
        place.set(here)
        try:
            yield
        except GeneratorExit:
            raise  # Perhaps thrown away by the garbage collector: no place to write. It has no end, as if killed.
        except BaseException as error:
            await self._write([subject.ended(*status_of(error))])
            raise
        else:
            await self._write([subject.ended(*status_of(None))])
        finally:
            place.set(before)  # Not by a token: a block may be ended in another context than it was begun in.


class AsyncRun:
    """Same as `Run`, for `async with`."""

    def __init__(self, journal: AsyncJournal, here: Place) -> None:
        self._journal = journal
        self._here = here

    @property
    def id(self) -> str:
        """The run's."""
        return self._here.run or ""

    def turn(self, seq: int) -> AbstractAsyncContextManager[AsyncTurn]:
        """Same as `Run.turn`, for `async with`."""
        return _aturned(self._journal, self.id, seq)

    def call(self, tool: str, *, key: str | None = None, arguments: Any = None) -> AbstractAsyncContextManager[Attempt]:
        """Same as `Journal.call`, for `async with`."""
        return self._journal._called(tool, key, arguments, self._here)


class AsyncTurn(AsyncRun):
    """A turn under way."""

    @property
    def seq(self) -> int:
        """Which turn of the run."""
        return self._here.turn or 0


@asynccontextmanager
async def _aturned(journal: AsyncJournal, run: str, seq: int) -> AsyncIterator[AsyncTurn]:
    async with journal._noted(journal._turn(run, seq), Place(run, seq)):
        yield AsyncTurn(journal, Place(run, seq))


def pruned(retain: Seconds, rows: int) -> Flow[int]:
    """Delete in small transactions until nothing is left to delete."""
    keep = microseconds(retain, "retain")
    total = 0
    for steps in (partial(views.prune, keep), partial(views.prune_beyond, rows)):
        while deleted := (yield from transacted("journal.prune", steps)):
            total += deleted
    return total


def _wanted(
    teller: Teller, run: str | None, key: str | None, digest: str | None, after: str | None, limit: int
) -> Wanted:
    if key is not None and digest is not None:
        raise ConfigurationError("an attempt is found by its key or by its digest; give one of them")
    at = digest if key is None else digest_of_key(teller.scope, key)
    return Wanted(teller.scope, run=run, digest=at, after=after, limit=limit, oldest_first=True)
