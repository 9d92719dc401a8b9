# blocking half: records.py
"""
`gate.records`: look at the records of a scope, or erase them.
"""

from __future__ import annotations

from onceward._core.colour import AWAITS
from onceward._core.erasure_marks import mark_scope
from onceward._core.keys import record_id
from onceward._core.store_protocols import AsyncStore, Selection
from onceward.gate.call_factory import KEY, SCAN_PAGE, CallFactory
from onceward.gate.record_view import RecordView, view
from onceward.gate.store_runner_async import run_on_store_async
from onceward.runtime.flow_driver import running_loop


class AsyncRecords:
    """The records of one scope."""

    def __init__(self, store: AsyncStore, call_factory: CallFactory) -> None:
        self._store = store
        self._call_factory = call_factory

    async def get(self, key: str) -> RecordView | None:
        """The record of a key, or None."""
        if AWAITS:
            running_loop()
        found = await self._store.load(record_id(KEY, self._call_factory.scope, self._call_factory.stored_key(key)))
        return view(found) if found is not None else None

    async def list(self, *, after: str = "", limit: int = SCAN_PAGE, unsettled: bool = False) -> tuple[RecordView, ...]:
        """One page of records in order of id, beginning after an id; `unsettled` leaves settled ones out."""
        if AWAITS:
            running_loop()
        selection = Selection(scope=self._call_factory.scope, unsettled=unsettled)
        found = await self._store.scan(bytes.fromhex(after), min(limit, SCAN_PAGE), selection)
        return tuple(view(record) for record in found)

    async def in_doubt(self, *, after: str = "", limit: int = SCAN_PAGE) -> tuple[RecordView, ...]:
        """One page of the records that wait for somebody to decide."""
        page = await self.list(after=after, limit=limit, unsettled=True)
        return tuple(one for one in page if one.state == "in_doubt")

    async def erase(self) -> int:
        """
        Erase every record of this scope, whatever its state, dead letters and waiting items among them; how many.

        There is no way back. Whoever holds a claim of the scope just now cannot put it back: a mark is left for as
        long as one can be held. A new claim of the same key starts over.
        """
        scope = self._call_factory.scope
        await run_on_store_async(self._store, mark_scope(scope), environment=self._call_factory.environment)
        erased, after = 0, b""
        while page := await self._store.scan(after, SCAN_PAGE, Selection(scope=scope)):
            erased += await self._store.erase([one.id for one in page])
            after = page[-1].id
        return erased
