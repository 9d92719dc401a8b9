"""
Work under a key: its record and its rows commit in one transaction, so that there are both or neither.

Whoever comes with a key that is being worked on is told so at once (`InFlight`): in the same process by a note, in
another one, on PostgreSQL, by an advisory lock that the transaction holds and the server lets go of, however it ends.
On SQLite another process waits for the file, and then replays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

from onceward._core.errors import InFlight, RetryTransaction, StoreContended
from onceward._core.keys import record_id
from onceward.gate import Gate
from onceward.runtime.flow_driver import drive_steps
from onceward.service.ledger.ledger_usage import measure_ledger
from onceward.stores.tables import RunSql, SharedTransactionDriver, Sql, SqlSteps, TablesRunner
from onceward.stores.tables.sql_steps import declare_failpoints

BOUNDARIES = {
    "ledger.book": "deltas and the record of their key are written",
    "ledger.book_batch": "a batch of deltas and the record of its key are written",
    "ledger.close": "a period is closed and the record of the key is written",
    "ledger.judge": "verdicts are written",
    "ledger.customer": "a customer is written",
    "ledger.erase": "a batch of a tenant's deltas is erased",
}
declare_failpoints(BOUNDARIES)

TRIES = 3
"""Of a transaction that met a deadlock or a lock that was held for too long."""
AGAIN_SECONDS = 1.0

_TURN = "SELECT pg_try_advisory_xact_lock(:turn)"


class KeyedTransaction(NamedTuple):
    """Run these steps, which give a text, once for a key; the result is a `KeyedResult`."""

    at: str
    """Names the failpoints on both sides."""
    scope: str
    key: str
    request: Any
    after_expiry: Literal["refuse", "run"]
    steps: Callable[[], SqlSteps[str]]


class KeyedResult(NamedTuple):
    """A stored response, and whether it is the first request's."""

    text: str
    replayed: bool


class LedgerTables(TablesRunner):
    """Performs `KeyedTransaction`, besides what every `TablesRunner` does."""

    def __init__(self, driver: SharedTransactionDriver, gate: Gate) -> None:
        super().__init__(driver)
        self._shared = driver
        self._gate = gate
        self._running: set[bytes] = set()
        self._noting = threading.Lock()

    def perform(self, effect: Any) -> Any:
        """One effect of a flow."""
        return self._once(effect) if isinstance(effect, KeyedTransaction) else super().perform(effect)

    def usage(self, tenants: Sequence[str] = ()) -> list[tuple[str, int, int]]:
        """What each scope holds: (scope, records, bytes), of whomever."""
        return measure_ledger(self._shared)

    def close(self) -> None:
        """Let go of files and connections."""
        super().close()
        self._gate.close()
        self._gate.store.close()

    def _once(self, effect: KeyedTransaction) -> KeyedResult:
        id = record_id("key", effect.scope, effect.key)
        with self._noted(id):
            for _ in range(TRIES):
                try:
                    return self._shared.share(effect.at, partial(self._joined, effect, id))
                except RetryTransaction:
                    continue
        raise StoreContended(retry_after_seconds=AGAIN_SECONDS)

    def _joined(self, effect: KeyedTransaction, id: bytes, connection: Any, ask: RunSql) -> KeyedResult:
        if self._shared.dialect == "postgres":
            turn = int.from_bytes(id[:8], "big", signed=True)
            if ask(Sql(_TURN, {"turn": turn})) != [(True,)]:
                raise _in_flight()
        gate = self._gate.scoped(effect.scope)
        # Everything that a delta does is in this database, so the record is written once, with its result.
        with gate.atomic(
            connection,
            effect.key,
            request=effect.request,
            name=effect.at,
            claim="last",
            in_flight="refuse",
            after_expiry=effect.after_expiry,
        ) as operation:
            if not operation.replayed:
                operation.settle(drive_steps(effect.steps(), ask))
        return KeyedResult(operation.value, operation.replayed)

    @contextmanager
    def _noted(self, id: bytes) -> Iterator[None]:
        with self._noting:
            if id in self._running:
                raise _in_flight()
            self._running.add(id)
        try:
            yield
        finally:
            self._running.discard(id)


def _in_flight() -> InFlight:
    return InFlight(
        "another request with this key is running. Retry with the same key",
        retry_after_seconds=AGAIN_SECONDS,
    )
