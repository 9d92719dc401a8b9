"""
One trace, many stores: random steps, what each store makes of them, and what may be compared of that.

    trace(7)                            thirty steps, the same for the same seed
    observed(store, trace(7))           what the store answered, step by step
    assert observed(one, ...) == observed(other, ...)

A step names no version, fence or instant: it says "the one seen last" or "the one that was claimed", and each store's
own `Ledger` knows which that is there. What is the clock's is replaced by what can be compared: durations by hours (or
"over"), fences and instants by their order among those seen before of the same key, versions that a store made up
itself by a word. On a clock that stands still nothing needs replacing but those versions (`exact=True`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, NamedTuple

from onceward._core import record
from onceward._core.keys import record_id
from onceward._core.record import NOW, Record, Write
from onceward.stores import PurgeResult, Selection
from onceward.testing.store_suite.rows import HOUR_US, row

STEPS = 30
SCOPES = ("acme", "globex")
KEYS = ("order:1", "order:2", "bestellung:ä→日本", "")
KINDS = ("key", "step")
FAMILIES = (None, b"f" * 32, b"g" * 32)
IDENTITIES = tuple((kind, scope, key) for kind in KINDS for scope in SCOPES for key in KEYS)
"""Few enough to meet again, many enough for pages."""
LONG = (1 * HOUR_US, 3 * HOUR_US, 30 * HOUR_US)
OVER = 0
"""A duration that is over as soon as it begins, on every clock."""
PURGE_ALL = 1_000
PURGES_MAX = 100


class Step(NamedTuple):
    """Something to do to a store, without anything that a store would have to tell first."""

    what: str
    identity: tuple[str, str, str] = IDENTITIES[0]
    expect: str = "right"
    """Which version to expect: right, held, stale, none or made up."""
    version: bytes = b""
    token: bytes = b""
    details: Any = None


class Ended(NamedTuple):
    """How a claim ends."""

    replay: int | None
    forget: int | None
    codec: str | None
    result: bytes | None
    error: bytes | None


def trace(seed: int, *, steps: int = STEPS) -> list[Step]:
    """Random steps, the same for the same seed."""
    dice = random.Random(f"differential/{seed}")
    # A few identities per trace, so that steps meet.
    some = dice.sample(IDENTITIES, 5)
    return [_step(dice, some) for _ in range(steps)]


_PUTS = {"claim": 8, "settle": 7, "release": 3, "doubt": 3, "renew": 3, "reconcile": 2}
_WHAT = _PUTS | {"load": 2, "extend": 3, "scan": 3, "purge": 2, "purge by one": 1, "pass": 2}
_EXPECT = {"right": 12, "held": 4, "stale": 2, "none": 1, "made up": 1}


def _step(dice: random.Random, some: list[tuple[str, str, str]]) -> Step:
    [what] = dice.choices(list(_WHAT), list(_WHAT.values()))
    [expect] = dice.choices(list(_EXPECT), list(_EXPECT.values()))
    details: Any = None
    match what:
        case "claim":
            guarantee = dice.choice([one.value for one in record.Guarantee])
            details = (dice.choice(FAMILIES), guarantee, dice.choice((OVER, *LONG)), dice.random() < 0.2)
        case "settle" | "reconcile" | "release" | "doubt":
            details = _ended(dice)
        case "renew":
            details = dice.choice(LONG)
        case "extend":
            details = (dice.choice(FAMILIES[1:]), dice.choice(LONG), dice.choice(LONG))
        case "scan":
            selection = Selection(dice.choice((None, *SCOPES)), dice.choice((None, *KINDS)), dice.random() < 0.3)
            details = (dice.choice((1, 2, 3, 50)), selection)
        case "pass":
            details = dice.choice((1, HOUR_US // 2, 2 * HOUR_US, 100 * HOUR_US))
    return Step(what, dice.choice(some), expect, dice.randbytes(16), dice.randbytes(16), details)


def _ended(dice: random.Random) -> Ended:
    forget = dice.choice((None, OVER, *LONG))
    # An answer that expires in a row that never goes: no gate asks for that, and SQLite's purge does not shrink it.
    replay = dice.choice((None, OVER, *LONG)) if forget is not None else None
    codec, result, error = dice.choice(
        [
            ("json/1", b'{"id":"ch_1"}', None),
            ("bytes/1", bytes(range(256)), None),
            ("bytes/1", b"", None),
            ("json/1", None, None),
            (None, None, b'{"type":"CardDeclined","message":"\xc3\xa4"}'),
            (None, None, None),
        ]
    )
    return Ended(replay, forget, codec, result, error)


class Ledger:
    """What has been seen of one store, in the order in which it was seen."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._latest: dict[bytes, Record | None] = {}
        self._held: dict[bytes, Record] = {}
        self._versions: dict[bytes, list[bytes]] = defaultdict(list)
        self._written: set[bytes] = set()
        self._seen: dict[tuple[str, bytes], list[int]] = defaultdict(list)

    def latest(self, id: bytes) -> Record | None:
        """What stood there when last seen."""
        return self._latest.get(id)

    def held(self, id: bytes) -> Record | None:
        """The claim that was seen last, whatever became of it: what a holder knows, also one that was overtaken."""
        return self._held.get(id)

    def expected(self, id: bytes, how: str) -> bytes | None:
        """The version to expect."""
        match how:
            case "right":
                return found.version if (found := self.latest(id)) is not None else None
            case "held":
                return found.version if (found := self.held(id)) is not None else None
            case "stale":
                return versions[0] if (versions := self._versions[id]) else None
            case "none":
                return None
        return b"?" * 16

    def note_write(self, write: Write) -> None:
        """A version that is ours, and not one that a store made up."""
        self._written.add(write.version)

    def shown(self, id: bytes, found: Record | None) -> Any:
        """What may be compared of what stands there; remembered as seen."""
        self._latest[id] = found
        if found is None:
            return None
        if found.state == record.State.CLAIMED:
            self._held[id] = found
        if found.version not in self._versions[id]:
            self._versions[id].append(found.version)
        if found.version not in self._written:
            # A tombstone's, which the store chose. That it is another one than before is what counts.
            found = found._replace(version=b"a version of the store's own")
        return found if self._exact else self._timeless(found)

    def _timeless(self, found: Record) -> dict[str, Any]:
        return found._asdict() | {
            "fence": self._order("fence", found.id, found.fence),
            "first_at": self._order("first_at", found.id, found.first_at),
            "settled_at": None if found.settled_at is None else self._order("settled_at", found.id, found.settled_at),
            "age": round(found.age / HOUR_US),
            "lease_left": _hours(found.lease_left),
            "replay_left": _hours(found.replay_left),
            "forget_left": _hours(found.forget_left),
        }

    def _order(self, what: str, id: bytes, value: int) -> tuple[int, int]:
        """Which of the values seen of this key it is, and how many of them are lower."""
        seen = self._seen[what, id]
        if value not in seen:
            seen.append(value)
        return seen.index(value), sum(one < value for one in seen)


