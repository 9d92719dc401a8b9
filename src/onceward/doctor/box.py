"""
A box of a checklist, and what comes of looking into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onceward.doctor.examination import Evidence

PLACES_SHOWN: Final = 3
"""In a sentence for people; programs get all of them."""


class BoxState(Enum):
    """What is known of a box. Only the first two are good."""

    FILLED = "filled"
    """There is evidence."""
    STATED = "stated"
    """Nobody can see it from here, and somebody has put their word into pyproject.toml."""
    IDLE = "idle"
    """Everything was read, and what the box is about does not occur."""
    EMPTY = "empty"
    """Something is missing."""
    UNKNOWN = "unknown"
    """It cannot be known from here, which is as good as missing."""

    @property
    def is_empty(self) -> bool:
        """Whether somebody has to do something."""
        return self in (BoxState.EMPTY, BoxState.UNKNOWN)


@dataclass(frozen=True, slots=True, order=True)
class CodePlace:
    """A line of a file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class BoxAnswer:
    """What was found: one line for people, and the places that it speaks of."""

    state: BoxState
    words: str
    places: tuple[CodePlace, ...] = ()

    @property
    def line(self) -> str:
        """The sentence with its first places."""
        if not self.places:
            return self.words
        shown = ", ".join(map(str, self.places[:PLACES_SHOWN]))
        more = len(self.places) - PLACES_SHOWN
        return f"{self.words} ({shown}{f' and {more} more' if more > 0 else ''})"


@dataclass(frozen=True, slots=True)
class Box:
    """One box: its sentence as the document has it, where its evidence is, and who looks."""

    id: str
    group: str
    sentence: str
    source: str
    """Where evidence comes from: code, sql, settings, store, journal, operations."""
    look: Callable[[Evidence], BoxAnswer]
    follows_code: bool = True
    """Whether a file that cannot be read keeps it from being filled."""


def filled(words: str, places: Sequence[CodePlace] = ()) -> BoxAnswer:
    """There is evidence."""
    return BoxAnswer(BoxState.FILLED, words, _unique(places))


def idle(words: str) -> BoxAnswer:
    """It does not occur."""
    return BoxAnswer(BoxState.IDLE, words)


def empty(words: str, places: Sequence[CodePlace] = ()) -> BoxAnswer:
    """Something is missing; the words say what to do."""
    return BoxAnswer(BoxState.EMPTY, words, _unique(places))


def unknown(words: str, places: Sequence[CodePlace] = ()) -> BoxAnswer:
    """It cannot be known; the words say why, and what to give."""
    return BoxAnswer(BoxState.UNKNOWN, words, _unique(places))


def _unique(places: Sequence[CodePlace]) -> tuple[CodePlace, ...]:
    return tuple(sorted(set(places)))
