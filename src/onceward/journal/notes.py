"""
Notes: a run, a turn or an attempt begins, and ends. Pure; `note_writer` writes them.

The note of an end has everything that the note of the beginning had: if the beginning could not be written, the end
makes up for it. If the end could not be written, the row stays without one.

Of attempts there are many, so their notes are a few values only, and become rows when they are written: many rows in
one statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from onceward.runtime.environment import Environment
from onceward.stores.tables import Row

TEXT_MAX = 2_000
"""Characters of any text that is kept."""


class CallOutcome(StrEnum):
    """How an attempt ended."""

    EXECUTED = "executed"
    """It ran: there is an effect, and this attempt made it."""
    REPLAYED = "replayed"
    """It had run before; this attempt changed nothing."""
    REFUSED = "refused"
    """It was not run."""
    FAILED = "failed"
    """It ran and raised."""
    UNKNOWN = "unknown"
    """Nobody knows whether there is an effect."""


class RunStatus(StrEnum):
    """The status of a run or a turn."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Note(NamedTuple):
    """A statement to be run: a run or a turn begins or ends, or something old is deleted."""

    text: str
    values: Mapping[str, Any]
    at: float
    """When it happened, on this process's own clock: how long ago that is, is known when it is written."""


class CallDetails(NamedTuple):
    """What an attempt is at."""

    scope: str
    worker: str
    tool: str
    run: str | None = None
    turn: int | None = None
    digest: str | None = None
    fingerprint: str | None = None
    arguments: str | None = None
    call_id: str | None = None
    """The model's own name of the tool call."""


CallNote: TypeAlias = tuple[Any, ...]
"""
An attempt begins, or has ended so: its id and `CallDetails`, when it began and when this was, outcome (None: it begins)
and detail. A plain tuple, because thousands wait to be written, and those the garbage collector soon leaves alone.
"""


def row_of(note: CallNote, now: float, wall: int, process: str) -> Row:
    """What is written of an attempt: `now` on this process's clock is `wall` on the database's."""
    id, scope, worker, tool, run, turn, digest, fingerprint, arguments, call_id, began, at, outcome, detail = note
    ended = wall - max(0, round((now - at) * 1_000_000))
    return (
        id,
        scope,
        None if run is None else truncated(run),
        turn,
        worker,
        truncated(tool),
        digest,
        fingerprint,
        None if arguments is None else truncated(arguments),
        None if call_id is None else truncated(call_id),
        process,
        outcome,
        None if detail is None else truncated(detail),
        ended - round((at - began) * 1_000_000),
        None if outcome is None else ended,
    )


def is_end(note: CallNote) -> bool:
    """Whether the attempt has ended."""
    return note[-2] is not None


JournalNote: TypeAlias = Note | CallNote


_RUN = """INSERT INTO onceward_journal_runs
        (scope, id, worker, status, input_ref, error, begun, started_at, finished_at)
    VALUES (:scope, :id, :worker, :status, :input_ref, :error, 1, :now - :ago - :elapsed, {})
    ON CONFLICT (scope, id) DO UPDATE SET """
_TURN = """INSERT INTO onceward_journal_turns (scope, run, seq, status, error, begun, started_at, finished_at)
    VALUES (:scope, :run, :seq, :status, :error, 1, :now - :ago - :elapsed, {})
    ON CONFLICT (scope, run, seq) DO UPDATE SET """
_AGAIN = "status = excluded.status, error = NULL, finished_at = NULL, begun = {}.begun + 1"
_OVER = "status = excluded.status, error = excluded.error, finished_at = excluded.finished_at"
_CALLS = """INSERT INTO onceward_journal_calls (id, scope, run, turn, worker, tool, digest, fingerprint, arguments,
        call_id, process, outcome, detail, started_at, finished_at) {rows} ON CONFLICT (id) DO """
_NEVER, _NOW = "NULL", ":now - :ago"

RUN_BEGUN = _RUN.format(_NEVER) + _AGAIN.format("onceward_journal_runs") + ", worker = excluded.worker"
RUN_ENDED = _RUN.format(_NOW) + _OVER
TURN_BEGUN = _TURN.format(_NEVER) + _AGAIN.format("onceward_journal_turns")
TURN_ENDED = _TURN.format(_NOW) + _OVER
CALLS_BEGUN = _CALLS + "NOTHING"
CALLS_ENDED = (
    _CALLS + "UPDATE SET outcome = excluded.outcome, detail = excluded.detail, finished_at = excluded.finished_at"
)
CALL_TYPES = ("text", "text", "text", "bigint", *("text",) * 9, "bigint", "bigint")
"""Of a row's columns."""


class NoteSubject:
    """A run or a turn: makes its two notes."""

    __slots__ = ("_begun", "_ended", "_environment", "_values", "began")

    def __init__(self, environment: Environment, statements: tuple[str, str], values: Mapping[str, Any]) -> None:
        self._environment = environment
        self._begun, self._ended = statements
        self._values = values
        self.began = environment.monotonic()

    def begun(self) -> Note:
        """It begins."""
        return self._note(self._begun, RunStatus.RUNNING.value, None)

    def ended(self, how: str, why: str | None = None) -> Note:
        """It ended so."""
        return self._note(self._ended, how, why)

    def _note(self, text: str, how: str, why: str | None) -> Note:
        at = self._environment.monotonic()
        elapsed = round((at - self.began) * 1_000_000) if text is self._ended else 0
        return Note(text, {**self._values, "status": how, "error": truncated(why), "elapsed": elapsed}, at)


_IDS = 1 << 40


class CallSubject:
    """An attempt: makes its two notes."""

    __slots__ = ("_environment", "_what", "about", "began", "noted")

    def __init__(self, environment: Environment, what: CallDetails) -> None:
        self._environment = environment
        self._what = what
        self.about = f"{environment.wall_us():014x}{int(environment.chance() * _IDS):010x}"
        """Its id: no secret, and only within a microsecond does chance tell two apart."""
        self.began = environment.monotonic()
        self.noted = False
        """Whether somebody has made the note of its beginning."""

    def begun(self) -> CallNote:
        """It begins."""
        self.noted = True
        return (self.about, *self._what, self.began, self.began, None, None)

    def ended(self, how: str, why: str | None = None) -> CallNote:
        """It ended so."""
        return (self.about, *self._what, self.began, self._environment.monotonic(), how, why)


def run_subject(environment: Environment, scope: str, id: str, worker: str, input_ref: str | None) -> NoteSubject:
    """A run."""
    values = {"scope": scope, "id": truncated(id), "worker": worker, "input_ref": truncated(input_ref)}
    return NoteSubject(environment, (RUN_BEGUN, RUN_ENDED), values)


def turn_subject(environment: Environment, scope: str, run: str, seq: int) -> NoteSubject:
    """A turn of a run."""
    values = {"scope": scope, "run": truncated(run), "seq": seq}
    return NoteSubject(environment, (TURN_BEGUN, TURN_ENDED), values)


def truncated(text: object) -> str | None:
    """No more than is kept; and nothing that a database cannot hold."""
    if text is None:
        return None
    if type(text) is str and len(text) <= TEXT_MAX and text.isascii() and "\0" not in text:
        return text
    return str(text)[:TEXT_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
