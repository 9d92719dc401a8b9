"""
What operators do with a store of any kind: make it ready, check it, migrate its schema.

Each store has a module with these functions, which its `StoreKind` names. A memory store has none: it lives as long as
its process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from onceward._core.record import Record


class StoreCheck(NamedTuple):
    """One finding about a store."""

    name: str
    ok: bool
    detail: str


class SchemaMigration(NamedTuple):
    """How a schema is to be moved forward."""

    before: int
    after: int
    scripts: tuple[str, ...]
    """What is to be run, by name and in order; empty: nothing is left to do."""
    begun: bool = False
    """Whether it was begun, and has not come to its end: it runs, or whoever ran it is gone."""


class Upkeep(Protocol):
    """The functions of a store's upkeep. Errors are those of the store; no password is in any of them."""

    def init(self, url: str) -> object:
        """Make the store ready, if it is not; where it is."""

    def is_there(self, url: str) -> bool:
        """Whether there is such a store. Nothing is changed."""

    def planned(self, url: str) -> SchemaMigration:
        """What `migrate` would do. Refuses a schema of a later version."""

    def migrate(self, url: str) -> tuple[int, int]:
        """Bring the schema up to date; its versions before and after."""

    def schema_sql(self, after: int) -> str:
        """The statements of all migrations later than a version, for those whose administrator runs them."""

    def check(self, url: str) -> list[StoreCheck]:
        """Look the store over: schema, settings, rights. Nothing is changed."""

    def held(self, url: str) -> Iterator[Record]:
        """Every record, without its result."""


def clock_detail(seconds: float) -> str:
    """How far a server's clock is from ours. It decides nothing: leases and retention go by the server's alone."""
    return f"{abs(seconds):.3f} s {'ahead of' if seconds >= 0 else 'behind'} this machine's; only the server's counts"
