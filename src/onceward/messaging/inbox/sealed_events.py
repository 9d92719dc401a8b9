"""
Bodies of events, sealed while they wait: bound to scope, source, id and digest of the event.
"""

from __future__ import annotations

from onceward._core.errors import SealBroken
from onceward._core.keys import digest_of, record_id
from onceward._core.sealing import SealContext, Sealer, is_sealed, open_value, row_context, seal_value, unreadable_error
from onceward.messaging.inbox.event_table import ClaimedEvent, NewEvent

EVENT = "event/1"


def seal_event(sealer: Sealer | None, event: NewEvent) -> NewEvent:
    """An event to be written, with its body sealed; as it is, if there is no seal."""
    if sealer is None:
        return event
    return event._replace(body=seal_value(sealer.seal, event.body, _context(event)))


def open_event(sealer: Sealer | None, claim: ClaimedEvent) -> ClaimedEvent:
    """A claimed event with its body opened; `SealKeyMissing` or `SealBroken` if it does not open."""
    if not is_sealed(None, claim.body):
        if sealer is not None and sealer.sealed_only:
            raise SealBroken("the body of this event is not sealed, and only sealed ones are read (sealed_only)")
        return claim
    if sealer is None:
        raise unreadable_error(claim.body)
    context = _context(claim)
    return claim._replace(body=open_value(sealer.seal, claim.body, context, f"event {digest_of(context.id)}"))


def _context(event: NewEvent | ClaimedEvent) -> SealContext:
    id = record_id("inbox", event.scope, event.source, event.id)
    return row_context(event.scope, id, EVENT, event.digest)
