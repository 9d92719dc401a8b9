# blocking half: balance_emitter.py
"""
`AsyncBalanceEmitter`: keeps deltas in a store, and books them in batches on a cadence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from onceward._core.errors import RequestInvalid
from onceward.client.delta_batcher import DeltaBatcher, by_reference, errors_of_batch
from onceward.client.deltas import Amount, NewDelta, Reference
from onceward.gate import AsyncGate
from onceward.messaging.emitter import AsyncEmitter, Cadence, Emitted, Flushed, Item
from onceward.messaging.emitter.emitter_base import ReferenceRecipe
from onceward.retry.policy import Retry

if TYPE_CHECKING:
    from onceward.client.client_async import AsyncClient


class AsyncBalanceEmitter:
    """
    Takes deltas one by one, keeps them in the gate's store, and books them in batches on a cadence of your own.

    Three things have no default: `reference`, how a delta is named (a `Reference`, or a recipe over customer, reason,
    period and the members of metadata); `retry`, when retries end; `cadence`, when to write. Made by
    `client.balance.emitter(...)`; the rest is as in `AsyncEmitter`.
    """

    def __init__(
        self,
        client: AsyncClient,
        gate: AsyncGate,
        name: str,
        *,
        reference: Reference | ReferenceRecipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> None:
        self._client, self._deltas = client, DeltaBatcher(client, gate, reference, cadence)
        self._emitter = AsyncEmitter(
            gate,
            name,
            self._send,
            reference=by_reference,
            retry=retry,
            cadence=cadence,
            spool_max=spool_max,
            timer=timer,
        )

    async def emit(
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
        return await self._emitter.emit(self._deltas.item(made))

    async def _send(self, items: list[Item]) -> list[Exception | None]:
        try:
            return errors_of_batch(await self._client.ask(self._deltas.batch(items)))
        except RequestInvalid as error:  # The batch as a whole was refused, and nothing of it booked.
            if len(items) == 1:
                return [error]
        return [error for item in items for error in await self._send([item])]

    @property
    def waiting(self) -> int:
        """How many deltas wait in this emitter's spool."""
        return self._emitter.waiting

    @property
    def given_up(self) -> int:
        """How many deltas this emitter gave up and has set aside: `resume()` takes them up again."""
        return self._emitter.given_up

    async def tick(self) -> Flushed:
        """Book what is due now: for a loop of your own, with `timer=False`."""
        return await self._emitter.tick()

    async def flush(self) -> Flushed:
        """Book everything that waits now."""
        return await self._emitter.flush()

    async def resume(self) -> int:
        """Take up what was given up and set aside."""
        return await self._emitter.resume()

    async def close(self) -> Flushed:
        """Book what waits, and stop. What cannot be booked stays in the spool for the next emitter of this name."""
        return await self._emitter.close()

    async def __aenter__(self) -> Self:
        await self._emitter.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
