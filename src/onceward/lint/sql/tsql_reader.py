"""
T-SQL batches: the structure by our own hand (TRY, CATCH, IF, transactions), each statement in it by sqlglot.

T-SQL needs no semicolons and sqlglot does not read TRY ... CATCH, so where a statement ends is decided by the words
that begin the next one.
"""

from __future__ import annotations

from typing import Final

from onceward._core.sql_lexer import Dialect, SqlToken, TokenKind, tokens_of
from onceward.lint.sql.glot_reader import read_with_sqlglot
from onceward.lint.sql.shifting import shifted
from onceward.lint.sql.statements import (
    AddColumn,
    AddUnique,
    ChangeColumn,
    Column,
    CreateTable,
    Drop,
    FoundCheck,
    Handler,
    Lock,
    Problem,
    Rename,
    Routine,
    RoutineStep,
    Statement,
    Transaction,
)

_STARTS: Final = frozenset(
    [
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "MERGE",
        "DECLARE",
        "SET",
        "IF",
        "ELSE",
        "WHILE",
        "BEGIN",
        "END",
        "RETURN",
        "THROW",
        "RAISERROR",
        "COMMIT",
        "ROLLBACK",
        "SAVE",
        "EXEC",
        "EXECUTE",
        "PRINT",
        "CREATE",
        "ALTER",
        "DROP",
        "TRUNCATE",
        "GO",
        "USE",
    ]
)
_READ: Final = frozenset(["SELECT", "INSERT", "UPDATE", "MERGE", "CREATE", "ALTER", "DROP", "TRUNCATE", "WITH"])
_JOINS: Final = frozenset(["UNION", "ALL", "EXCEPT", "INTERSECT", "ON", "AS", "FOR", "INSTEAD", "AFTER", "THEN"])
_DEFINITIONS: Final = (CreateTable, AddColumn, AddUnique, ChangeColumn, Rename, Drop)
_TRIES_MAX: Final = 20
_ROUTINES: Final = frozenset({"PROC", "PROCEDURE", "FUNCTION", "TRIGGER"})


def read_tsql(text: str, offset: int) -> list[Statement]:
    """The statements of one batch that stands at an offset of the whole."""
    batch = _Batch(text, offset)
    batch.read()
    found: list[Statement] = list(batch.problems)
    found += [step.statement for step in batch.steps if isinstance(step.statement, _DEFINITIONS)]
    steps = tuple(step for step in batch.steps if not isinstance(step.statement, _DEFINITIONS))
    if steps or batch.parameters:
        start, end = batch.span
        found.append(
            Routine(
                start,
                end,
                batch.name,
                steps,
                tuple(batch.handlers),
                tuple(batch.parameters),
                is_trigger=batch.is_trigger,
                autocommits=True,
            )
        )
    return found


