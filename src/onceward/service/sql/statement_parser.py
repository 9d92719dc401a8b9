"""
Reading a statement without running it: its verb, its placeholders, and words that must not be in it.

SQLite alone decides what a statement does, and the authorizer what it may do. This is for what neither can tell:
whether a reader could serve it, whether a dictionary of parameters fits it, and a clear word for what cannot work here.
Comments, texts and quoted names are told from the rest as SQLite does it (`tokenize.c`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from onceward.protocol.errors import SqlError, SqlKind

# What hides words: comments, texts, and three kinds of quoted names. What is left open goes to the end: SQLite refuses
# it, and looking for its end again and again would take a while.
_HIDING = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)"
    r"""|'[^']*(?:''[^']*)*(?:'|\Z)|"[^"]*(?:""[^"]*)*(?:"|\Z)|`[^`]*(?:``[^`]*)*(?:`|\Z)|\[[^\]]*(?:\]|\Z)""",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_\u0080-\U0010ffff][\w$]*")
_NAME = re.compile(r"[:@#$][\w$]+")
_ROLLBACK = re.compile(r"\bROLLBACK\b", re.IGNORECASE)
_AFTER_WITH = re.compile(r"[()]|\b(?:SELECT|VALUES|INSERT|REPLACE(?=\s+INTO)|UPDATE|DELETE)\b", re.IGNORECASE)

READS = frozenset(("SELECT", "VALUES", "EXPLAIN", "PRAGMA"))
"""Verbs that a reader can serve, as a rule; one that turns out to write is sent to the writer."""
SCHEMA_VERBS = frozenset(("CREATE", "ALTER", "DROP"))
WRITES = SCHEMA_VERBS | {"INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"}
"""Verbs of statements that write; WITH, where what follows could not be told."""

_TRANSACTIONS = frozenset(("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"))


class ParsedStatement(NamedTuple):
    """What can be seen of a statement."""

    verb: str
    """Its first word in capitals; after WITH, that of the statement that follows."""
    names: frozenset[str]
    """Named placeholders, without their first character."""
    positions: bool
    """Whether it has `?` placeholders."""


REMEMBERED = 500
REMEMBERED_CHARACTERS = 2_000
"""Readings that are kept, and of how long a statement: together a megabyte at most."""


def parse_statement(sql: str) -> ParsedStatement:
    """Look at a statement; refused here if it cannot be run inside a transaction of ours at all."""
    return _remembered(sql) if len(sql) <= REMEMBERED_CHARACTERS else _read(sql)


def needs_space(sql: str) -> bool:
    """Whether a statement may need room. A long one is taken to, without looking."""
    return len(sql) > REMEMBERED_CHARACTERS or parse_statement(sql).verb in WRITES - {"DELETE", "DROP"}


def only_reads(sql: str) -> bool:
    """Whether a statement changes nothing. One that cannot be read is refused when it is run, and does not either."""
    try:
        verb = parse_statement(sql).verb
    except SqlError:
        return True
    return verb in READS and not (verb == "PRAGMA" and "=" in sql)


def _read(sql: str) -> ParsedStatement:
    bare = _HIDING.sub(_blank, sql.removeprefix("\ufeff"))
    words = [word.upper() for word in islice((found[0] for found in _WORD.finditer(bare)), 3)]
    if not words:
        raise SqlError(SqlKind.SYNTAX, "the text has no SQL statement in it", hint="send one statement")
    _refuse(words, bare)
    verb = _verb_after_with(bare) if words[0] == "WITH" else words[0]
    return ParsedStatement(verb, frozenset(name[1:] for name in _NAME.findall(bare)), "?" in bare)


def _blank(found: re.Match[str]) -> str:
    """What stands for something hidden: nothing for a comment, a quoted nothing for the rest."""
    return " " if found[0][0] in "-/" else " '' "


def _verb_after_with(bare: str) -> str:
    """The verb of the statement behind the common table expressions, all of which are in parentheses."""
    depth = 0
    for found in _AFTER_WITH.finditer(bare):
        if found[0] in "()":
            depth += 1 if found[0] == "(" else -1
        elif depth == 0:
            return found[0].upper()
    return "WITH"


_remembered = lru_cache(maxsize=REMEMBERED)(_read)


def _refuse(words: list[str], bare: str) -> None:
    first = words[0]
    if first in _TRANSACTIONS:
        raise SqlError(
            SqlKind.DENIED,
            f"{first} is not allowed: every request is a transaction of its own",
            hint="send the statements that belong together as one batch",
        )
    if first == "VACUUM":
        raise SqlError(SqlKind.NOT_IN_TRANSACTION, "VACUUM cannot run inside a transaction, and every request is one")
    if first in ("ATTACH", "DETACH"):
        raise SqlError(SqlKind.DENIED, f"{first}: a request can use only its own database")
    if first == "EXPLAIN" and words[1:3] != ["QUERY", "PLAN"]:
        raise SqlError(SqlKind.DENIED, "EXPLAIN is not allowed", hint="use EXPLAIN QUERY PLAN")
    if _ROLLBACK.search(bare):
        # ON CONFLICT ROLLBACK, OR ROLLBACK and RAISE(ROLLBACK) would undo the requests that share the commit.
        raise SqlError(
            SqlKind.DENIED,
            "ROLLBACK is not allowed as a conflict clause: it would end a transaction that other requests share",
            hint="use ABORT, which undoes the statement; a name that is spelled so goes into double quotes",
        )
