"""
Whether a store's schema is that of this version, or on its way there.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward.stores._store_kinds import kind_of

STEP_SHOWN = 120
"""Of a statement: what says which one it is."""


class SchemaOverview(NamedTuple):
    """A schema that is not that of this version, or not all of it."""

    before: int
    after: int
    left: tuple[str, ...]
    """What is still to be run, by name and in order."""
    begun: bool
    """Whether a migration was begun, and has not come to its end."""


def look_at_schema(url: str) -> SchemaOverview | None:
    """What is left to do for a store's schema; None: nothing, or there is no schema to speak of."""
    find = kind_of(url).upkeep
    if find is None:
        return None
    move = find().planned(url)
    left = tuple(one if len(one) <= STEP_SHOWN else f"{one[:STEP_SHOWN]}..." for one in move.scripts)
    return SchemaOverview(move.before, move.after, left, move.begun) if left else None
