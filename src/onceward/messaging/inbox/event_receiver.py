"""
Receiving: from raw bytes to a durable event, and the answer. Nothing is processed here.

    verify the signature on the bytes as they came     not right: refused, nothing written
    write the event's id, in one transaction           there already: a duplicate
       and what was signed, if the id was not          there already, under any id: a duplicate
    answer 200                                         a worker takes it from here
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from onceward._core.errors import BodyTooLarge, OncewardError, SourceUnready
from onceward._core.reply import Reply
from onceward.http.server.problems import problem_response
from onceward.http.server.profile import PROFILES
from onceward.messaging.inbox.event_numbers import NumberAnomaly
from onceward.messaging.inbox.event_table import NewEvent, write_event
from onceward.messaging.inbox.source import Source, headers_by_name, headers_to_keep
from onceward.runtime.environment import Environment
from onceward.stores.tables.sql_steps import Flow, transact

BODY_BYTES_MAX = 5_000_000
"""A longer body is refused. Events tell what happened; what they are about can be fetched."""

log = logging.getLogger("onceward.inbox")

_HEADERS = (("content-type", "application/json"), ("cache-control", "no-store"))


class ReceivedEvent(NamedTuple):
    """An event that is here, and will be processed once."""

    source: str
    id: str
    duplicate: bool
    """It was here before; nothing was written but that it came again."""
    altered: bool
    """It was here before with another body. The first one stands."""
    anomaly: NumberAnomaly | None
    """A gap or a rewind in the source's numbers."""
    first_id: str | None = None
    """The same signed message was here before, with this other id: it is that event, sent again."""

    @property
    def body(self) -> bytes:
        """What the sender is answered, with status 200."""
        return b'{"received": true, "duplicate": true}' if self.duplicate else b'{"received": true}'


def receive(
    source: Source, headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes, environment: Environment
) -> Flow[ReceivedEvent]:
    """Believe an event, and write it down."""
    if len(body) > BODY_BYTES_MAX:
        raise BodyTooLarge(f"a webhook has at most {BODY_BYTES_MAX} bytes here; nothing was kept")
    secrets = source.read_secrets
    if not secrets:
        log.error("the source %s has no secret that this process can read; its events are turned away", source.name)
        raise SourceUnready
    plain = headers_by_name(headers)
    verified = source.scheme.verify(plain, body, secrets, now=environment.wall_us() / 1e6)
    arrival = NewEvent(
        source.scope,
        source.name,
        verified.id,
        sha256(body).digest(),
        body,
        json.dumps(headers_to_keep(plain)),
        verified.signed_at,
        source.number_of(plain, body),
        None if source.trust_unsigned_id else verified.unsigned_id_digest,
    )
    known = yield from transact("inbox.receive", partial(write_event, arrival))
    if known.altered:
        log.warning("%s: an event came again with another body, and the first one stands: %s", source.name, verified.id)
    if known.first_id is not None:
        log.warning(
            "%s: a message came again with another id (%s), and the id is not signed: it is the event %s, and is not "
            "processed again", source.name, verified.id, known.first_id,
        )  # fmt: skip
    if known.anomaly is not None:
        log.warning("%s: %s (event %s)", source.name, known.anomaly, verified.id)
    return ReceivedEvent(source.name, verified.id, known.duplicate, known.altered, known.anomaly, known.first_id)


def accepted_response(received: ReceivedEvent) -> Reply:
    """What the sender is told."""
    return Reply(200, _HEADERS, received.body)


def refused_response(error: OncewardError) -> Reply:
    """What the sender is told instead, as problem+json."""
    if error.code not in ("signature_invalid", "event_invalid", "source_unknown", "body_too_large"):
        log.error("a webhook was turned away: %s", error)
    return problem_response(error, PROFILES["default"], pages=None)
