"""
Runs the handler of one event: under the gate, in a scope of its source, with the event's id as the key.

    claim (lease, fence) -> gate.call(handler) -> done
                                |
                                +-- failed, nothing happened: put off, full jitter; after the last try a dead letter
                                +-- in doubt: a dead letter at once, until somebody has looked
                                +-- another worker runs it: put off, not counted

There are two claims. The event's own spreads the work among workers; the gate's guarantees that it happens once. A
worker that is killed leaves an event that is due again when its lease is over, and a record that says what happened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

from onceward._core.attempt_history import summarize_attempt
from onceward._core.backoff import wait_after_server
from onceward._core.classifier import DEFAULT
from onceward._core.codec import message_of, shortened, type_name
from onceward._core.durations import SECOND
from onceward._core.errors import (
    ConfigurationError,
    Expired,
    InFlight,
    NotReplayable,
    OncewardError,
    SealBroken,
    StoreUnavailable,
)
from onceward._core.events import EventType
from onceward._core.operation import Operation
from onceward._core.retry_flow import verdict_on
from onceward._core.sealing import Sealer
from onceward._core.stops import GivenUp, Stop, StopReason
from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward.gate.gate import Gate
from onceward.messaging.inbox import event_table
from onceward.messaging.inbox.event_table import ClaimedEvent
from onceward.messaging.inbox.handlers import HandlerSpec, WebhookEvent, import_handler, inspect_handler
from onceward.messaging.inbox.sealed_events import open_event
from onceward.messaging.inbox.source import Source
from onceward.runtime.event_stream import EVENT_STREAM
from onceward.stores.tables import Flow, TablesRunner, read_tables, transact

LEASE_SECONDS = 60.0
"""The lease of an event, as long as the gate's own: a dead worker's event is taken up after a minute."""
UNREADY_SECONDS = 30.0
"""How long an event waits if its handler cannot be imported, or its store is away."""
KEY_CHARACTERS_MAX = 249
FAILURE_CHARACTERS_MAX = 300

DONE, RETRIED, DEAD, PUT_OFF = "done", "retried", "dead", "put off"

log = logging.getLogger("onceward.inbox")

_IT_RAN = (Expired, NotReplayable)
_DOUBT = Verdict(Certainty.UNKNOWN, Kind.OTHER, Action.NEVER)


def scope_of(scope: str, source: str) -> str:
    """The gate's scope of a source's events: two sources may have equal ids."""
    return f"{scope}:hooks:{source}"


def key_of(id: str) -> str:
    """The gate's key of an event. The prefix keeps an id from being read as a key of another environment."""
    return f"event:{id}" if len(id) <= KEY_CHARACTERS_MAX else f"event-sha256:{sha256(id.encode()).hexdigest()}"


