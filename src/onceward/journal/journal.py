# Made from journal_async.py by `make halves`: change that file, not this one.
"""
`Journal`: notes what was tried and how it ended. What is noted is in `notes`, how it is written in `note_writer`.

Writing notes never raises and never decides anything. Reading may raise, as every use of a database may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self

from onceward._core.events import Listener
from onceward.journal import views
from onceward.journal.call_attempt import CallAttempt, GateListener, RunPosition, current_position, status_of
from onceward.journal.journal_base import (
    RETAIN_SECONDS,
    ROWS_MAX,
    JournalBase,
    Seconds,
    call_filter_of,
    prune_in_batches,
)
from onceward.journal.notes import JournalNote, NoteSubject
from onceward.journal.views import CallFilter, CallView, RunView, TurnView
from onceward.stores.tables import TablesRunner, read_tables


class Journal(JournalBase):
    """
    What was tried and how it ended, beside the records that a URL names. Safe for threads.

    `scope` and `worker` say whose attempts these are. Arguments are kept as a fingerprint (keyed, with a `secret`);
    `redacted(tool, arguments)` gives the text that may be kept as well. Nothing is opened before the first note.
    """

    @cached_property
    def _runner(self) -> TablesRunner:
        return TablesRunner.over(self._tables, "journal")

    @contextmanager
    def run(self, id: str, *, input_ref: str | None = None) -> Iterator[Run]:
        """A run, for the length of the block. A run that is resumed has the id that it had."""
        with self._noted(self._run_of(id, input_ref), RunPosition(id)):
            yield Run(self, RunPosition(id))

    @contextmanager
    def call(self, tool: str, *, key: str | None = None, arguments: Any = None) -> Iterator[CallAttempt]:
        """
        An attempt at a tool call: written when the block begins, and again when it ends.

        An exception is noted, and raised again. If it was not executed, say `call.wrote(rows)`,
        `call.gate_outcome(outcome)` or `call.end("replayed")`.
        """
        with self._called(tool, key, arguments, current_position.get()) as attempt:
            yield attempt

    @contextmanager
    def _called(self, tool: str, key: str | None, arguments: Any, where: RunPosition) -> Iterator[CallAttempt]:
        attempt = self._note_factory.attempt(tool, key, arguments, where)
        self._write([attempt.begun()])
        try:
            yield attempt
        except GeneratorExit:
            raise  # See `_noted`.
        except BaseException as error:
            self._write([attempt.over(error)])
            raise
        self._write([attempt.over(None)])

    def listener(self) -> Listener:
        """
        For `Gate(..., listeners=[journal.listener()])`.

        Under a gate that blocks, a note is written before the gate goes on; under one that awaits, behind the work, so
        that its event loop goes on (`flush` waits for it).
        """
        put = self._write_now
        return self._listening(GateListener(self._note_factory, put, behind=False))

    def put(self, notes: list[JournalNote]) -> None:
        """Have notes written behind the work."""
        self._batches.put(notes)

    def write(self, notes: list[JournalNote]) -> bool:
        """
        Write notes before going on, and with them what waits to be written; whether that worked.

        Never raises an `Exception`.
        """
        return self._write([*self._batches.take(), *notes])

    def flush(self) -> None:
        """Wait until everything that is to be written behind the work has been."""
        self._batches.flush()

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
        return self.find(call_filter_of(self._note_factory, run, key, digest, after, limit))

    def find(self, wanted: CallFilter) -> list[CallView]:
        """Attempts of any scope, for whoever may see them."""
        return self._runner.run(read_tables(partial(views.calls, wanted)))

    def runs(self, *, id: str | None = None, limit: int = 100) -> list[RunView]:
        """Runs of this scope, the latest first."""
        return self._runner.run(read_tables(partial(views.runs, self._note_factory.scope, id, limit)))

    def turns(self, run: str) -> list[TurnView]:
        """The turns of a run."""
        return self._runner.run(read_tables(partial(views.turns, self._note_factory.scope, run)))

    def prune(self, *, retain: Seconds = RETAIN_SECONDS, rows: int = ROWS_MAX) -> int:
        """Delete what began longer ago, of every scope, and the oldest attempts beyond a number; how many rows."""
        return self._runner.run(prune_in_batches(retain, rows))

    def close(self) -> None:
        """Write the notes that still wait, and close files and connections."""
        self._batches.close()
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _write(self, notes: list[JournalNote]) -> bool:
        return self._runner.run(self._writing(notes))

    @contextmanager
    def _noted(self, subject: NoteSubject, here: RunPosition) -> Iterator[None]:
        self._write([subject.begun()])
        before = current_position.get()
        current_position.set(here)
        try:
            yield
        except GeneratorExit:
            raise  # Perhaps thrown away by the garbage collector: no place to write. It has no end, as if killed.
        except BaseException as error:
            self._write([subject.ended(*status_of(error))])
            raise
        else:
            self._write([subject.ended(*status_of(None))])
        finally:
            current_position.set(
                before
            )  # Not by a token: a block may be ended in another context than it was begun in.


class Run:
    """A run under way."""

    def __init__(self, journal: Journal, here: RunPosition) -> None:
        self._journal = journal
        self._here = here

    @property
    def id(self) -> str:
        """The run's."""
        return self._here.run or ""

    @contextmanager
    def turn(self, seq: int) -> Iterator[Turn]:
        """A turn of it, for the length of the block."""
        here = RunPosition(self.id, seq)
        with self._journal._noted(self._journal._turn_of(self.id, seq), here):
            yield Turn(self._journal, here)

    def call(self, tool: str, *, key: str | None = None, arguments: Any = None) -> AbstractContextManager[CallAttempt]:
        """An attempt at a tool call, noted under this run or turn."""
        return self._journal._called(tool, key, arguments, self._here)


class Turn(Run):
    """A turn under way."""

    @property
    def seq(self) -> int:
        """Which turn of the run."""
        return self._here.turn or 0
