"""
Receives a webhook: verifies it, stores the event, and makes the response. Nothing is processed here.

    verify the signature on the bytes as they came     not right: refused, nothing written
    write the event's id, in one transaction           there already: a duplicate
       and what was signed, if the id was not          there already, under any id: a duplicate
    respond with 200                                   a worker takes it from here
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from onceward._core.errors import BodyTooLarge, OncewardError, SourceUnready
from onceward._core.events import EventType
from onceward._core.reply import Reply
from onceward._core.sealing import Sealer
from onceward.http.server.problems import problem_response
from onceward.http.server.profile import PROFILES
from onceward.messaging.inbox.event_numbers import NumberAnomaly
from onceward.messaging.inbox.event_table import NewEvent, WriteResult, write_event
from onceward.messaging.inbox.sealed_events import seal_event
from onceward.messaging.inbox.source import Source, headers_by_name, headers_to_keep
from onceward.runtime.environment import Environment
from onceward.runtime.event_stream import EVENT_STREAM
from onceward.stores.tables.sql_steps import Flow, SqlSteps, transact

BODY_BYTES_MAX = 5_000_000
"""A longer body is refused. Events tell what happened; what they are about can be fetched."""

log = logging.getLogger("onceward.inbox")

_HEADERS = (("content-type", "application/json"), ("cache-control", "no-store"))


class ReceivedEvent(NamedTuple):
    """An event that is stored, and will be processed once."""

    source: str
    id: str
    duplicate: bool
    """It was stored before; only the delivery was counted."""
    altered: bool
    """It was stored before with another body, which is kept."""
    anomaly: NumberAnomaly | None
    """A gap or a rewind in the source's numbers."""
    first_id: str | None = None
    """The same signed message was stored before, with this other id: it is that event, sent again."""

    @property
    def body(self) -> bytes:
        """The body of the response, with status 200."""
        return b'{"received": true, "duplicate": true}' if self.duplicate else b'{"received": true}'


def receive(
    source: Source,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes,
    environment: Environment,
    sealer: Sealer | None = None,
) -> Flow[ReceivedEvent]:
    """Verify an event, and store it; its body sealed, if there is a seal."""
    if len(body) > BODY_BYTES_MAX:
        raise BodyTooLarge(f"the body is longer than the {BODY_BYTES_MAX} bytes allowed here; nothing was stored")
    secrets = source.read_secrets
    if not secrets:
        log.error("the source %s has no secret that this process can read; its events are refused", source.name)
        raise SourceUnready
    plain = headers_by_name(headers)
    verified = source.scheme.verify(plain, body, secrets, now=environment.wall_us() / 1e6)
    event = NewEvent(
        scope=source.scope,
        source=source.name,
        id=verified.id,
        digest=sha256(body).digest(),
        body=body,
        headers=json.dumps(headers_to_keep(plain)),
        signed_at=verified.signed_at,
        number=source.number_of(plain, body),
        message=None if source.trust_unsigned_id else verified.unsigned_id_digest,
    )
    written = yield from transact("inbox.receive", partial(_write, sealer, event))
    if written.altered:
        log.warning(
            "%s: an event arrived again with a different body; the first one is kept: %s", source.name, verified.id
        )
    if written.first_id is not None:
        log.warning(
            "%s: a message arrived again with another id (%s), and the id is not signed: it counts as event %s, "
            "and is not processed again", source.name, verified.id, written.first_id,
        )  # fmt: skip
    if written.anomaly is not None:
        log.warning("%s: %s (event %s)", source.name, written.anomaly, verified.id)
    EVENT_STREAM.note(EventType.RECEIVED, source.name, "duplicate" if written.duplicate else "new")
    return ReceivedEvent(
        source.name, verified.id, written.duplicate, written.altered, written.anomaly, written.first_id
    )


def _write(sealer: Sealer | None, event: NewEvent) -> SqlSteps[WriteResult]:
    """Sealed here, and not before: a seal may ask a database, and these steps run where that holds nobody up."""
    return (yield from write_event(seal_event(sealer, event)))


def accepted_response(received: ReceivedEvent) -> Reply:
    """The response for an event that is stored."""
    return Reply(200, _HEADERS, received.body)


def refused_response(error: OncewardError) -> Reply:
    """The response for a webhook that was refused, as problem+json."""
    if error.code not in ("signature_invalid", "event_invalid", "source_unknown", "body_too_large"):
        log.error("a webhook was refused: %s", error)
    return problem_response(error, PROFILES["default"], pages=None)
