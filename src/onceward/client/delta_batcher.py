"""
`DeltaBatcher`: from an `emit` to an item in the spool, and from items to a batch in the ledger.

    emit ---> the spool, in the gate's store ---> POST /delta/batch, when enough wait or the oldest has waited

The delta's reference is decided when it is emitted, and is kept with it. Whoever sends it, after whichever crash, sends
the same; and the ledger books a reference once, for good. So nothing is lost and nothing is booked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceward._core.errors import ConfigurationError
from onceward._core.key_recipes import recipe
from onceward._core.keys import ENVIRONMENTS
from onceward.client.deltas import NewDelta, Reference
from onceward.client.ledger import BookedBatch, emit_documents
from onceward.client.service_call import ServiceCall
from onceward.gate import AsyncGate, Gate
from onceward.messaging.emitter import Cadence, Item
from onceward.messaging.emitter.emitter_base import ReferenceRecipe
from onceward.protocol.limits import BATCH_MAX

if TYPE_CHECKING:
    from onceward.client.client import Client
    from onceward.client.client_async import AsyncClient


class DeltaBatcher:
    """What the blocking and the async emitter share: from an `emit` to an item, and from items to a call."""

    def __init__(
        self,
        client: Client | AsyncClient,
        gate: Gate | AsyncGate,
        reference: Reference | ReferenceRecipe,
        cadence: Cadence,
    ) -> None:
        self.environment = client.environment
        environment = gate.scope.partition(":")[0]
        if environment in ENVIRONMENTS and environment != self.environment:
            raise ConfigurationError(
                f"the gate's scope is in the {environment} environment, and the client's is {self.environment}. "
                "Use a gate and a token of the same environment"
            )
        if isinstance(cadence, Cadence) and cadence.size > BATCH_MAX:
            raise ConfigurationError(
                f"the cadence's size is {cadence.size:,}, and the ledger takes {BATCH_MAX} deltas in one batch. Use "
                f"Cadence(size={BATCH_MAX})"
            )
        self._reference = _reference_function(reference)

    def item(self, made: NewDelta) -> dict[str, Any]:
        """An item for the spool; refused if it could not be booked."""
        if made.reference_id is None:
            named = {"customer": made.customer, "delta": made.delta, "reason": made.reason, "period": made.period}
            reference = self._reference({**(made.metadata or {}), **named})
            made = replace(made, reference_id=reference)
        return made.document(self.environment)

    def batch(self, items: Sequence[Item]) -> ServiceCall[BookedBatch]:
        """The batch for these items. No key: each has its reference, which the ledger remembers for good."""
        return emit_documents(self.environment, [dict(item.data) for item in items])


def _reference_function(reference: Reference | ReferenceRecipe) -> Callable[[Mapping[str, object]], str]:
    if isinstance(reference, Reference):
        return lambda _: reference.new()
    return recipe(reference).key


def errors_of_batch(found: BookedBatch) -> list[Exception | None]:
    """What became of each delta of a batch."""
    return [one.error for one in found.results]


def by_reference(referenceId: str) -> str:  # noqa: N803 - the name on the wire
    """The recipe of the emitter below: an item was named before it came there."""
    return referenceId
