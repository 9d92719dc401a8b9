"""
What the checks know of a statement, whichever parser read it: values without behaviour.

Places are offsets into the text, in characters. Names are as the database compares them: folded, without quotes, and
without the schema if that is the default one. `statement_codec.py` carries these between processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

GIVEN = "given"
"""From the caller, or from another table: the same at the next attempt."""
CONSTANT = "constant"
NULL = "null"
DEFAULT = "default"
"""The word DEFAULT."""
FRESH = "fresh"
"""Made anew at each attempt: `now()`, `gen_random_uuid()`, the next number."""


@dataclass(frozen=True, slots=True)
class Value:
    """What is put into a column, as far as a retry is concerned."""

    kind: str
    text: str = ""
    """The constant, or what makes it fresh."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as it is declared."""

    name: str
    at: int
    type: str = ""
    not_null: bool = False
    default: Value | None = None
    width: int = 0
    """Of a type that pads with blanks: the 36 of `char(36)`."""


@dataclass(frozen=True, slots=True)
class Unique:
    """A primary key, unique constraint or unique index."""

    columns: tuple[str, ...]
    """Names; an expression is in parentheses."""
    at: int
    name: str = ""
    primary: bool = False
    predicate: tuple[str, ...] = ()
    """Of a partial index: what must hold for a row to be in it, in parts that are joined by AND."""
    nulls_equal: bool = False
    deferrable: bool = False
    resolution: str = ""
    """What the constraint itself does about a second row: "ignore", "replace", or "" (an error)."""
    using_index: str = ""
    """The unique index that becomes this constraint."""
    excludes: bool = False
    """Whether it is an EXCLUDE constraint: it refuses, but only ON CONFLICT ON CONSTRAINT can name it."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The clause that says what happens to a second row."""

    action: str
    """"nothing", "update", "ignore" (SQLite's OR IGNORE), "replace" (OR REPLACE)."""
    at: int
    target: tuple[str, ...] = ()
    predicate: tuple[str, ...] = ()
    constraint: str = ""
    updates: tuple[str, ...] = ()
    """The columns that DO UPDATE sets."""
    adding: tuple[str, ...] = ()
    """Those of them that are set to themselves and something: the second time changes them again."""
    changes_nothing: bool = False
    """Every column is set to what it is: the row comes back by RETURNING."""


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT, wherever it stands."""

    at: int
    end: int
    table: str
    columns: tuple[str, ...] = ()
    """Empty: all of them, in order."""
    values: tuple[Value, ...] = ()
    """By column. Empty: not known one by one, such as `SELECT *`."""
    conflict: Conflict | None = None
    checks: tuple[str, ...] = ()
    """Tables whose lack of a row it looks for first: `WHERE NOT EXISTS (...)`."""
    default_row: bool = False
    """DEFAULT VALUES."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE."""

    at: int
    end: int
    table: str
    inserts: bool


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """An UPDATE of a table."""

    at: int
    end: int
    table: str
    columns: tuple[str, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A SELECT, alone or in a condition."""

    at: int
    end: int
    tables: tuple[str, ...]
    locks: bool = False
    """Whether it locks what is not there yet: advisory locks, or T-SQL's HOLDLOCK."""


@dataclass(frozen=True, slots=True)
class Lock:
    """LOCK TABLE, an advisory lock, or the isolation level SERIALIZABLE."""

    at: int
    end: int


@dataclass(frozen=True, slots=True)
class FoundCheck:
    """A condition that asks whether the statement before met a row: `IF NOT FOUND`, `@@ROWCOUNT = 0`."""

    at: int
    end: int


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table, or a view."""

    at: int
    end: int
    table: str
    columns: tuple[Column, ...] = ()
    uniques: tuple[Unique, ...] = ()
    kind: str = "table"
    """"table", "temporary", "view", "unknown" (AS SELECT)."""
    like: tuple[str, ...] = ()
    like_indexes: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ALTER TABLE ... ADD COLUMN."""

    at: int
    end: int
    table: str
    column: Column
    uniques: tuple[Unique, ...] = ()


@dataclass(frozen=True, slots=True)
class AddUnique:
    """A constraint or a unique index that is added to a table."""

    at: int
    end: int
    table: str
    unique: Unique


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """ALTER COLUMN: what becomes of it. None: as it was."""

    at: int
    end: int
    table: str
    column: str
    not_null: bool | None = None
    default: Value | None = None
    drops_default: bool = False
    type: str = ""
    width: int = 0


@dataclass(frozen=True, slots=True)
class Rename:
    """A new name for a table ("table"), a column ("column") or a constraint or index ("constraint")."""

    at: int
    end: int
    kind: str
    table: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Something that goes: "table", "column", "constraint", "index", "schema", "rows", or another kind."""

    at: int
    end: int
    kind: str
    table: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Transaction:
    """BEGIN, COMMIT or ROLLBACK ("begin", "commit", "rollback")."""

    at: int
    end: int
    word: str


@dataclass(frozen=True, slots=True)
class Handler:
    """What a routine does with errors."""

    at: int
    end: int
    catches_unique: bool
    catches_all: bool
    looks_at_name: bool
    """Whether it asks which constraint it was."""
    raises: bool
    """Whether it may raise again."""


@dataclass(frozen=True, slots=True)
class RoutineStep:
    """A statement of a routine, with the handler that its errors go to (a number, or -1)."""

    statement: Statement
    handler: int = -1
    condition: bool = False
    """Whether it stands in a condition."""


@dataclass(frozen=True, slots=True)
class Routine:
    """A function, procedure or anonymous block: its statements in the order of the text."""

    at: int
    end: int
    name: str
    steps: tuple[RoutineStep, ...]
    handlers: tuple[Handler, ...] = ()
    parameters: tuple[Column, ...] = ()
    is_trigger: bool = False
    """Whether it is run by another statement, with which it commits or rolls back."""
    claims: bool = False
    """Whether it claims a key with `onceward_claim`: what it writes commits or rolls back with that."""
    autocommits: bool = False
    """Whether each statement is a transaction of its own unless it says BEGIN (T-SQL)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What could not be parsed: "syntax" or "large" or "crash"."""

    at: int
    end: int
    kind: str
    message: str


Statement: TypeAlias = (
    Insert
    | Merge
    | UpdateRows
    | Read
    | Lock
    | FoundCheck
    | CreateTable
    | AddColumn
    | AddUnique
    | ChangeColumn
    | Rename
    | Drop
    | Transaction
    | Routine
    | Problem
)
