"""
The table that gets a key, the four steps in their only safe order, and the names that the steps give to things.

The order is the safety property: a constraint before the backfill would meet rows without a key, and a NOT NULL before
it would fail or, with a default, give all of them the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from onceward._core.errors import ConfigurationError

WORKER = "worker_id"
KEY = "idempotency_key"

Dialect: TypeAlias = Literal["postgresql", "sqlite"]

_NAME_BYTES_MAX = 63
"""PostgreSQL cuts longer names, and the constraint would have another name than the one that was promised."""


class MigrationRefused(ConfigurationError):
    """
    This table cannot be migrated as it is, and nothing was changed. The message says what to change first.

    A loop must not repeat it: the table stays what it is.
    """

    code = "migration_refused"


class MigrationStep(Enum):
    """What is done, in this order."""

    ADD = "add"
    BACKFILL = "backfill"
    TIGHTEN = "tighten"
    CONSTRAIN = "constrain"


STEPS = tuple(MigrationStep)


class Progress(NamedTuple):
    """How far a table has come, as its schema and its rows say; nothing else remembers it."""

    added: bool
    """Both columns are there."""
    filled: bool
    """No row lacks a value."""
    tightened: bool
    """No row can lack one any more."""
    constrained: bool

    def is_done(self, step: MigrationStep) -> bool:
        """Whether there is nothing left to do for a step."""
        return self[STEPS.index(step)]


class Table(NamedTuple):
    """A table that was looked at and can be migrated."""

    dialect: Dialect
    schema: str
    name: str
    id_column: str
    id_type: str
    digest_schema: str = ""
    """Where pgcrypto is, quoted and with its dot; empty if it is not installed."""

    @property
    def quoted(self) -> str:
        """The name for SQL; always quoted, whatever it is made of."""
        return f"{quote(self.schema)}.{quote(self.name)}" if self.schema else quote(self.name)

    @property
    def id(self) -> str:
        """The id's column for SQL."""
        return quote(self.id_column)

    @property
    def constraint(self) -> str:
        """The name that people will read in an error about a duplicate."""
        return f"{self.name}_worker_idem_key"

    @property
    def presence(self) -> str:
        """The check that both values are there: PostgreSQL's while it is not yet NOT NULL, and SQLite's triggers."""
        return f"{self.name}_worker_idem_set"


def quote(name: str) -> str:
    """An identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def check_name(name: str, dialect: Dialect) -> None:
    """Refuse a table's name that no table can have, or that leaves no room for the constraint's."""
    if not name or "\x00" in name:
        raise MigrationRefused("a table name has at least one character, and no NUL. Write it as it is in the database")
    bytes_left = _NAME_BYTES_MAX - len("_worker_idem_key")
    if dialect == "postgresql" and len(name.encode()) > bytes_left:
        raise MigrationRefused(
            f"the name of this table is longer than {bytes_left} bytes, so PostgreSQL would shorten the name of its "
            f"constraint, {name[:20]}..._worker_idem_key. Rename the table first, or write its migration by hand"
        )


def check_order(steps: Sequence[MigrationStep], progress: Progress) -> None:
    """Refuse steps in another order, with one left out, or before those that must have been done."""
    places = [STEPS.index(step) for step in steps]
    if not places or places != list(range(places[0], places[0] + len(places))):
        typed = ", ".join(step.value for step in steps) or "none"
        raise MigrationRefused(
            f"these steps are out of order, or some are missing: {typed}. The safe order is: "
            f"{', '.join(step.value for step in STEPS)}"
        )
    for before in STEPS[: places[0]]:
        if not progress.is_done(before):
            raise MigrationRefused(
                f"{steps[0].value} comes after {before.value}, which has not been applied to this table. Generate "
                f"{before.value} first, or leave --step out for the whole migration"
            )
