"""
`EmitterBase`: what the blocking and the async emitter share, which is everything but the waiting.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from onceward._core.codec import type_name
from onceward._core.dead_letters import DeadLetter
from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError, RequestInvalid
from onceward._core.flow import CheckProcess, Effect, Flow
from onceward._core.key_recipes import recipe
from onceward._core.record import Record
from onceward._core.spool import (
    EMIT,
    LEASE_MARGIN,
    Cadence,
    Item,
    ItemDraft,
    SpooledItem,
    SpoolQueue,
    SpoolSettings,
    draft_item,
    is_given_up,
    is_orphaned,
    item_errors,
    release_given_up_item,
    settle_sent_item,
)
from onceward._core.stops import GivenUp
from onceward._core.store_protocols import Selection
from onceward.gate import AsyncGate, Gate
from onceward.gate.call_factory import check_blocking
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox
from onceward.gate.function_inspection import is_async
from onceward.messaging.emitter.batch_delivery import BatchDelivery, Flushed, GivenUpItem, NullDeadLetters
from onceward.retry.breaker import checked_name
from onceward.retry.policy import Retry, stop_of
from onceward.runtime.failpoints import declare
from onceward.runtime.flow_driver import run

log = logging.getLogger("onceward")

for _at, _what in {
    "emit": "an item is put into the spool",
    "emit.take": "an item that another emitter left is taken over",
    "emit.renew": "the lease of an item is lengthened before it is sent",
    "emit.settle": "an item that was sent is settled",
    "emit.stop": "an item that was given up is set aside",
}.items():
    declare(f"{_at}.before", f"just before {_what}")
    declare(f"{_at}.after", f"just after {_what}")

ReferenceRecipe = str | Callable[..., str]

WRITES_AT_ONCE = 100
"""Concurrent writes to the store: enough for it to write many of them with one wait for the disk."""


class FinalWrite(NamedTuple):
    """The last write about an item. Retried if the store is away."""

    flow: Callable[[], Flow[None]]


class EmitterBase:
    """Checks and decisions of an emitter; `Emitter` and `AsyncEmitter` do the I/O."""

    def __init__(
        self,
        gate: Gate | AsyncGate,
        name: str,
        send: Callable[..., Any],
        reference: ReferenceRecipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int,
        *,
        awaits: bool,
    ) -> None:
        _check_colours(gate, send, retry, awaits)
        if not callable(send):
            raise ConfigurationError("send must be a function that takes a list of items; it is called once per batch")
        if not isinstance(cadence, Cadence):
            raise ConfigurationError(
                "cadence must be a Cadence(size=100, seconds=5): how many items, or how long they wait"
            )
        self.name = checked_name(name)
        self.cadence = cadence
        self._recipe = recipe(reference)
        self._send = send
        self._environment = gate.environment
        self._asking = gate._call_factory
        self._about = self._asking.about((EMIT,), EMIT)
        self._dead, self._policy = _checked_policy(retry, self.name)
        lease = microseconds(cadence.seconds + retry.elapsed + LEASE_MARGIN, "lease")
        self._lease = lease
        self._room = spool_max
        self._begin()
        if isinstance(self._dead, DeadLetterBox | AsyncDeadLetterBox) and self.name not in self._dead.handlers:
            self._dead.handle(self.name, self._again, guarantee="repeatable")

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._spool = SpoolQueue(self.cadence, self._room)
        self._unended: list[FinalWrite] = []
        self._look_at = float("-inf")
        self._closed = False

    @property
    def _place(self) -> SpoolSettings:
        """Where the items are, and who holds them from now on: another process after a fork."""
        by_lease = self._asking.terms.takeover == "lease"
        return SpoolSettings(self._asking.scope, self.name, self._lease, self._environment.process(), by_lease)

    # --- looking ---

    @property
    def waiting(self) -> int:
        """How many items wait in this emitter's spool."""
        return len(self._spool.waiting)

    @property
    def given_up(self) -> int:
        """How many items this emitter gave up and has set aside: `resume()` takes them up again."""
        return self._spool.given_up

    # --- steps ---

    def _draft(self, item: Mapping[str, Any]) -> ItemDraft:
        if self._closed:
            raise ConfigurationError(f"the emitter {self.name} is closed; make another")
        if not isinstance(item, Mapping):
            raise RequestInvalid(f"an item must be a mapping from names to plain data, not a {type(item).__name__}")
        reference = self._recipe.key(item)
        return draft_item(self._place, reference, self._asking.stored_key(reference), item)

    def _now(self) -> float:
        return self._environment.monotonic()

    def _needs_longer(self, held: SpooledItem, now: float) -> bool:
        """Whether the lease might end while the item is being sent."""
        return held.until - now < self._policy.elapsed + LEASE_MARGIN / 2

    def _selection(self, *, given_up: bool) -> Selection:
        return Selection(scope=self._place.scope, kind=EMIT, unsettled=not given_up)

    def _free_items(self, page: Sequence[Record], *, given_up: bool) -> list[Record]:
        place = self._place
        if given_up:
            return [one for one in page if is_given_up(one, place)]
        return [one for one in page if run(is_orphaned(one, place), self._look)]

    def _look(self, effect: Effect) -> bool | None:
        """Perform an effect of `is_orphaned`: whether a process lives."""
        return self._environment.lives(effect.process) if isinstance(effect, CheckProcess) else None

    def _room_left(self) -> int:
        return self._spool.room - self._spool.used

    def _sent(self, held: SpooledItem) -> FinalWrite:
        terms = self._asking.terms
        return FinalWrite(lambda: settle_sent_item(held, terms.retain, terms.forget))

    def _set_aside(self, lost: GivenUpItem) -> FinalWrite:
        return FinalWrite(lambda: release_given_up_item(lost.held, lost.error))

    def _call_of(self, lost: GivenUpItem) -> GivenUp:
        item = lost.held.item
        return GivenUp(self.name, item.key, self._again, (), {"reference": item.reference, "data": dict(item.data)})

    def _again(self, reference: str, data: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _alike(self, reference: str, data: dict[str, Any]) -> list[Item]:
        """The item that a dead letter holds, as a batch of one."""
        return [Item(reference, self._asking.stored_key(reference), data)]

    def _buried(self, letter: Any, lost: GivenUpItem) -> FinalWrite | None:
        """The last write about an item with a dead letter; None if the dead letter does not hold its content."""
        if isinstance(letter, DeadLetter) and letter.payload == "omitted":
            return None
        return self._sent(lost.held)

    def _not_buried(self, error: Exception) -> None:
        log.warning(
            "onceward: emitter %s could not put a dead letter (%s); the item stays in the spool",
            self.name,
            type_name(type(error)),
        )

    def _hold(self, ended: Any = None) -> None:
        """Stop the timer's sending for a while: until the breaker may be tried again, or for one cadence."""
        stop = stop_of(ended)
        retry_after = None if stop is None else stop.retry_after_seconds
        self._spool.hold = self._now() + max(retry_after or 0.0, self.cadence.seconds)

    def _report(self, delivery: BatchDelivery, lost: Sequence[GivenUpItem], ended: Any) -> Flushed:
        if lost:
            why = lost[-1].error
            log.warning(
                "onceward: emitter %s gave up %d of %d items (%s); none of them is lost",
                self.name,
                len(lost),
                len(lost) + len(delivery.sent),
                "a result that counts as a failure" if why is None else type_name(type(why)),
            )
        error = ended if isinstance(ended, Exception) else (lost[-1].error if lost else None)
        return Flushed(int(delivery.attempts > 0), len(delivery.sent), len(lost), 0, error)


def raise_failures(result: Any, items: Sequence[Item]) -> None:
    """Raise the error of an item that was sent alone, from a dead letter."""
    for error in item_errors(result, items):
        if error is not None:
            raise error


def _check_colours(gate: Any, send: Any, retry: Any, awaits: bool) -> None:
    """Refuse a blocking part in an async emitter, and an async part in a blocking one."""
    dead = retry.dead if isinstance(retry, Retry) else None
    kind = type(gate).__name__
    if awaits:
        if not isinstance(gate, AsyncGate):
            raise ConfigurationError(f"an AsyncEmitter needs an AsyncGate, not {kind}")
        if callable(send) and not is_async(send):
            raise ConfigurationError("send of an AsyncEmitter is an async function; a blocking one goes with Emitter")
        if isinstance(dead, DeadLetterBox):
            raise ConfigurationError("these dead letters block and this emitter awaits; use those of its AsyncGate")
    else:
        if not isinstance(gate, Gate):
            raise ConfigurationError(f"an Emitter needs a Gate, not {kind}; AsyncGate has AsyncEmitter")
        if callable(send):
            check_blocking(send)
        if isinstance(dead, AsyncDeadLetterBox):
            raise ConfigurationError("these dead letters are awaited and this emitter blocks; use gate.dead_letters()")


def _checked_policy(retry: Retry, name: str) -> tuple[Any, Retry]:
    """The dead letters and the policy that sends; refused if items could be lost or keys doubled."""
    if not isinstance(retry, Retry):
        raise ConfigurationError("retry must be a Retry(attempts=3, elapsed=60): how many attempts, and how long")
    if retry.key is not None or retry._recipe is not None:
        raise ConfigurationError("the emitter names each item by `reference`; leave key out of its retry policy")
    dead = retry.dead
    if isinstance(dead, DeadLetterBox | AsyncDeadLetterBox) and not dead.keeps_payload:
        raise ConfigurationError(
            "these dead letters keep no payload, so an item that is given up would be lost there: use "
            "gate.dead_letters(payload='plain'), or payload=Sealed(key)"
        )
    return dead, retry.bind(safe=True, name=name, dead=None if dead is None else NullDeadLetters())
