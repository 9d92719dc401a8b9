"""
Reading a statement without running it: its verb, its placeholders, and words that must not be in it.

SQLite alone decides what a statement does, and the authorizer what it may do. This is for what neither can tell:
whether a reader could serve it, whether a dictionary of parameters fits it, and a clear word for what cannot work here.
The tokens are SQLite's (`tokenize.c`): comments, strings, four kinds of quoted names, numbers, words, placeholders.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from onceward.service.sql.errors import SqlError, SqlKind

_TOKEN = re.compile(
    r"""
      (?P<blank>   [ \t\n\f\r\ufeff]+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<quoted>  '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] )
    | (?P<open>    ['"`\[] )
    | (?P<number>  \?[0-9]* )
    | (?P<name>    [:@\#][\w$]+ | \$[\w$]+(?:::[\w$]+)*(?:\([^)\s]*\))? )
    | (?P<word>    [A-Za-z_\u0080-\U0010ffff][\w$]* )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)

READS = frozenset(("SELECT", "VALUES", "EXPLAIN", "PRAGMA"))
"""Verbs that a reader can serve, as a rule; one that turns out to write is sent to the writer."""
_AFTER_WITH = frozenset(("SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE"))
SCHEMA_VERBS = frozenset(("CREATE", "ALTER", "DROP"))

_TRANSACTIONS = frozenset(("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"))


class Reading(NamedTuple):
    """What can be seen of a statement."""

    verb: str
    """Its first word in capitals; after WITH, that of the statement that follows."""
    names: frozenset[str]
    """Named placeholders, without their first character."""
    positions: bool
    """Whether it has `?` placeholders."""


@lru_cache(maxsize=1_000)
def read(sql: str) -> Reading:
    """Look at a statement; refused here if it cannot be run inside a transaction of ours at all."""
    words: list[str] = []
    names: set[str] = set()
    positions, depth, verb = False, 0, ""
    for token in _TOKEN.finditer(sql):
        match token.lastgroup:
            case "word":
                word = token[0].upper()
                if not verb and depth == 0 and words and words[0] == "WITH" and word in _AFTER_WITH:
                    verb = word
                words.append(word)
            case "name":
                names.add(token[0][1:])
            case "number":
                positions = True
            case "other":
                depth += {"(": 1, ")": -1}.get(token[0], 0)
    if not words:
        raise SqlError(SqlKind.SYNTAX, "there is no statement in this text", hint="send one statement")
    _refuse(words)
    return Reading(verb or words[0], frozenset(names), positions)


def _refuse(words: list[str]) -> None:
    first = words[0]
    if first in _TRANSACTIONS:
        raise SqlError(
            SqlKind.DENIED,
            f"{first} is not yours to say here: every request is a transaction of its own",
            hint="send the statements that belong together as one batch",
        )
    if first == "VACUUM":
        raise SqlError(SqlKind.NOT_IN_TRANSACTION, "VACUUM cannot run inside a transaction, and every request is one")
    if first in ("ATTACH", "DETACH"):
        raise SqlError(SqlKind.DENIED, f"{first}: a request sees its own database and no other")
    if first == "EXPLAIN" and words[1:3] != ["QUERY", "PLAN"]:
        raise SqlError(SqlKind.DENIED, "the bytecode of a statement is not shown", hint="use EXPLAIN QUERY PLAN")
    if "ROLLBACK" in words:
        # ON CONFLICT ROLLBACK, OR ROLLBACK and RAISE(ROLLBACK) would undo the requests that share the commit.
        raise SqlError(
            SqlKind.DENIED,
            "ROLLBACK as a conflict clause is not possible: it would end a transaction that is not yours alone",
            hint="use ABORT, which undoes the statement; a name that is spelled so goes into double quotes",
        )
