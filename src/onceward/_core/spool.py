"""
The spool of an emitter: items that wait in the store until it is time to send some of them together.

    emit ---> waiting ---- sent ----> settled (the content is dropped, the fact is kept as long as any answer)
                 ^  |
       resumed,  |  +-- given up ---> released (kept with its content, until somebody resumes it)
     or emitted  +--------------------/
          again

An item is a record of a kind of its own, put by compare-and-swap like any other; the rules are those of `record.py`.
While it waits it is claimed by the emitter that took it, under a lease that covers the waiting and the sending. What an
emitter leaves when it dies, the next one takes over: at once if it sees that the process is dead, else when the lease
has lapsed. No clock here: times are handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from onceward._core.codec import JSON, Encoded, NotEncodable, decode, encode, encode_failure
from onceward._core.dead_holder_flow import decide_with_holder
from onceward._core.display_text import python_kind
from onceward._core.durations import SECOND, microseconds
from onceward._core.errors import (
    ConfigurationError,
    KeyReused,
    OncewardError,
    RequestInvalid,
    SpoolFull,
    StoreContended,
)
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.finish_flow import put_back_effect
from onceward._core.flow import RANDOM_BYTES, Flow, Put
from onceward._core.keys import digest_of, record_id
from onceward._core.record import (
    FRESH,
    Claimant,
    Guarantee,
    PutResult,
    Record,
    Refusal,
    Refuse,
    Start,
    Wait,
    Write,
    claim,
    decide,
    is_claimed,
    release,
    renew,
    settle,
    shown_state,
)

EMIT = "emit"
"""The kind of record that an item is."""

CODEC = "emit/1"
"""Of its own, so that nothing that shows records shows an item's content by the way."""

SIZE_MAX = 1_000
"""Items per batch: more make a request that times out as a whole."""

SECONDS_MAX = 3_600.0
"""An hour: longer waits need a scheduler."""

SPOOL_MAX_MAX = 1_000_000
"""Items are held in memory as well; a million of a kilobyte are a gigabyte."""

ITEM_BYTES_MAX = 32_768
"""Of an item's content: an event, not a file. It must fit into a dead letter, too."""

LEASE_MARGIN = 30.0
"""Seconds that a lease is longer than waiting and sending take: for slow stores and clocks that drift."""

SPINS_MAX = 8
"""Writers that get in between. More of them, and something else is wrong."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """When an emitter sends: as soon as `size` items wait, or the oldest has waited for `seconds`."""

    size: int = 100
    """Items per batch at most, and enough for one."""
    seconds: float = 5.0
    """How long an item waits at most before its batch is sent."""

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 2 <= self.size <= SIZE_MAX:
            raise ConfigurationError(
                f"a cadence's size is a whole number of items, 2 to {SIZE_MAX:,}: with 1 there is a request for "
                "every event, and without a limit a batch grows until it times out. 100 is a good start"
            )
        seconds = microseconds(self.seconds, "a cadence's seconds") / SECOND
        if seconds > SECONDS_MAX:
            raise ConfigurationError(
                f"a cadence's seconds are at most {SECONDS_MAX:,.0f} (an hour): use a scheduler for longer waits; "
                "5 is a good start"
            )
        object.__setattr__(self, "seconds", seconds)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to send. Everything in it is the same on every attempt, in every process, after every restart."""

    reference: str
    """What the recipe made of the content."""
    key: str = field(repr=False)
    """The reference with its environment in front (live:, test:): send it along as the idempotency key."""
    data: Mapping[str, Any] = field(repr=False)
    """The content, as it reads back from the store: a Decimal is text, a tuple is a list."""


class Emitted(NamedTuple):
    """What became of an `emit`."""

    reference: str
    key: str
    duplicate: bool
    """Whether an equal item of this reference was there before: waiting, given up or sent."""


class SpooledItem(NamedTuple):
    """An item that this emitter has taken, and the record that says so."""

    item: Item
    record: Record
    since: float
    """When it was first emitted, on the monotonic clock."""
    until: float
    """When the lease ends, on the same clock."""


class SpoolSettings(NamedTuple):
    """Where an emitter's items are."""

    scope: str
    name: str
    lease: int
    """Microseconds."""
    holder: bytes | None = None
    """The process that holds items from now on."""
    by_lease: bool = False
    """Whether items pass on only when their lease ends (takeover="lease")."""


class ItemDraft(NamedTuple):
    """An item to be spooled."""

    item: Item
    claimant: Claimant
    content: bytes


def draft_item(place: SpoolSettings, reference: str, key: str, data: Mapping[str, Any]) -> ItemDraft:
    """An item, refused here if it could not be kept or compared."""
    if not isinstance(data, Mapping):
        raise RequestInvalid(f"an item is a mapping from names to plain data, not {python_kind(data)}")
    try:
        content = encode({"reference": reference, "data": dict(data)}).data or b""
    except NotEncodable as error:
        raise RequestInvalid(f"the item cannot be kept: {str(error).removeprefix('result.data.')}") from None
    if len(content) > ITEM_BYTES_MAX:
        raise RequestInvalid(
            f"the item has {len(content):,} bytes, and the limit is {ITEM_BYTES_MAX:,}: store the large part "
            "elsewhere and emit a reference to it"
        )
    return ItemDraft(_item(key, content), _claimant(place, key, fingerprint_canonical(data)), content)


