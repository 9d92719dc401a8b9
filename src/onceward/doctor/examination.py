"""
An examination: all evidence there is, every box asked, and what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onceward.doctor.box import Box, BoxAnswer, BoxState, unknown
from onceward.doctor.checklist import CHECKLIST
from onceward.doctor.code_facts import CodeFacts
from onceward.doctor.disciplines import DISCIPLINES
from onceward.doctor.journal_reader import JournalFacts
from onceward.doctor.sql_reader import SqlFacts
from onceward.doctor.store_reader import StoreFacts

BOXES: tuple[Box, ...] = (*CHECKLIST, *DISCIPLINES)


@dataclass(frozen=True)
class Evidence:
    """What was read. What nobody asked for is None."""

    code: CodeFacts
    sql: SqlFacts
    answers: Mapping[str, str] = field(default_factory=dict)
    store: StoreFacts | None = None
    journal: JournalFacts | None = None
    has_store: bool = False
    """Whether a store was named; its journal may be missing all the same."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A box, and what was found."""

    box: Box
    answer: BoxAnswer


def examine(evidence: Evidence) -> list[Examined]:
    """Ask every box."""
    return [Examined(box, _answer(box, evidence)) for box in BOXES]


def _answer(box: Box, evidence: Evidence) -> BoxAnswer:
    answer = box.look(evidence)
    unread = [*evidence.code.unread, *evidence.sql.unread]
    if box.follows_code and unread and answer.state in (BoxState.FILLED, BoxState.IDLE):
        # A file that is not understood may hold the very thing.
        answer = unknown("cannot be known while some files cannot be read: fix them, or exclude them", unread)
    stated = evidence.answers.get(box.id)
    if stated is not None and answer.state is BoxState.UNKNOWN and not unread:
        return BoxAnswer(BoxState.STATED, f"stated in pyproject.toml: {stated}")
    return answer
