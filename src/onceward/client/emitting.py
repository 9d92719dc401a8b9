"""
Deltas on a cadence: an `Emitter` whose `send` books a batch in the ledger.

    emit ---> the spool, in the gate's store ---> POST /delta/batch, when enough wait or the oldest has waited

The delta's reference is decided when it is emitted, and is kept with it. Whoever sends it, after whichever crash, sends
the same; and the ledger books a reference once, for good. So nothing is lost and nothing is booked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from onceward._core.errors import ConfigurationError, RequestInvalid
from onceward._core.keys import ENVIRONMENTS
from onceward._core.recipes import recipe
from onceward.client.deltas import Amount, NewDelta, Reference
from onceward.client.ledger import BATCH_MAX, BookedBatch, emit_documents
from onceward.client.wire import Call
from onceward.emitter import AsyncEmitter, Cadence, Emitted, Emitter, Flushed, Item
from onceward.emitter.common import Recipe
from onceward.gate import AsyncGate, Gate
from onceward.retry.policy import Retry

if TYPE_CHECKING:
    from onceward.client.awaiting import AsyncClient
    from onceward.client.blocking import Client


class _Deltas:
    """What both colours share: from an `emit` to an item, and from items to a call."""

    def __init__(
        self, client: Client | AsyncClient, gate: Gate | AsyncGate, reference: Reference | Recipe, cadence: Cadence
    ) -> None:
        self.environment = client.environment
        spoken = gate.scope.partition(":")[0]
        if spoken in ENVIRONMENTS and spoken != self.environment:
            raise ConfigurationError(
                f"the gate's scope is of the {spoken} environment, and the client is for {self.environment}; what is "
                "kept in the one would be booked in the other"
            )
        if isinstance(cadence, Cadence) and cadence.size > BATCH_MAX:
            raise ConfigurationError(
                f"the ledger takes {BATCH_MAX} deltas in one batch, and the cadence's size is {cadence.size:,}; use "
                f"Cadence(size={BATCH_MAX})"
            )
        self._reference = _namer(reference)

    def item(self, made: NewDelta) -> dict[str, Any]:
        """An item for the spool; refused if it could not be booked."""
        if made.reference_id is None:
            named = {"customer": made.customer, "delta": made.delta, "reason": made.reason, "period": made.period}
            reference = self._reference({**(made.metadata or {}), **named})
            made = replace(made, reference_id=reference)
        return made.document(self.environment)

    def call(self, items: Sequence[Item]) -> Call[BookedBatch]:
        """The batch for these items. No key: each has its reference, which the ledger remembers for good."""
        return emit_documents(self.environment, [dict(item.data) for item in items])


def _namer(reference: Reference | Recipe) -> Callable[[Mapping[str, object]], str]:
    if isinstance(reference, Reference):
        return lambda _: reference.new()
    return recipe(reference).key


def _fates(found: BookedBatch) -> list[Exception | None]:
    return [one.error for one in found.results]


def _by_reference(referenceId: str) -> str:  # noqa: N803 - the name on the wire
    """The recipe of the emitter below: an item was named before it came there."""
    return referenceId


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
        reference: Reference | Recipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> None:
        self._client, self._deltas = client, _Deltas(client, gate, reference, cadence)
        self._emitter = Emitter(
            gate,
            name,
            self._send,
            reference=_by_reference,
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
            return _fates(self._client.ask(self._deltas.call(items)))
        except RequestInvalid as error:  # The batch as a whole was refused, and nothing of it booked.
            if len(items) == 1:
                return [error]
        return [fate for item in items for fate in self._send([item])]

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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncBalanceEmitter:
    """Same as `BalanceEmitter`, for an `AsyncClient` and an `AsyncGate`. Close it, or use it as `async with`."""

    def __init__(
        self,
        client: AsyncClient,
        gate: AsyncGate,
        name: str,
        *,
        reference: Reference | Recipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> None:
        self._client, self._deltas = client, _Deltas(client, gate, reference, cadence)
        self._emitter = AsyncEmitter(
            gate,
            name,
            self._send,
            reference=_by_reference,
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
        """Same as `BalanceEmitter.emit`, but awaits."""
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
            return _fates(await self._client.ask(self._deltas.call(items)))
        except RequestInvalid as error:
            if len(items) == 1:
                return [error]
        return [fate for item in items for fate in await self._send([item])]

    @property
    def waiting(self) -> int:
        """How many deltas wait in this emitter's spool."""
        return self._emitter.waiting

    @property
    def given_up(self) -> int:
        """How many deltas this emitter gave up and has set aside: `resume()` takes them up again."""
        return self._emitter.given_up

    async def tick(self) -> Flushed:
        """Same as `BalanceEmitter.tick`, but awaits."""
        return await self._emitter.tick()

    async def flush(self) -> Flushed:
        """Same as `BalanceEmitter.flush`, but awaits."""
        return await self._emitter.flush()

    async def resume(self) -> int:
        """Same as `BalanceEmitter.resume`, but awaits."""
        return await self._emitter.resume()

    async def close(self) -> Flushed:
        """Same as `BalanceEmitter.close`, but awaits."""
        return await self._emitter.close()

    async def __aenter__(self) -> Self:
        await self._emitter.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
