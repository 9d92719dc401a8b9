"""
Notes, as SQL statements: a run, a turn or an attempt begins, and ends. Pure; `note_writer` writes them.

The note of an end has everything that the note of the beginning had: if the beginning could not be written, the end
makes up for it. If the end could not be written, the row stays without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from onceward.runtime.environment import Environment

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
    """One row to be written."""

    text: str
    values: Mapping[str, Any]
    at: float
    """When it happened, on this process's own clock: how long ago that is, is known when it is written."""
    about: str
    """The attempt, run or turn."""
    ends: bool


_RUN = """INSERT INTO onceward_journal_runs
        (scope, id, worker, status, input_ref, error, begun, started_at, finished_at)
    VALUES (:scope, :id, :worker, :status, :input_ref, :error, 1, :now - :ago - :elapsed, {})
    ON CONFLICT (scope, id) DO UPDATE SET """
_TURN = """INSERT INTO onceward_journal_turns (scope, run, seq, status, error, begun, started_at, finished_at)
    VALUES (:scope, :run, :seq, :status, :error, 1, :now - :ago - :elapsed, {})
    ON CONFLICT (scope, run, seq) DO UPDATE SET """
_AGAIN = "status = excluded.status, error = NULL, finished_at = NULL, begun = {}.begun + 1"
_OVER = "status = excluded.status, error = excluded.error, finished_at = excluded.finished_at"
_CALL = """INSERT INTO onceward_journal_calls (id, scope, run, turn, worker, tool, digest, fingerprint, arguments,
        call_id, process, outcome, detail, started_at, finished_at)
    VALUES (:id, :scope, :run, :turn, :worker, :tool, :digest, :fingerprint, :arguments, :call_id, :process, :outcome,
        :detail, :now - :ago - :elapsed, {}) ON CONFLICT (id) DO """
_NEVER, _NOW = "NULL", ":now - :ago"

RUN_BEGUN = _RUN.format(_NEVER) + _AGAIN.format("onceward_journal_runs") + ", worker = excluded.worker"
RUN_ENDED = _RUN.format(_NOW) + _OVER
TURN_BEGUN = _TURN.format(_NEVER) + _AGAIN.format("onceward_journal_turns")
TURN_ENDED = _TURN.format(_NOW) + _OVER
CALL_BEGUN = _CALL.format(_NEVER) + "NOTHING"
CALL_ENDED = (
    _CALL.format(_NOW)
    + "UPDATE SET outcome = excluded.outcome, detail = excluded.detail, finished_at = excluded.finished_at"
)


class NoteSubject:
    """A run, a turn or an attempt: makes its two notes."""

    __slots__ = ("_begun", "_ended", "_environment", "_name", "_values", "about", "began")

    def __init__(
        self, environment: Environment, about: str, statements: tuple[str, str], values: Mapping[str, Any], name: str
    ) -> None:
        self._environment = environment
        self._begun, self._ended = statements
        self._values = values
        self._name = name
        self.about = about
        self.began = environment.monotonic()

    def begun(self) -> Note:
        """It begins."""
        how = RunStatus.RUNNING.value if self._name == "status" else None
        return self._note(self._begun, how, None, ends=False)

    def ended(self, how: str, why: str | None = None) -> Note:
        """It ended so."""
        return self._note(self._ended, how, why, ends=True)

    def _note(self, text: str, how: str | None, why: str | None, *, ends: bool) -> Note:
        at = self._environment.monotonic()
        reason = "error" if self._name == "status" else "detail"
        elapsed = round((at - self.began) * 1_000_000) if ends else 0
        values = {**self._values, self._name: how, reason: truncated(why), "elapsed": elapsed}
        return Note(text, values, at, self.about, ends)


def run_subject(environment: Environment, scope: str, id: str, worker: str, input_ref: str | None) -> NoteSubject:
    """A run."""
    values = {"scope": scope, "id": truncated(id), "worker": worker, "input_ref": truncated(input_ref)}
    return NoteSubject(environment, f"run {scope} {id}", (RUN_BEGUN, RUN_ENDED), values, "status")


def turn_subject(environment: Environment, scope: str, run: str, seq: int) -> NoteSubject:
    """A turn of a run."""
    values = {"scope": scope, "run": truncated(run), "seq": seq}
    return NoteSubject(environment, f"turn {scope} {run} {seq}", (TURN_BEGUN, TURN_ENDED), values, "status")


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


def call_subject(environment: Environment, what: CallDetails) -> NoteSubject:
    """An attempt at a tool call."""
    id = f"{environment.wall_us():014x}{environment.random(5).hex()}"
    texts = {name: truncated(getattr(what, name)) for name in ("tool", "arguments", "run", "call_id")}
    values = {"id": id, **what._asdict(), **texts, "process": environment.process().hex()}
    return NoteSubject(environment, id, (CALL_BEGUN, CALL_ENDED), values, "outcome")


def without_superseded(notes: list[Note]) -> list[Note]:
    """Notes to be written at once: where one tells how an attempt ended, the note of its beginning is not needed."""
    ended = {note.about for note in notes if note.text is CALL_ENDED}
    return [note for note in notes if note.text is not CALL_BEGUN or note.about not in ended]


def truncated(text: object) -> str | None:
    """No more than is kept; and nothing that a database cannot hold."""
    if text is None:
        return None
    return str(text)[:TEXT_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
