"""
Watches Django's SQL, to know whether a view's writes were committed while it ran.

A view that returns 4xx says that nothing happened, and its key is free again. If some of its rows were committed all
the same (ATOMIC_REQUESTS commits whatever is returned, and so does autocommit), a retry would write them again. So each
statement that may write registers an on-commit hook with its connection. What is rolled back, as after
`set_rollback(True)`, never calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db import connections, transaction
from django.db.backends.signals import connection_created

_READS = re.compile(
    r"[\s(]*(?:SELECT|VALUES|EXPLAIN|SHOW|PRAGMA|SET|LOCK|DECLARE|FETCH|CLOSE"
    r"|BEGIN|START|SAVEPOINT|RELEASE|ROLLBACK|COMMIT|END)\b",
    re.IGNORECASE,
)
_HIDDEN_WRITE = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)


class CommitWatch:
    """Whether a write of one view was committed."""

    def __init__(self) -> None:
        self.seen = False
        """Whether something that the view wrote was committed."""

    def note(self) -> None:
        """Note that a write was committed."""
        self.seen = True


_watching: ContextVar[CommitWatch | None] = ContextVar("onceward_commits", default=None)


@contextmanager
def watch_commits() -> Iterator[CommitWatch]:
    """Watch for commits inside the block, in this task and in the threads that it calls."""
    commits = CommitWatch()
    token = _watching.set(commits)
    try:
        yield commits
    finally:
        _watching.reset(token)


def watch_connection(connection: Any) -> None:
    """Watch the writes of this connection from now on."""
    if _execute_wrapper not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute_wrapper)


def watch_connections() -> None:
    """The same for every connection that this thread has."""
    for connection in connections.all(initialized_only=True):
        watch_connection(connection)


def _on_connection_created(connection: Any, **_: Any) -> None:
    watch_connection(connection)


connection_created.connect(_on_connection_created, dispatch_uid="onceward.http.commits")


def _execute_wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    result = execute(sql, params, many, context)
    commits = _watching.get()
    if commits is not None and not commits.seen and _may_write(str(sql)):
        # In a transaction: once it commits. Without one: now.
        transaction.on_commit(commits.note, using=context["connection"].alias)
    return result


def _may_write(sql: str) -> bool:
    if _READS.match(sql):
        return False
    return not sql.lstrip().upper().startswith("WITH") or _HIDDEN_WRITE.search(sql) is not None
