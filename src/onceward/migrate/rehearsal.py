"""
A rehearsal: up, down and up again on a copy, with the differences that each made.

PostgreSQL's copy is a scratch schema in the same database: a database of its own would need the right to create one,
and every type and extension of the first. SQLite's is a file.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from onceward.migrate import statements
from onceward.migrate.database import COPY_BYTES_MAX, Application, Migrator
from onceward.migrate.reporting import Say
from onceward.migrate.table import STEPS, MigrationStep, Table


class Rehearsal(NamedTuple):
    """What came of it."""

    up: list[str]
    """What changed from before to after the first up, a line each: "+ ..." or "- ..."."""
    down: list[str]
    """What differs after the down from before; nothing, if it takes everything back."""
    again: list[str]
    """What differs after the second up from after the first; nothing, if both are the same."""

    @property
    def is_good(self) -> bool:
        """Whether down took everything back, and the second up made the same of it."""
        return bool(self.up) and not self.down and not self.again


def rehearse(
    database: Migrator, table: Table, wanted: Application, say: Say, bytes_max: int = COPY_BYTES_MAX
) -> Rehearsal:
    """Run up, down and up on a copy; the table itself is only read."""
    with database.copy(table, bytes_max) as (copy, copied):
        # A table that is on its way already begins from where nothing was done.
        progress = copy.progress_of(copied)
        if progress.added:
            copy.apply(copied, wanted._replace(until=MigrationStep.CONSTRAIN), say)
            _take_back(copy, copied)
        shots = [copy.describe(copied)]
        wanted = wanted._replace(until=MigrationStep.CONSTRAIN)
        copy.apply(copied, wanted, say)
        shots.append(copy.describe(copied))
        _take_back(copy, copied)
        shots.append(copy.describe(copied))
        copy.apply(copied, wanted, say)
        shots.append(copy.describe(copied))
    before, up, down, again = shots
    return Rehearsal(_differences(before, up), _differences(before, down), _differences(up, again))


def _take_back(copy: Migrator, table: Table) -> None:
    copy.execute([statement for step in reversed(STEPS) for statement in statements.down(table, step)])


def _differences(old: list[str], new: list[str]) -> list[str]:
    return [line for line in difflib.ndiff(old, new) if line[:2] in ("+ ", "- ")]
