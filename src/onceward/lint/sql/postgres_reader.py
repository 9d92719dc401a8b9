"""
From PostgreSQL's own parser (libpg_query, by `pgparse`) to the statements of the checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from onceward.lint.sql.postgres_definitions import CREATING, read_definition
from onceward.lint.sql.postgres_inserts import read_insert, read_merge, read_select, read_update
from onceward.lint.sql.postgres_tree import Node, joined_name, nodes, only, strings
from onceward.lint.sql.statements import Lock, Problem, Routine, RoutineStep, Statement, Transaction

_TRANSACTIONS: Final = {
    "TRANS_STMT_BEGIN": "begin",
    "TRANS_STMT_START": "begin",
    "TRANS_STMT_COMMIT": "commit",
    "TRANS_STMT_ROLLBACK": "rollback",
}
_WRITING: Final = ("InsertStmt", "UpdateStmt", "MergeStmt")


class Places:
    """From libpg_query's places, which are bytes of one statement, to characters of the whole text."""

    def __init__(self, text: str, offset: int) -> None:
        self.text, self._offset = text, offset
        self._bytes = None if text.isascii() else text.encode()

    def at(self, place: int) -> int:
        """A place in the whole text."""
        if self._bytes is None:
            return self._offset + place
        return self._offset + len(self._bytes[:place].decode("utf-8", "ignore"))

    def span(self, node: Node) -> tuple[int, int]:
        """Where a table's name stands, from the word before it that says what is done."""
        place = self.at(int(node.get("location", 0))) - self._offset
        found = re.compile(r"[\w$]+|\"[^\"]*\"").match(self.text, place)
        return place + self._offset, (found.end() if found else place + 1) + self._offset

    def from_word(self, word: str, node: Node) -> tuple[int, int]:
        """From the last such word before a name to the end of the name."""
        start, end = self.span(node)
        before = self.text[max(0, start - self._offset - 400) : start - self._offset].lower()
        begin = before.rfind(word)
        return (start - len(before) + begin if begin >= 0 else start), end


def read_postgres(text: str, offset: int) -> list[Statement]:
    """The statements in a piece of text that stands at an offset of the whole. What cannot be parsed is a Problem."""
    parser: Any = import_module("pgparse")
    try:
        parsed = parser.parse(text)
    except parser.PGQueryError as error:
        place = offset + max(0, int(error.position) - 1)
        return [Problem(place, place + 1, "syntax", str(error.message))]
    found: list[Statement] = []
    places = Places(text, offset)
    for one in parsed:
        found += _read(only(one.get("stmt")), places)
    return found


def _read(statement: tuple[str, Node], places: Places) -> Iterator[Statement]:
    name, inside = statement
    start = places.at(0)
    end = start + min(len(places.text), 60)
    if name in ("CreateFunctionStmt", "DoStmt"):
        # Here, because routines are made of statements.
        from onceward.lint.sql.postgres_routines import read_routine

        yield from read_routine(inside, places)
        if "sql_body" in inside:
            steps = tuple(RoutineStep(one) for one in _writes_and_reads(inside["sql_body"], places))
            yield Routine(start, end, joined_name(strings(inside.get("funcname"))), steps)
    elif name == "TransactionStmt":
        word = _TRANSACTIONS.get(str(inside.get("kind")))
        if word == "begin" and "serializable" in places.text.lower():
            yield Transaction(start, end, word)
            yield Lock(start, end)
        elif word:
            yield Transaction(start, end, word)
    elif name == "LockStmt":
        yield Lock(start, end)
    elif name == "VariableSetStmt":
        if "serializable" in places.text.lower():
            yield Lock(start, end)
    elif name in CREATING:
        yield from read_definition(name, inside, places)
    else:
        yield from _writes_and_reads({name: inside}, places)


def _writes_and_reads(tree: Any, places: Places) -> Iterator[Statement]:
    """What a statement writes, wherever in it that stands, such as in a WITH; or what it reads if it writes nothing."""
    # Those in a function's body are in the order of the text; those in a WITH come before what uses them.
    common = _common_tables(tree)
    wrote = False
    for name, inside in nodes(tree):
        if name == "InsertStmt":
            yield read_insert(inside, places, common)
        elif name == "UpdateStmt":
            yield read_update(inside, places)
        elif name == "MergeStmt":
            yield read_merge(inside, places)
        wrote = wrote or name in _WRITING
    if not wrote:
        yield from read_select(tree, places)


def _common_tables(tree: Any) -> dict[str, tuple[str, ...]]:
    """The names in a WITH, with the tables that each stands for."""
    from onceward.lint.sql.postgres_inserts import tables_in

    return {
        str(inside.get("ctename")): tables_in(inside.get("ctequery"))
        for name, inside in nodes(tree)
        if name == "CommonTableExpr"
    }
