"""
What an examination came to, as a document for programs and as lines for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from onceward._core.display_text import escape_invisible
from onceward.doctor.box import BoxState
from onceward.doctor.examination import Examined

MARKS: Final = {
    BoxState.FILLED: "[x]",
    BoxState.STATED: "[s]",
    BoxState.IDLE: "[-]",
    BoxState.EMPTY: "[ ]",
    BoxState.UNKNOWN: "[?]",
}
LEGEND: Final = (
    "[x] evidence  [s] stated  [-] does not occur  [ ] missing  [?] cannot be known from here, so it counts as missing"
)


def empty_boxes(examined: Sequence[Examined]) -> int:
    """How many boxes somebody has to do something about."""
    return sum(one.answer.state.is_empty for one in examined)


def verdict(examined: Sequence[Examined]) -> str:
    """How it stands, in a sentence."""
    missing = empty_boxes(examined)
    stated = sum(one.answer.state is BoxState.STATED for one in examined)
    said = f" {stated} filled by a statement." if stated else ""
    of = f"of {len(examined)} boxes"
    return f"{missing} {of} {'is' if missing == 1 else 'are'} empty.{said}" if missing else f"None {of} is empty.{said}"


def by_group(examined: Sequence[Examined]) -> Iterator[tuple[str, list[Examined]]]:
    """The boxes under their headings, in the order of the documents."""
    for group, boxes in groupby(examined, key=lambda one: one.box.group):
        yield group, list(boxes)


def as_lines(examined: Sequence[Examined]) -> str:
    """One line for each box, grouped."""
    lines: list[str] = []
    for group, boxes in by_group(examined):
        lines += [
            group,
            *(f"{MARKS[one.answer.state]} {one.box.sentence}: {escape_invisible(one.answer.line)}" for one in boxes),
            "",
        ]
    return "\n".join([*lines, LEGEND, verdict(examined)])


def as_document(examined: Sequence[Examined], files: int) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "healthy": empty_boxes(examined) == 0,
        "empty": empty_boxes(examined),
        "files": files,
        "boxes": [
            {
                "id": one.box.id,
                "group": one.box.group,
                "sentence": one.box.sentence,
                "source": one.box.source,
                "state": one.answer.state.value,
                "found": one.answer.words,
                "places": [{"path": place.path, "line": place.line} for place in one.answer.places],
            }
            for one in examined
        ],
    }
