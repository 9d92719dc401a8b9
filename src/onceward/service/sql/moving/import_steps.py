"""
What both targets of an import share: the places where one can die, the stages, and what is said when it cannot go on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.runtime import failpoints

MADE = failpoints.declare("sql.import.made", "the tables of an import are there | its first rows are")
ADDED = failpoints.declare("sql.import.added", "some rows or records are imported | the next ones are")
COMPLETE = failpoints.declare("sql.import.complete", "indexes and numbers are made | rows are compared")
COMPARED = failpoints.declare("sql.import.compared", "what was imported is as it was exported | it gets its name")
LINKED = failpoints.declare("sql.import.linked", "an imported file has its name | it loses its hidden one")
PUBLISHED = failpoints.declare("sql.import.published", "an imported database can be found | the caller is told")

ROWS: Final = "rows"
"""The stage in which rows and records are added."""
WHOLE: Final = "whole"
"""Everything is there; it is compared, and published."""


class Misfit(NamedTuple):
    """A value that would not come back as it was."""

    row: int
    """Its number among those that were looked at."""
    column: int
    """The number of its column."""
    why: str


def exists_already(database: str) -> ConfigurationError:
    """There is another database of that name."""
    return ConfigurationError(
        f"the database {database} already exists, and was not changed. If this one is to replace "
        "it, drop it and run the command again"
    )


def begun_otherwise() -> ConfigurationError:
    """Another import stands in the way."""
    return ConfigurationError(
        "an import of another file, or with other options, was started here and is not finished. "
        "Finish that one, or add --restart to discard it"
    )


def another_is_at_it() -> ConfigurationError:
    """Somebody else imports the same database now."""
    return ConfigurationError("another import of this database is running; wait for it to end, then run this again")
