"""
A gate for the drill: on a store that the drill does not tidy for others, with terms that end soon.
"""

from __future__ import annotations

from typing import Any

from onceward._core.capabilities import Capabilities, capabilities_of
from onceward._core.store_protocols import PurgeResult, Selection, Store
from onceward.gate.gate import Gate
from onceward.runtime.environment import REAL, Environment
from onceward.stores import open_store

LEASE_SECONDS = 2.0
"""Of a claim: where nobody can tell that its holder is dead, the next one waits this long."""
WAIT_SECONDS = 60.0
KEPT_SECONDS = 3_600.0
"""How long a result is kept, and then its tombstone: what a drill leaves that is killed may be purged soon."""
_TERMS: dict[str, Any] = {
    "lease": LEASE_SECONDS, "wait": WAIT_SECONDS, "retain": KEPT_SECONDS, "tombstone": KEPT_SECONDS
}  # fmt: skip
_PAGE = 500


class UntidiedStore:
    """A store whose records nobody purges here: the drill deletes its own, and nobody else's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.put, self.put_back, self.erase = store.put, store.put_back, store.erase
        self.load, self.extend, self.scan, self.close = store.load, store.extend, store.scan, store.close

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do."""
        return capabilities_of(self._store)

    def purge(self, limit: int) -> PurgeResult:
        """Leave everything as it is."""
        return PurgeResult(0, 0)


def open_gate(url: str, scope: str, *, environment: Environment = REAL, **options: Any) -> Gate:
    """A gate on the store that a URL names."""
    store = UntidiedStore(open_store(url, environment=environment))
    try:
        return Gate(store, scope=scope, environment=environment, **_TERMS | options)
    except BaseException:
        store.close()
        raise


def erase_scope(store: Store, scope: str) -> int:
    """
    Delete every record of a scope that only the drill knows; how many.

    No mark is left, as an erasure otherwise does: all who could hold a claim of this scope are gone.
    """
    erased, after = 0, b""
    while page := store.scan(after, _PAGE, Selection(scope=scope)):
        erased += store.erase([one.id for one in page])
        after = page[-1].id
    return erased
