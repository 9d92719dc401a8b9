"""
The life of a key. The arrows are found by trying every move of `_core/record.py` on a record in every state; where they
are drawn is said here, and one that has no place is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from drawings.canvas import Canvas
from onceward._core import record
from onceward._core.errors import IllegalMove
from onceward._core.record import Claimant, Guarantee, Record, Start, State, Write

ABSENT = "absent"
_TOKEN, _VERSION = b"t" * 16, b"v" * 16
_DAY = 86_400_000_000


class Move(NamedTuple):
    """An arrow: from a state, to a state, by a move."""

    start: str
    end: str
    name: str


def moves() -> set[Move]:
    """Every move that the rules allow between stored states, and what purging does."""
    found = {Move(State.SETTLED.value, ABSENT, "forget"), Move(State.RELEASED.value, ABSENT, "forget")}
    for start in _records():
        for name, move in _MOVES.items():
            try:
                found.add(Move(start.state, move(start).state, name))
            except IllegalMove:
                continue
    return found | set(_claims())


def claim_of(guarantee: str, *, probes: bool) -> Claimant:
    """A caller with an operation of this guarantee."""
    return Claimant(
        id=b"i" * 32, kind="operation", scope="test:docs", key="charge:17", operation="charge", family=None,
        guarantee=guarantee, fingerprint=b"\x01" + b"f" * 32, lease=60_000_000, keyed_for=_DAY, can_probe=probes,
        holder=None, by_lease=False,
    )  # fmt: skip


def _claims() -> Iterator[Move]:
    """Who may claim over what, for every guarantee, with a probe and without."""
    for guarantee, probes in product((one.value for one in Guarantee), (False, True)):
        claimant = claim_of(guarantee, probes=probes)
        for found in (None, *_records(guarantee)):
            decision = record.decide(found, claimant)
            if isinstance(decision, Start):
                write = record.claim(claimant, decision, token=_TOKEN, version=_VERSION)
                yield Move(ABSENT if found is None else found.state, write.state, "claim")


def _records(guarantee: str = Guarantee.BLIND.value) -> Iterator[Record]:
    """A record in each stored state; claims also lapsed, and with doubt of an attempt before."""
    claimant = claim_of(guarantee, probes=False)
    for state, doubt, lease in product(State, (0, 1), (60_000_000, -1)):
        write = record.claim(claimant, Start(None), token=_TOKEN, version=_VERSION)
        held = record.record_from_write(write, now=0, fence=1)
        yield held._replace(
            state=state.value,
            doubt=doubt,
            lease_left=lease if state is State.CLAIMED else None,
            forget_left=_DAY if state in (State.SETTLED, State.RELEASED) else None,
            replay_left=_DAY if state is State.SETTLED else None,
            codec="json" if state is State.SETTLED else None,
            age=0,
        )


def lapsed_claim(guarantee: str) -> Record:
    """What a holder that died has left, after its lease."""
    return next(one for one in _records(guarantee) if one.state == State.CLAIMED and (one.lease_left or 0) < 0)


_MOVES: dict[str, Callable[[Record], Write]] = {
    "renew": lambda held: record.renew(held, version=_VERSION, lease=60_000_000),
    "settle": lambda held: record.settle(held, version=_VERSION, replay=_DAY, forget=_DAY, codec="json"),
    "release": lambda held: record.release(held, version=_VERSION, forget=_DAY),
    "leave in doubt": lambda held: record.leave_in_doubt(held, version=_VERSION),
    "abandon": lambda held: record.abandon(held, token=_TOKEN, version=_VERSION),
    "reconcile: it happened": lambda found: record.reconcile(found, happened=True, token=_TOKEN, version=_VERSION),
    "reconcile: it did not": lambda found: record.reconcile(found, happened=False, token=_TOKEN, version=_VERSION),
}

_ORDER = (
    "reconcile: it happened",
    "reconcile: it did not",
    "renew",
    "abandon",
    "leave in doubt",
    "release",
    "settle",
    "claim",
    "forget",
)
"""From top to bottom where one arrow has several."""

_PLACES = {
    ABSENT: (110, 150, "grey", "no record"),
    "claimed": (430, 150, "blue", "somebody runs it"),
    "settled": (760, 150, "green", "it happened, once"),
    "released": (250, 400, "grey", "proved: no effect"),
    "in_doubt": (610, 400, "amber", "nobody knows yet"),
}
_WIDTH, _HEIGHT = 168, 58

_ARROWS: dict[tuple[str, str], tuple[str, str, float, float, str]] = {
    # from, to: path, tone, where the label is, and how it is aligned
    (ABSENT, "claimed"): ("M194 150 L344 150", "blue", 270, 141, "middle"),
    ("claimed", "claimed"): ("M396 121 C376 74 484 74 464 121", "blue", 430, 78, "middle"),
    ("claimed", "settled"): ("M514 150 L674 150", "green", 594, 141, "middle"),
    ("claimed", "released"): ("M388 179 C368 260 316 310 288 371", "grey", 346, 306, "start"),
    ("released", "claimed"): ("M222 371 C236 300 300 214 352 181", "blue", 252, 272, "end"),
    ("claimed", "in_doubt"): ("M440 179 C446 262 516 330 562 370", "amber", 486, 226, "start"),
    ("in_doubt", "claimed"): ("M650 371 C644 290 604 214 511 180", "blue", 642, 268, "start"),
    ("in_doubt", "settled"): ("M676 371 C716 320 750 260 762 181", "green", 756, 290, "start"),
    ("in_doubt", "released"): ("M526 400 L336 400", "grey", 430, 391, "middle"),
    ("settled", ABSENT): ("M760 121 C740 26 130 26 110 119", "grey", 620, 45, "middle"),
    ("released", ABSENT): ("M196 371 C150 330 122 260 112 181", "grey", 122, 276, "end"),
}


def draw() -> str:
    """The picture."""
    found = moves()
    by_arrow: dict[tuple[str, str], list[str]] = {}
    for move in sorted(found, key=lambda one: (_ORDER.index(one.name), one)):
        by_arrow.setdefault((move.start, move.end), []).append(move.name)
    homeless = set(by_arrow) ^ set(_ARROWS)
    if homeless:
        raise LookupError(f"the rules and _ARROWS of this file differ: {sorted(homeless)}")
    words = "; ".join(f"{one.start} to {one.end} by {one.name}".replace("_", " ") for one in sorted(found))
    canvas = Canvas(920, 450, "The life of a key", f"Every move between the states of a record: {words}.")
    for arrow, names in by_arrow.items():
        path, tone, x, y, anchor = _ARROWS[arrow]
        canvas.arrow(path, tone)
        above = anchor == "middle"
        for number, name in enumerate(names):
            line = y - 15 * (len(names) - 1 - number) if above else y + 16 * number
            canvas.text(x, line, name, f"small {tone}", anchor=anchor)
    for state, (x, y, tone, meaning) in _PLACES.items():
        canvas.box(x - _WIDTH / 2, y - _HEIGHT / 2, _WIDTH, _HEIGHT, tone)
        canvas.text(x, y - 4, state.replace("_", " "), f"strong {tone}", anchor="middle")
        canvas.text(x, y + 15, meaning, "small", anchor="middle")
    return canvas.svg()
