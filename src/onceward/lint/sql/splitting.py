"""
Where statements end, and the limits that are looked at before a parser is called.

Parsers take memory and stack for every word, and some crash on texts that nest deeply. So a statement that is long or
deep is parsed in another process (`parse_process.py`), and one that is beyond all reason is not parsed at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from onceward._core.sql_lexer import Dialect, SqlToken, TokenKind, tokens_of

TOKENS_PER_FILE_MAX: Final = 600_000
"""A file of two megabytes, as people and dumps write them, has fewer."""
TOKENS_MAX: Final = 200_000
"""Of one statement: an INSERT of ten thousand rows has about as many."""
DEPTH_MAX: Final = 400
"""Of parentheses. What people wrote nests less than 20 deep."""
STATEMENTS_MAX: Final = 20_000
"""Of one file."""
TOKENS_SHORT: Final = 2_000
"""A statement up to this is parsed in this process: no parser that we use has trouble with it."""
DEPTH_SHORT: Final = 60
_SENDS: Final = ("\\g", "\\watch", "\\crosstabview")
"""psql's commands that send the statement before them, as a semicolon would."""


@dataclass(slots=True)
class Piece:
    """One statement as a piece of the text, with its tokens (no more than TOKENS_MAX of them)."""

    start: int
    tokens: list[SqlToken] = field(default_factory=list)
    last: str = ""
    """Its last token so far, also if that is one too many to be kept."""
    count: int = 0
    depth: int = 0
    cut: bool = False
    """Whether the file had more tokens than are looked at: this is where it was left."""

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.tokens[-1].end if self.tokens else self.start

    @property
    def is_too_large(self) -> bool:
        """Whether it is not parsed at all."""
        return self.cut or self.count > TOKENS_MAX or self.depth > DEPTH_MAX

    @property
    def is_short(self) -> bool:
        """Whether it may be parsed in this process."""
        return self.count <= TOKENS_SHORT and self.depth <= DEPTH_SHORT

    def words(self, count: int) -> list[str]:
        """The first words of it, in capitals."""
        return [token.text for token in self.tokens[:count]]


def split_statements(text: str, dialect: Dialect, start: int = 0, end: int | None = None) -> Iterator[Piece]:
    """The statements of a text. T-SQL needs no semicolons, so there a piece is a batch: what stands between two GO."""
    piece, paren, block, total, number = Piece(start), 0, 0, 0, 0
    text = text if end is None else text[:end]
    stream = tokens_of(text, dialect, start)
    while (token := next(stream, None)) is not None:
        total += 1
        if total > TOKENS_PER_FILE_MAX or number >= STATEMENTS_MAX:
            yield Piece(token.start, [token], cut=True)
            return
        ends = _is_end(token, piece, dialect, paren, block)
        if not ends and not (token.kind is TokenKind.LINE and not piece.tokens):
            if not piece.tokens:
                piece.start = token.start
            piece.count += 1
            piece.last = token.text
            if piece.count <= TOKENS_MAX + 1:
                piece.tokens.append(token)
            paren = (
                max(0, paren + (token.text in "([") - (token.text in ")]")) if token.kind is TokenKind.MARK else paren
            )
            piece.depth = max(piece.depth, paren)
            block = _block_depth(token, piece, dialect, block)
        elif piece.tokens:
            yield piece
            number += 1
            if _is_copy(piece):
                stream = tokens_of(text, dialect, _end_of_data(text, token.end))
            piece, paren, block = Piece(token.end), 0, 0
    if piece.tokens:
        yield piece


def _is_end(token: SqlToken, piece: Piece, dialect: Dialect, paren: int, block: int) -> bool:
    if dialect is Dialect.TSQL:
        # `GO` stands alone on a line; here it is enough that it begins a statement, as it does in texts without lines.
        return token.text == "GO" and token.kind is TokenKind.WORD and piece.last in ("", ";", "END", ")")
    if token.kind is TokenKind.LINE:
        return token.text.startswith(_SENDS)
    # Only a rule has semicolons in parentheses. Anywhere else somebody forgot to close one, and the next is read.
    inside = paren > 0 and "RULE" in piece.words(4)
    return token.kind is TokenKind.MARK and token.text == ";" and block == 0 and not inside


def _block_depth(token: SqlToken, piece: Piece, dialect: Dialect, block: int) -> int:
    """How many blocks with semicolons inside are open: SQLite's triggers, and PostgreSQL's BEGIN ATOMIC."""
    if token.kind is not TokenKind.WORD or dialect is Dialect.TSQL or piece.tokens[0].text != "CREATE":
        return block
    if block == 0:
        before = piece.tokens[-2].text if len(piece.tokens) > 1 else ""
        opens = (
            token.text == "ATOMIC" and before == "BEGIN"
            if dialect is Dialect.POSTGRES
            else token.text == "BEGIN" and "TRIGGER" in piece.words(4)
        )
        return 1 if opens else 0
    return block + (token.text in ("CASE", "BEGIN")) - (token.text == "END")


def _is_copy(piece: Piece) -> bool:
    return piece.tokens[0].text == "COPY" and piece.tokens[-1].text == "STDIN"


def _end_of_data(text: str, place: int) -> int:
    """Where the rows end that follow a COPY in a dump."""
    end = text.find("\n\\.", place)
    return len(text) if end < 0 else end + 3