def _hours(us: int | None) -> int | str | None:
    return None if us is None else "over" if us <= 0 else round(us / HOUR_US)


def observed(store: Any, steps: list[Step], *, environment: Any = None) -> list[Any]:
    """
    What a store answers to each step, and in the end all that stands there.

    With the environment of its clock, time passes where the steps say so, and every field is compared as it is.
    """
    ledger = Ledger(exact=environment is not None)
    answers = []
    for step in steps:
        if step.what == "pass":
            if environment is not None:
                environment.advance(step.details / 1e6)
            continue
        answers.append((step.what, _done(store, step, ledger)))
    everything = store.scan(b"", PURGE_ALL, Selection())
    answers.append(("end", [ledger.shown(found.id, found) for found in everything]))
    return answers


def _done(store: Any, step: Step, ledger: Ledger) -> Any:
    id = record_id(*step.identity)
    match step.what:
        case "load":
            return ledger.shown(id, store.load(id))
        case "extend":
            return store.extend(*step.details)
        case "scan":
            limit, selection = step.details
            return _pages(store, limit, selection, ledger)
        case "purge":
            return store.purge(PURGE_ALL)
        case "purge by one":
            return _purge_by_one(store)
    write = _write(step, ledger)
    if write is None:
        return "illegal"
    ledger.note_write(write)
    landed, found = store.put(write, ledger.expected(id, step.expect))
    return landed, ledger.shown(id, found)


def _pages(store: Any, limit: int, selection: Selection, ledger: Ledger) -> list[Any]:
    pages, after = [], b""
    while page := store.scan(after, limit, selection):
        pages.append([ledger.shown(found.id, found) for found in page])
        after = page[-1].id
    return pages


def _purge_by_one(store: Any) -> int:
    """How many are forgotten. How many shrink on the way depends on which comes first, and that is not agreed."""
    forgotten = 0
    for _ in range(PURGES_MAX):
        purged: PurgeResult = store.purge(1)
        if not any(purged):
            return forgotten
        forgotten += purged.forgotten
    raise AssertionError("there is no end to purging")


def _write(step: Step, ledger: Ledger) -> Write | None:
    """The row to put: what the rules make of the claim that was seen last; None if there was none."""
    kind, scope, key = step.identity
    id = record_id(*step.identity)
    if step.what == "claim":
        over = ledger.latest(id)
        family, guarantee, lease, doubt = step.details
        return row(
            scope,
            key,
            kind=kind,
            family=family,
            guarantee=guarantee,
            lease=lease,
            doubt=int(doubt),
            version=step.version,
            token=step.token,
            fence=1 if over is None else over.fence + 1,
            attempt=1 if over is None else over.attempt + 1,
            first_at=over.first_at if over is not None and doubt else NOW,
        )
    if (held := ledger.held(id)) is None:
        return None
    version, details = step.version, step.details
    match step.what:
        case "settle":
            return record.settle(held, version=version, **details._asdict())
        case "release":
            return record.release(held, version=version, forget=details.forget or HOUR_US, error=details.error)
        case "doubt":
            return record.leave_in_doubt(held, version=version, error=details.error)
        case "renew":
            return record.renew(held, version=version, lease=details)
        case "reconcile":
            ended = details._asdict()
            ended.pop("error")
            unheld, happened = held._replace(lease_left=0), details.error is None
            return record.reconcile(unheld, happened=happened, token=step.token, version=version, **ended)
    raise AssertionError(step)


def first_difference(one: list[Any], other: list[Any]) -> tuple[int, Any, Any] | None:
    """Where two stores part: the number of the answer, and both answers."""
    for number, (left, right) in enumerate(zip(one, other, strict=True)):
        if left != right:
            return number, left, right
    return None
