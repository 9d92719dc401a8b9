"""
Text for people: tables, lists of facts, and stored text made harmless.

What is stored was written by others: a result or a failure's message may hold terminal commands (ANSI escapes), line
ends that forge a row, or marks that turn the direction of writing. All of it is shown as escapes, never performed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from onceward._core.display_text import escape_invisible as escape_invisible

CELL_CHARACTERS_MAX = 40
"""Per cell of a table: seven columns still fit a wide terminal; `show` and --json have the whole text."""

RESULT_CHARACTERS_MAX = 4_000
"""Of a result, in text: about a screen. --json has all of it."""


def shorten(text: str, limit: int = CELL_CHARACTERS_MAX) -> str:
    """A long text with its middle left out: both ends of a key tell more than its first half."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[head + 1 - limit :]}"


def format_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, limit: int | None = CELL_CHARACTERS_MAX
) -> str:
    """Columns, aligned: numbers to the right, the rest to the left."""
    cells = [list(headings), *([_cell(value, limit) for value in row] for row in rows)]
    numeric = [_all_numbers(column[1:]) for column in zip(*cells, strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    )


def format_facts(pairs: Iterable[tuple[str, object]]) -> str:
    """One fact a line: its name, and what there is to say. What is not known is left out."""
    known = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {escape_invisible(_text(value))}".rstrip() for name, value in known)


def pretty_json(value: Any, limit: int = RESULT_CHARACTERS_MAX) -> str:
    """A stored value as readable JSON, indented, harmless, and cut where a screen ends."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    cut = f"\n… ({len(text):,} characters; --json shows all)" if len(text) > limit else ""
    return "".join(one if one.isprintable() or one == "\n" else _json_escape(one) for one in text[:limit]) + cut


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def _cell(value: object, limit: int | None) -> str:
    text = escape_invisible(_text(value))
    return text if limit is None else shorten(text, limit)


def _text(value: object) -> str:
    return "" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _all_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(cell.replace(".", "", 1).replace("-", "", 1).isdecimal() or not cell for cell in cells)