class EventProcessor:
    """Claims and processes events, one at a time. Safe for threads."""

    def __init__(
        self,
        gate: Gate,
        tables: TablesRunner,
        find: Callable[[str, str], Source | None],
        lease: int,
        sealer: Sealer | None = None,
    ) -> None:
        self._gate = gate
        self._tables = tables
        self._find = find
        self._environment = gate.environment
        self._lease = lease
        self._sealer = sealer

    def claim(self, known: list[tuple[str, str]]) -> ClaimedEvent | None:
        """Take an event that is due; None if there is none."""
        return self._tables.run(_claim(known, self._lease)) if known else None

    def process(self, claim: ClaimedEvent) -> str:
        """Run its handler; the result in one word."""
        word = self._processed(claim)
        EVENT_STREAM.note(EventType.PROCESSED, claim.source, word.replace(" ", "_"), attempt=claim.attempt)
        return word

    def _processed(self, claim: ClaimedEvent) -> str:
        source = self._find(claim.scope, claim.source)
        if source is None:
            return self._put_off(claim, UNREADY_SECONDS, "the source is not known here", counted=False)
        try:
            handling = (
                import_handler(source.handler) if isinstance(source.handler, str) else inspect_handler(source.handler)
            )
        except ConfigurationError as error:
            log.error("%s: %s; its events are kept waiting", source.name, error)  # noqa: TRY400 - it says what to do
            return self._put_off(claim, UNREADY_SECONDS, str(error), counted=False)
        if claim.attempt > source.attempts:
            # Its last try never came to an end: whatever ran it was killed, perhaps by it.
            return self._bury(claim, source, None, 0.0)
        try:
            opened = open_event(self._sealer, claim)
        except SealBroken as error:
            return self._bury(claim, source, error, 0.0)
        except OncewardError as error:
            log.error("%s: %s; its events are kept waiting", source.name, error)  # noqa: TRY400 - it says what to do
            return self._put_off(claim, UNREADY_SECONDS, str(error), counted=False)
        began = self._environment.monotonic()
        try:
            self._call(opened, handling)
        except InFlight as error:
            return self._put_off(claim, error.retry_after_seconds or LEASE_SECONDS, "in flight", counted=False)
        except _IT_RAN:
            return self._done(claim, source)
        except Exception as error:
            return self._failed(claim, source, error, self._environment.monotonic() - began)
        return self._done(claim, source)

    def _call(self, claim: ClaimedEvent, handling: HandlerSpec) -> None:
        event = event_of(claim)

        def run(operation: Operation) -> None:
            handling.call(event, operation)

        self._scoped(claim).call(
            key_of(claim.id),
            run,
            request=claim.digest.hex(),
            name=f"hooks:{claim.source}",
            marked=handling.marked,
            **{**handling.options, "in_flight": "refuse"},
        )

    def _failed(self, claim: ClaimedEvent, source: Source, error: Exception, seconds: float) -> str:
        """The handler raised: the record says what that means for the event."""
        try:
            seen = self._scoped(claim).records.get(key_of(claim.id))
        except OncewardError:
            seen = None
        if seen is not None and seen.state == "settled" and seen.failure is None:
            return self._done(claim, source)  # Another worker overtook this one, and has done it.
        if isinstance(error, StoreUnavailable) and (seen is None or seen.state == "claimed"):
            return self._put_off(claim, UNREADY_SECONDS, _failure_text(error), counted=False)
        if seen is not None and seen.state == "in_doubt":
            return self._bury(claim, source, error, seconds)
        if claim.attempt >= source.attempts:
            return self._bury(claim, source, error, seconds)
        asked = getattr(error, "retry_after_seconds", None)
        wait = source.backoff.wait(claim.attempt - 1, self._environment.chance())
        wait = wait_after_server(asked, wait) if isinstance(asked, int | float) else wait
        log.warning(
            "%s: attempt %d at event %s failed (%s). Retry in %.1f s",
            source.name, claim.attempt, claim.id, type_name(type(error)), wait,
        )  # fmt: skip
        return self._put_off(claim, wait, _failure_text(error), counted=True, word=RETRIED)

    def _done(self, claim: ClaimedEvent, source: Source) -> str:
        if claim.buried:
            self._scoped(claim).dead_letters().discard(key_of(claim.id))
        self._tables.run(transact("inbox.settle", partial(event_table.mark_done, claim, source.keep_us)))
        return DONE

    def _put_off(self, claim: ClaimedEvent, seconds: float, why: str, *, counted: bool, word: str = PUT_OFF) -> str:
        wait = round(seconds * SECOND)
        text = shortened(why, FAILURE_CHARACTERS_MAX)
        self._tables.run(transact("inbox.put_off", partial(event_table.put_off, claim, wait, text, counted=counted)))
        return word

    def _bury(self, claim: ClaimedEvent, source: Source, error: Exception | None, seconds: float) -> str:
        """Put a dead letter, then mark the row: a dead letter that is put twice is one."""
        gate, key = self._scoped(claim), key_of(claim.id)
        seen = gate.records.get(key)
        reason = "the last attempt never ended" if error is None else _failure_text(error)
        wall_us = self._environment.wall_us()
        last = _DOUBT if error is None else verdict_on(DEFAULT, error, wall_us)
        verdict = _DOUBT if seen is not None and seen.state in ("in_doubt", "claimed") else last
        tries = () if error is None else (summarize_attempt(claim.attempt, wall_us, seconds, last, error),)
        name = f"hooks:{claim.source}"
        stop = Stop(StopReason.ATTEMPTS, claim.attempt, seconds, verdict, last, name, key, problem=error, tries=tries)
        gate.dead_letters().put(stop, GivenUp(name, key, _requeued_by_command, (), {"source": source.name}))
        self._tables.run(transact("inbox.bury", partial(event_table.mark_dead, claim, shortened(reason, 300))))
        log.error(
            "%s: event %s was given up after %d attempts (%s). See why (onceward dead list), then: onceward "
            "hooks requeue %s %s", source.name, claim.id, claim.attempt, reason, source.name, claim.id,
        )  # fmt: skip
        return DEAD

    def _scoped(self, claim: ClaimedEvent) -> Gate:
        return self._gate.scoped(scope_of(claim.scope, claim.source))


def event_of(claim: ClaimedEvent) -> WebhookEvent:
    """An event as its handler sees it."""
    signed = None if claim.signed_at is None else datetime.fromtimestamp(claim.signed_at, UTC)
    received = datetime.fromtimestamp(claim.received_at / 1e6, UTC)
    return WebhookEvent(
        claim.source, claim.id, claim.body, claim.headers, received, signed, claim.number, claim.attempt
    )


def _claim(known: list[tuple[str, str]], lease: int) -> Flow[ClaimedEvent | None]:
    if not (yield from read_tables(partial(event_table.is_any_due, known))):
        return None
    return (yield from transact("inbox.claim", partial(event_table.claim_event, known, lease)))


def _failure_text(error: BaseException) -> str:
    return shortened(f"{type_name(type(error))}: {message_of(error)}", FAILURE_CHARACTERS_MAX)


def _requeued_by_command(source: str) -> Any:
    """Stands for the event in its dead letter: `onceward dead requeue` does it again."""