def _claimant(place: SpoolSettings, key: str, fingerprint: bytes) -> Claimant:
    id = record_id(EMIT, place.scope, place.name, key)
    # Repeatable, because whoever receives an item again sees the same key.
    guarantee = Guarantee.REPEATABLE.value
    who = (place.scope, key, place.name, None, guarantee, fingerprint)
    return Claimant(id, EMIT, *who, place.lease, 0, False, place.holder, place.by_lease)


def _item(key: str, content: bytes) -> Item:
    document = decode(Encoded(JSON, content))
    if not isinstance(document, dict) or not isinstance(document.get("data"), dict):
        raise RequestInvalid("the item's content is damaged")
    return Item(str(document["reference"]), key, document["data"])


# --- moves ---


def spool_item(draft: ItemDraft, now: float) -> Flow[tuple[Emitted, SpooledItem | None]]:
    """Put an item into the spool. Held, if it is this emitter's to send; refused, if its reference means another."""
    start: Start = FRESH
    met = False
    for _ in range(SPINS_MAX):
        chance = yield RANDOM_BYTES
        write = _claimed(draft.claimant, start, draft.content, chance)
        put = yield Put("emit", write, None if start.over is None else start.over.version)
        found = put.record
        if put.landed or (found is not None and found.version == write.version):
            held = _held(draft.item, found, now)
            if start.over is None:
                # New, so it waits from now on. Its age is what the answer took, and would disturb the order of emits.
                held = held._replace(since=now)
            return Emitted(draft.item.reference, draft.item.key, met), held
        decision = decide(found, draft.claimant)
        if isinstance(decision, Wait):
            decision = yield from decide_with_holder(decision, draft.claimant)
        if isinstance(decision, Refuse) and decision.why is Refusal.REUSED:
            raise KeyReused(
                f"reference {digest_of(draft.claimant.id)} of {draft.claimant.operation} is in use for another item. "
                "Give each item a reference of its own, and emit the same item unchanged"
            )
        if not isinstance(decision, Start):
            return Emitted(draft.item.reference, draft.item.key, True), None
        # Lapsed, left by a dead process or given up, and wanted again: it is ours now. A forgotten one never was.
        start = decision
        met = found is not None and shown_state(found) != "absent"
    raise StoreContended


def take_over(place: SpoolSettings, found: Record, now: float) -> Flow[SpooledItem | None]:
    """Take an item that nobody holds any more; None if somebody else was quicker, or it cannot be read."""
    try:
        item = _item(found.key, found.result or b"")
    except OncewardError:
        return None
    chance = yield RANDOM_BYTES
    claimant = _claimant(place, found.key, found.fingerprint)
    write = _claimed(claimant, Start(found), found.result, chance)
    put = yield Put("emit.take", write, found.version)
    return _held(item, put.record, now) if _is_own(put.record, write) else None


def renew_item(held: SpooledItem, lease: int, now: float) -> Flow[SpooledItem | None]:
    """Lengthen the lease before sending; None if another emitter has the item by now."""
    chance = yield RANDOM_BYTES
    content = held.record.result
    write = renew(held.record, version=chance[16:32], lease=lease)._replace(codec=CODEC, result=content)
    found = (yield from _moved("emit.renew", write, held)).record
    return _held(held.item, found, now) if found is not None and found.version == write.version else None


def settle_sent_item(held: SpooledItem, replay: int, forget: int) -> Flow[None]:
    """
    Settle what was sent, without its content. If another emitter has it by now, it sends it again under the same key.

    Losing this write to a power cut means the same, so it may be relaxed.
    """
    chance = yield RANDOM_BYTES
    write = settle(held.record, version=chance[16:32], replay=replay, forget=forget, relaxed=True)
    yield from _moved("emit.settle", write, held)


def release_given_up_item(held: SpooledItem, error: BaseException | None) -> Flow[None]:
    """Set aside what was given up: kept with its content for as long as it takes."""
    chance = yield RANDOM_BYTES
    said = None if error is None else encode_failure(error)
    write = release(held.record, version=chance[16:32], forget=SECOND, error=said)
    write = write._replace(codec=CODEC, result=held.record.result, forget=None)
    yield from _moved("emit.stop", write, held)


def _moved(at: str, write: Write, held: SpooledItem) -> Flow[PutResult]:
    """
    Put the next state of an item. If the store forgot the item, it is put back: we have its content, and whoever
    receives it again sees the same key. Not if it was erased.
    """
    put: PutResult = yield Put(at, write, held.record.version)
    if put.record is None:
        put = yield put_back_effect(write)
    return put


