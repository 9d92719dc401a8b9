"""
The records of a store, as tenants hold them: to be counted for quotas, and erased with a tenant.

In tables of ours that is SQL, a statement for many records. In a store of another package it goes through the store's
own methods, a page at a time: slower, and the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol, TypeAlias

from onceward._core.erasure_marks import ERASURE
from onceward.stores import Selection, Store
from onceward.stores.tables.sql_steps import Row, Sql, SqlSteps, TablesDriver

PAGE = 1_000
"""Records looked at in one statement, and so at most deleted in one transaction: a few milliseconds."""

ScopeUsage: TypeAlias = tuple[str, int, int]
"""A scope, its records and their bytes."""

_COUNT = """SELECT scope, count(*), coalesce(sum(coalesce(length(result), 0) + coalesce(length(error), 0)), 0)
    FROM onceward_records GROUP BY scope"""
_RECORDS = """SELECT id, scope FROM onceward_records WHERE id > :after AND kind <> 'erasure'
    ORDER BY id LIMIT :limit"""
_DELETE = "DELETE FROM onceward_records WHERE id IN ({}) RETURNING fence"
_FLOOR = "UPDATE onceward_meta SET value = :fence WHERE name = 'fence_floor' AND value < :fence"


class StoredRecords(Protocol):
    """The records of a store."""

    def counted(self) -> list[Any]:
        """What each scope holds: rows of `ScopeUsage`."""

    def page(self, after: bytes) -> list[Any]:
        """Id and scope of some records, in order of id, from after this one; marks of erasures are left out."""

    def erase(self, ids: list[bytes]) -> int:
        """Delete these; how many there were. Their fences are never given again."""

    def wipe(self) -> None:
        """Remove what deleted rows have left in the files, as far as the database can."""

    def close(self) -> None:
        """Close files and connections."""


class TableRecords:
    """Records in tables of ours."""

    def __init__(self, driver: TablesDriver) -> None:
        self.driver = driver

    def counted(self) -> list[Any]:
        """What each scope holds."""
        return self.driver.look(_counted)

    def page(self, after: bytes) -> list[Any]:
        """Id and scope of the next records, without marks of erasures."""
        return [(bytes(id), scope) for id, scope in self.driver.look(partial(_page, after))]

    def erase(self, ids: list[bytes]) -> int:
        """Delete these; how many there were."""
        return self.driver.transact("access.erase", partial(_delete, ids))

    def wipe(self) -> None:
        """Remove what deleted rows have left in the files."""
        self.driver.wipe()

    def close(self) -> None:
        """Close files and connections."""
        self.driver.close()


class StoreRecords:
    """Records in a store of another package."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def counted(self) -> list[Any]:
        """What each scope holds."""
        sums: dict[str, ScopeUsage] = {}
        after = b""
        while page := self._store.scan(after, PAGE, Selection()):
            after = page[-1].id
            for one in page:
                _, records, size = sums.get(one.scope, (one.scope, 0, 0))
                sums[one.scope] = (one.scope, records + 1, size + len(one.result or b"") + len(one.error or b""))
        return list(sums.values())

    def page(self, after: bytes) -> list[Any]:
        """Id and scope of the next records, without marks of erasures."""
        while page := self._store.scan(after, PAGE, Selection()):
            found = [(one.id, one.scope) for one in page if one.kind != ERASURE]
            if found:
                return found
            after = page[-1].id
        return []

    def erase(self, ids: list[bytes]) -> int:
        """Delete these; how many there were."""
        return self._store.erase(ids)

    def wipe(self) -> None:
        """Nothing to do here: a store of another package keeps its own files."""

    def close(self) -> None:
        """Close files and connections."""
        self._store.close()


def _counted() -> SqlSteps[list[Row]]:
    return (yield Sql(_COUNT, {}))


def _page(after: bytes) -> SqlSteps[list[Row]]:
    return (yield Sql(_RECORDS, {"after": after, "limit": PAGE}))


def _delete(ids: list[bytes]) -> SqlSteps[int]:
    """Delete records; the greatest fence deleted is remembered, so that no later claim can get it again."""
    names = [f"id{number}" for number in range(len(ids))]
    fences = yield Sql(_DELETE.format(", ".join(f":{name}" for name in names)), dict(zip(names, ids, strict=True)))
    if fences:
        yield Sql(_FLOOR, {"fence": max(fence for (fence,) in fences)})
    return len(fences)
