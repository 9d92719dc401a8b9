# Made from balance_emitter_async.py by `make halves`: change that file, not this one.
"""
`BalanceEmitter`: keeps deltas in a store, and books them in batches on a cadence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from onceward._core.errors import RequestInvalid
from onceward.client.delta_batcher import DeltaBatcher, by_reference, errors_of_batch
from onceward.client.deltas import Amount, NewDelta, Reference
from onceward.gate import Gate
from onceward.messaging.emitter import Cadence, Emitted, Emitter, Flushed, Item
from onceward.messaging.emitter.emitter_base import ReferenceRecipe
from onceward.retry.policy import Retry

if TYPE_CHECKING:
    from onceward.client.client import Client


class BalanceEmitter:
    """
    Takes deltas one by one, keeps them in the gate's store, and books them in batches on a cadence of your own.

    Three things have no default: `reference`, how a delta is named (a `Reference`, or a recipe over customer, reason,
    period and the members of metadata); `retry`, when retries end; `cadence`, when to write. Made by
    `client.balance.emitter(...)`; the rest is as in `Emitter`.
    """

    def __init__(
        self,
        client: Client,
        gate: Gate,
        name: str,
        *,
        reference: Reference | ReferenceRecipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> None:
        self._client, self._deltas = client, DeltaBatcher(client, gate, reference, cadence)
        self._emitter = Emitter(
            gate,
            name,
            self._send,
            reference=by_reference,
            retry=retry,
            cadence=cadence,
            spool_max=spool_max,
            timer=timer,
        )

    def emit(
        self,
        customer: str,
        delta: Amount,
        reason: str,
        *,
        reference_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        corrects: str | None = None,
        period: str | None = None,
    ) -> Emitted:
        """
        Keep a delta until its batch is booked. Returns when it is in the store, with its reference.

        An equal one of the same reference is one delta (`duplicate`); another is refused with `KeyReused`.
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
        return self._emitter.emit(self._deltas.item(made))

    def _send(self, items: list[Item]) -> list[Exception | None]:
        try:
            return errors_of_batch(self._client.ask(self._deltas.batch(items)))
        except RequestInvalid as error:  # The batch as a whole was refused, and nothing of it booked.
            if len(items) == 1:
                return [error]
        return [error for item in items for error in self._send([item])]

    @property
    def waiting(self) -> int:
        """How many deltas wait in this emitter's spool."""
        return self._emitter.waiting

    @property
    def given_up(self) -> int:
        """How many deltas this emitter gave up and has set aside: `resume()` takes them up again."""
        return self._emitter.given_up

    def tick(self) -> Flushed:
        """Book what is due now: for a loop of your own, with `timer=False`."""
        return self._emitter.tick()

    def flush(self) -> Flushed:
        """Book everything that waits now."""
        return self._emitter.flush()

    def resume(self) -> int:
        """Take up what was given up and set aside."""
        return self._emitter.resume()

    def close(self) -> Flushed:
        """Book what waits, and stop. What cannot be booked stays in the spool for the next emitter of this name."""
        return self._emitter.close()

    def __enter__(self) -> Self:
        self._emitter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
