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
from onceward.cli.terminal import BOLD, painted, style_of, table_width

CELL_CHARACTERS_MAX = 40
"""Per cell of a table: seven columns still fit a wide terminal; `show` and --json have the whole text."""

COLUMN_LEAST = 8
"""Characters that a column keeps; if they do not fit, columns are left out from the right."""
COLUMNS_LEAST = 2
"""Columns that stay, however narrow the terminal is."""

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
    """
    Columns, aligned: numbers to the right, the rest to the left. The most important first.

    On a terminal it fits the width: the first column is what a row is called and stays whole, the others are shortened,
    and if that is not enough, the last ones are left out, which is said.
    """
    cells = [list(headings), *([_cell(value, limit) for value in row] for row in rows)]
    most = table_width()
    natural = [max(map(len, column)) for column in zip(*cells, strict=True)]
    kept = _columns_that_fit(natural, cells[0], most)
    cells = [row[:kept] for row in cells]
    numeric = [_all_numbers(column[1:]) for column in zip(*cells, strict=True)]
    widths = _fitted(natural[:kept], cells[0], most)
    lines = []
    for row in cells:
        styles = [BOLD if row is cells[0] else style_of(cell) for cell in row]
        shown = [shorten(cell, width) for cell, width in zip(row, widths, strict=True)]
        aligned = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(shown, widths, numeric, strict=True)
        ]
        aligned[-1] = aligned[-1].rstrip()
        lines.append("  ".join(painted(cell, style) for cell, style in zip(aligned, styles, strict=True)).rstrip())
    if kept < len(headings):
        lines.append(f"(no room for {', '.join(headings[kept:])}; --json has all)")
    return "\n".join(lines)


def _leasts(widths: list[int], headings: Sequence[str], most: int) -> list[int]:
    """How far each column can be shortened; the first, which names the row, only if it takes half of the line."""
    shortest = [min(width, max(len(one), COLUMN_LEAST)) for width, one in zip(widths, headings, strict=True)]
    return [widths[0] if widths[0] <= most // 2 else shortest[0], *shortest[1:]]


def _columns_that_fit(widths: list[int], headings: Sequence[str], most: int | None) -> int:
    """How many columns fit if each is as short as it can be."""
    kept = len(widths)
    if most is not None:
        leasts = _leasts(widths, headings, most)
        while kept > COLUMNS_LEAST and sum(leasts[:kept]) + 2 * (kept - 1) > most:
            kept -= 1
    return kept


def _fitted(widths: list[int], headings: Sequence[str], most: int | None) -> list[int]:
    """The widths of columns, so that a row fits: the widest give way first."""
    if most is None:
        return widths
    least = _leasts(widths, headings, most)
    while sum(widths) + 2 * (len(widths) - 1) > most:
        spare = [width - low for width, low in zip(widths, least, strict=True)]
        widest = max(range(len(widths)), key=lambda number: (spare[number] > 0, widths[number]))
        if spare[widest] <= 0:
            break
        widths[widest] -= 1
    return widths


def format_facts(pairs: Iterable[tuple[str, object]]) -> str:
    """One fact a line: its name, and what there is to say. What is not known is left out."""
    known = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    lines = ((name.ljust(width), escape_invisible(_text(value))) for name, value in known)
    return "\n".join(f"{name}  {painted(text, style_of(text))}".rstrip() for name, text in lines)


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