class _Batch:
    """Reads a batch from its first token to its last."""

    def __init__(self, text: str, offset: int) -> None:
        self._text, self._offset = text, offset
        self._tokens = list(tokens_of(text, Dialect.TSQL))
        self._place = 0
        self._handler: list[int] = []
        self.name = ""
        self.is_trigger = False
        self.span = (offset, offset + min(len(text), 60))
        self.steps: list[RoutineStep] = []
        self.handlers: list[Handler] = []
        self.parameters: list[Column] = []
        self.problems: list[Problem] = []

    def read(self) -> None:
        """Take the whole batch."""
        while self._place < len(self._tokens):
            before = self._place
            self._statement()
            self._place = max(self._place, before + 1)

    def _word(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._tokens[place].text if place < len(self._tokens) else ""

    def _at(self) -> int:
        return self._offset + self._tokens[min(self._place, len(self._tokens) - 1)].start

    def _add(self, statement: Statement, *, condition: bool = False) -> None:
        self.steps.append(RoutineStep(statement, self._handler[-1] if self._handler else -1, condition))

    def _statement(self) -> None:
        word, following = self._word(), self._word(1)
        at = self._at()
        if word == "BEGIN" and following == "TRY":
            self._handler.append(len(self.handlers))
            # Each looks for its own END: one that nests deeper than people write is taken for one without a CATCH.
            deep = len(self._handler) > _TRIES_MAX
            self.handlers.append(Handler(at, at + 5, False, False, False, True) if deep else self._catch(at))
            self._place += 2
        elif word == "END" and following == "TRY":
            self._handler = self._handler[:-1]
            self._place += 2
        elif word in ("BEGIN", "END") and following == "CATCH":
            self._place += 2
        elif word == "BEGIN" and following in ("TRAN", "TRANSACTION"):
            self._add(Transaction(at, at + 5, "begin"))
            self._place += 2
        elif word in ("COMMIT", "ROLLBACK"):
            self._add(Transaction(at, at + len(word), word.lower()))
            self._place += 1
        elif word in ("IF", "WHILE"):
            self._condition()
        elif word in ("CREATE", "ALTER") and _ROUTINES & {following, self._word(3)}:
            self._header()
        elif word == "SET" and "SERIALIZABLE" in (self._word(4), self._word(5)):
            self._add(Lock(at, at + 3))
            self._leaf(word)
        elif word in _STARTS or word == "WITH":
            self._leaf(word)
        else:
            self._place += 1

    def _header(self) -> None:
        """CREATE PROCEDURE name (@parameters) AS: up to the body."""
        while self._place < len(self._tokens) and self._word() not in _ROUTINES:
            self._place += 1
        self.is_trigger = self._word() == "TRIGGER"
        self._place += 1
        begin = self._tokens[min(self._place, len(self._tokens) - 1)].start
        self.span = (self._offset + begin, self._offset + begin + 1)
        depth = 0
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            depth += (token.text == "(") - (token.text == ")")
            if token.text == "AS" and depth <= 0 and not self._word(-1).startswith("@"):
                break
            if token.text.startswith("@"):
                self._parameter(token)
            elif (
                not self.parameters and depth == 0 and token.kind in (TokenKind.QUOTED, TokenKind.WORD, TokenKind.MARK)
            ):
                self.name += token.text.strip('[]"').lower()
                self.span = (self.span[0], self._offset + token.end)
            self._place += 1
        self._place += 1

    def _parameter(self, token: SqlToken) -> None:
        kind = self._word(1).strip("[]").lower()
        size = self._word(3) if self._word(2) == "(" else ""
        width = (int(size) if size.isdecimal() else 1) if kind in ("char", "nchar") else 0
        self.parameters.append(Column(token.text.lower().lstrip("@"), self._offset + token.start, kind, width=width))

    def _condition(self) -> None:
        """IF or WHILE: the condition, which may look for a row, and not what follows it."""
        first = self._place + 1
        self._place, depth = first, 0
        while self._place < len(self._tokens):
            word = self._word()
            depth += (word == "(") - (word == ")")
            if depth <= 0 and word in _STARTS:
                break
            self._place += 1
        inside = self._tokens[first : self._place]
        if any(token.text == "SELECT" for token in inside):
            start = inside[0].start
            prefix = "SELECT 1 WHERE "
            for one in read_with_sqlglot(prefix + self._text[start : inside[-1].end], Dialect.TSQL):
                if not isinstance(one, Problem):
                    place = self._offset + start
                    self._add(shifted(one, place - len(prefix), not_before=place), condition=True)
        elif any(token.text == "@@ROWCOUNT" for token in inside):
            self._add(FoundCheck(self._offset + inside[0].start, self._offset + inside[-1].end), condition=True)

    def _leaf(self, word: str) -> None:
        """One statement, up to the word that begins the next."""
        first = self._place
        self._place = self._end_of_leaf(word)
        start, end = self._tokens[first].start, self._tokens[max(first, self._place - 1)].end
        if word not in _READ:
            return
        for one in read_with_sqlglot(self._text[start:end].rstrip("; \n"), Dialect.TSQL):
            moved = shifted(one, self._offset + start)
            if isinstance(moved, Problem):
                self.problems.append(moved)
            else:
                self._add(moved)

    def _end_of_leaf(self, first: str) -> int:
        depth = cases = 0
        has_source = first != "INSERT"
        place = self._place + 1
        while place < len(self._tokens):
            token, before = self._tokens[place], self._tokens[place - 1].text
            word = token.text
            depth += (word == "(") - (word == ")") if token.kind is TokenKind.MARK else 0
            if depth <= 0:
                if word == ";":
                    return place + 1
                if word == "CASE":
                    cases += 1
                elif word == "END" and cases:
                    cases -= 1
                elif word == "VALUES":
                    has_source = True
                elif token.kind is TokenKind.WORD and word in _STARTS and first != "MERGE" and not cases:
                    following = self._tokens[place + 1].text if place + 1 < len(self._tokens) else ""
                    if not self._continues(first, (word, following), before, has_source):
                        return place
                    has_source, first = has_source or word in ("SELECT", "EXEC"), word if first == "WITH" else first
                    has_source = has_source and word != "INSERT"
            place += 1
        return place

    @staticmethod
    def _continues(first: str, words: tuple[str, str], before: str, has_source: bool) -> bool:
        """Whether a word that may begin a statement goes on with this one."""
        word, following = words
        if before in _JOINS or first == "WITH":
            return True
        if first == "INSERT" and not has_source:
            return word in ("SELECT", "EXEC", "EXECUTE")
        if first == "UPDATE":
            return word == "SET"
        if first == "DROP":
            return word == "IF"
        return first == "ALTER" and (following in ("COLUMN", "CONSTRAINT") or word == "SET")

    def _catch(self, at: int) -> Handler:
        """What the CATCH block does that belongs to the TRY which begins here."""
        depth, place = 0, self._place
        while place < len(self._tokens):
            pair = (self._tokens[place].text, self._tokens[place + 1].text if place + 1 < len(self._tokens) else "")
            depth += (pair == ("BEGIN", "TRY")) - (pair == ("END", "TRY"))
            place += 1
            if pair == ("END", "TRY") and depth == 0:
                break
        words: list[str] = []
        begin, depth = place, 0
        while place < len(self._tokens):
            words.append(self._tokens[place].text)
            depth += words[-2:] == ["BEGIN", "CATCH"]
            depth -= words[-2:] == ["END", "CATCH"]
            if words[-2:] == ["END", "CATCH"] and depth == 0:
                break
            place += 1
        asks = words.index("ERROR_NUMBER") if "ERROR_NUMBER" in words else 1
        start = self._tokens[min(begin + asks, len(self._tokens) - 1)].start
        names_it = "2627" in words or "2601" in words
        raises = "THROW" in words or "RAISERROR" in words
        start = self._offset + start if words else at
        looks = "ERROR_MESSAGE" in words and ("LIKE" in words or "CHARINDEX" in words or "PATINDEX" in words)
        catches_all = not names_it and not raises
        return Handler(start, start + 12, names_it or catches_all, catches_all, looks, raises)
