# Made from records_async.py by `make halves`: change that file, not this one.
"""
`gate.records`: look at the records of a scope, or erase them.
"""

from __future__ import annotations

from onceward._core.erasure_marks import mark_scope
from onceward._core.keys import record_id
from onceward._core.store_protocols import Selection, Store
from onceward.gate.call_factory import KEY, SCAN_PAGE, CallFactory
from onceward.gate.record_view import RecordView, view
from onceward.gate.store_runner import run_on_store


class Records:
    """The records of one scope."""

    def __init__(self, store: Store, call_factory: CallFactory) -> None:
        self._store = store
        self._call_factory = call_factory

    def get(self, key: str) -> RecordView | None:
        """The record of a key, or None."""
        found = self._store.load(record_id(KEY, self._call_factory.scope, self._call_factory.stored_key(key)))
        return view(found) if found is not None else None

    def list(self, *, after: str = "", limit: int = SCAN_PAGE, unsettled: bool = False) -> tuple[RecordView, ...]:
        """One page of records in order of id, beginning after an id; `unsettled` leaves settled ones out."""
        selection = Selection(scope=self._call_factory.scope, unsettled=unsettled)
        found = self._store.scan(bytes.fromhex(after), min(limit, SCAN_PAGE), selection)
        return tuple(view(record) for record in found)

    def in_doubt(self, *, after: str = "", limit: int = SCAN_PAGE) -> tuple[RecordView, ...]:
        """One page of the records that wait for somebody to decide."""
        page = self.list(after=after, limit=limit, unsettled=True)
        return tuple(one for one in page if one.state == "in_doubt")

    def erase(self) -> int:
        """
        Erase every record of this scope, whatever its state, dead letters and waiting items among them; how many.

        There is no way back. Whoever holds a claim of the scope just now cannot put it back: a mark is left for as
        long as one can be held. A new claim of the same key starts over.
        """
        scope = self._call_factory.scope
        run_on_store(self._store, mark_scope(scope), environment=self._call_factory.environment)
        erased, after = 0, b""
        while page := self._store.scan(after, SCAN_PAGE, Selection(scope=scope)):
            erased += self._store.erase([one.id for one in page])
            after = page[-1].id
        return erased