def is_orphaned(found: Record, place: SpoolSettings) -> Flow[bool]:
    """Whether an item of this emitter waits there, and nobody holds it: its lease has ended, or its holder is dead."""
    if not _is_item(found, place):
        return False
    claimant = _claimant(place, found.key, found.fingerprint)
    decision = decide(found, claimant)
    if isinstance(decision, Wait):
        decision = yield from decide_with_holder(decision, claimant)
    return isinstance(decision, Start) and is_claimed(found)


def is_given_up(found: Record, place: SpoolSettings) -> bool:
    """Whether an item of this emitter was given up, and waits for somebody to resume it."""
    return _is_item(found, place) and shown_state(found) == "released"


def _is_item(found: Record, place: SpoolSettings) -> bool:
    return found.kind == EMIT and found.operation == place.name and found.codec == CODEC


def _is_own(found: Record | None, write: Write) -> TypeGuard[Record]:
    return found is not None and found.version == write.version


def _held(item: Item, record: Record, now: float) -> SpooledItem:
    lease = 0 if record.lease_left is None else record.lease_left
    return SpooledItem(item, record, now - record.age / SECOND, now + lease / SECOND)


def _claimed(claimant: Claimant, start: Start, content: bytes | None, chance: bytes) -> Write:
    write = claim(claimant, start, token=chance[:16], version=chance[16:32])
    over = start.over
    lives = over is not None and shown_state(over) != "absent"
    # How long it has waited is counted from its first emit, whoever holds it.
    return write._replace(codec=CODEC, result=content, first_at=over.first_at if over and lives else write.first_at)


# --- what waits ---


class SpoolQueue:
    """What one emitter holds: which items wait, and when some of them are due. Whoever uses it keeps others out."""

    def __init__(self, cadence: Cadence, room: int) -> None:
        if isinstance(room, bool) or not isinstance(room, int) or not cadence.size <= room <= SPOOL_MAX_MAX:
            raise ConfigurationError(
                f"spool_max is a whole number of items, at least the cadence's size ({cadence.size:,}) and at most "
                f"{SPOOL_MAX_MAX:,}: a spool without a limit hides that nothing is being sent"
            )
        self.cadence, self.room = cadence, room
        self.waiting: deque[SpooledItem] = deque()
        self.under_way = 0
        """Being spooled or sent at this moment."""
        self.given_up = 0
        self.hold = float("-inf")
        """Until then nothing is sent by itself: the circuit is open, say."""

    @property
    def used(self) -> int:
        """How much of the room is taken."""
        return len(self.waiting) + self.under_way + self.given_up

    def enter(self) -> None:
        """Make room for one more, or refuse."""
        if self.used >= self.room:
            aside = f", {self.given_up:,} of them given up" if self.given_up else ""
            raise SpoolFull(
                f"{self.used:,} items are in the spool{aside}, and spool_max is {self.room:,}: slow down, and emit the "
                "same item again later. If nothing is being sent, flush() says why; resume() sends items "
                "again that were given up",
                retry_after_seconds=self.cadence.seconds,
            )
        self.under_way += 1

    def entered(self, held: SpooledItem | None) -> None:
        """The one that entered waits now; or was not for us to send."""
        self.under_way -= 1
        if held is not None:
            self.waiting.append(held)

    def add(self, found: Iterable[SpooledItem]) -> None:
        """Items that others left behind; the oldest go first."""
        self.waiting = deque(sorted((*self.waiting, *found), key=lambda one: one.since))

    def is_due(self, now: float) -> bool:
        """Whether a batch is to be sent now."""
        return self.due_in(now) <= 0

    def due_in(self, now: float) -> float:
        """Seconds until a batch is to be sent, as things stand; infinite if nothing waits."""
        if not self.waiting:
            return float("inf")
        full = len(self.waiting) >= self.cadence.size
        wait = 0.0 if full else self.waiting[0].since + self.cadence.seconds - now
        return max(wait, self.hold - now)

    def take(self) -> list[SpooledItem]:
        """The next batch."""
        batch = [self.waiting.popleft() for _ in range(min(len(self.waiting), self.cadence.size))]
        self.under_way += len(batch)
        return batch

    def taken(self, batch: int, back: Sequence[SpooledItem] = (), given_up: int = 0) -> None:
        """A batch has ended: some go back to the front, some were given up, the rest is gone."""
        self.under_way -= batch
        self.given_up += given_up
        self.waiting.extendleft(reversed(back))


# --- what `send` answered ---


def item_errors(answer: Any, items: Sequence[Item]) -> list[Exception | None]:
    """For each item, the error that it failed with, or None: from what `send` returned."""
    if answer is None:
        return [None] * len(items)
    if isinstance(answer, Mapping) and set(answer) == {item.reference for item in items}:
        answer = [answer[item.reference] for item in items]
    if isinstance(answer, list | tuple) and len(answer) == len(items):
        return [one if isinstance(one, Exception) else None for one in answer]
    raise ConfigurationError(
        f"send returned a {type(answer).__name__} that does not match its {len(items)} items. Return None (all were "
        "sent), one result per item in their order, or a mapping by reference; an exception in it is that item's "
        "failure. With Retry(failed=...) the policy judges any other result"
    )
