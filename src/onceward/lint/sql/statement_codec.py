"""
Statements as JSON, for the way from the parsing process back to the linter.

Only the classes of `statements.py` can be named, so what a confused parser says becomes a value or an error, and
nothing else.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from onceward.lint.sql import statements
from onceward.lint.sql.statements import Statement

_CLASSES: Final = {
    one.__name__: one
    for one in (
        statements.Value,
        statements.Column,
        statements.Unique,
        statements.Conflict,
        statements.Handler,
        statements.RoutineStep,
        *statements.Statement.__args__,
    )
}


def to_document(value: Any) -> Any:
    """A statement, or a part of one, as JSON has it."""
    if isinstance(value, tuple | list):
        return [to_document(one) for one in value]
    if type(value).__name__ in _CLASSES:
        return {"is": type(value).__name__} | {one.name: to_document(getattr(value, one.name)) for one in fields(value)}
    return value


def from_document(document: Any) -> Any:
    """The way back. Raises KeyError, TypeError or ValueError for what is no statement."""
    if isinstance(document, list):
        return tuple(from_document(one) for one in document)
    if isinstance(document, dict):
        made = _CLASSES[document["is"]]
        return made(**{name: from_document(one) for name, one in document.items() if name != "is"})
    return document


def statements_of(document: Any) -> list[Statement]:
    """The statements in what a parsing process printed. Raises as `from_document` does."""
    if not isinstance(document, list):
        raise TypeError("not a list of statements")
    return list(from_document(document))
