# Made from balance_async.py by `make halves`: change that file, not this one.
"""
`Balance`: the calls of the balance ledger. Requests and results are made in `ledger`; here they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onceward.client import ledger
from onceward.client.balance_emitter import BalanceEmitter
from onceward.client.deltas import Amount, NewDelta, Reference
from onceward.client.ledger import BookedBatch, Checkpoint, Delta, Derived, Gaps, Receipt
from onceward.gate import Gate
from onceward.messaging.emitter import Cadence
from onceward.messaging.emitter.emitter_base import ReferenceRecipe
from onceward.retry.policy import Retry

if TYPE_CHECKING:
    from onceward.client.client import Client


class Balance:
    """
    The tenant's balance ledger: deltas are booked once, however often they are sent.

        client.balance.emit("cus_17", -1, "api call", reference_id="acme:call:2026-11:7f3a")
    """

    def __init__(self, client: Client, environment: str) -> None:
        self._client, self._environment = client, environment

    def emit(
        self,
        customer: str,
        delta: Amount,
        reason: str,
        *,
        reference_id: str | None = None,
        idempotency_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        corrects: str | None = None,
        period: str | None = None,
    ) -> Delta:
        """
        Book one delta: signed, exact, not zero. Its reference is its key, unless another is given.

        Sent again with the same reference, it returns what was booked (`duplicate`); with another amount it raises
        `ReferenceReused`. Without reference and key it is not sent: `KeyMissing`.
        """
        made = NewDelta(
            customer=customer,
            delta=delta,
            reason=reason,
            reference_id=reference_id,
            metadata=metadata,
            corrects=corrects,
            period=period,
        )
        return self._client.ask(ledger.emit(self._environment, made, idempotency_key))

    def emit_many(self, deltas: Iterable[NewDelta], *, idempotency_key: str | None = None) -> BookedBatch:
        """
        Book up to 100 deltas in one transaction; one that is refused leaves the others booked, and says why.

        Each has a reference; or the batch has a key, under which the first result is replayed.
        """
        return self._client.ask(ledger.emit_many(self._environment, deltas, idempotency_key))

    def derive(self, customer: str, *, period: str | None = None) -> Derived:
        """The balance now, or at the end of a period. On demand, on a schedule, before a bill; not after every emit."""
        return self._client.ask(ledger.derive(customer, period))

    def receipt(self, customer: str, *, reference_id: str | None = None, period: str | None = None) -> Receipt:
        """The receipt of a delta or of a closed period: the same one every time."""
        return self._client.ask(ledger.receipt(customer, reference_id, period))

    def checkpoint(
        self, customer: str, period: str, *, close: bool | None = None, idempotency_key: str | None = None
    ) -> Checkpoint:
        """
        Close a customer's period (`2026-11`), once whatever the key; one that still runs is marked, and stays open.

        `close=True` closes it before its end: until the next period begins, deltas are refused (`Checkpoint.refuses`).
        """
        return self._client.ask(ledger.checkpoint(self._environment, customer, period, close, idempotency_key))

    def delta(self, id: str) -> Delta:
        """One delta, by the id that the service gave it."""
        return self._client.ask(ledger.delta(id))

    def gaps(self, customer: str) -> Gaps:
        """Numbers that are missing among a customer's deltas: there are none, or somebody deleted rows."""
        return self._client.ask(ledger.gaps(customer))

    def emitter(
        self,
        gate: Gate,
        name: str,
        *,
        reference: Reference | ReferenceRecipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> BalanceEmitter:
        """An emitter that keeps deltas in the gate's store and books them in batches."""
        return BalanceEmitter(
            self._client,
            gate,
            name,
            reference=reference,
            retry=retry,
            cadence=cadence,
            spool_max=spool_max,
            timer=timer,
        )
