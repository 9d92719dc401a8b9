"""
What to do about a claim whose holder may be dead: check whether its process lives, then decide.

The rules are in `record.py`; `CheckProcess` finds out whether a process lives.
"""

from __future__ import annotations

from onceward._core import record
from onceward._core.flow import CheckProcess, Flow, Put
from onceward._core.holders import holder_of
from onceward._core.record import Claimant, Decision, PutResult, Record, Refuse, Wait


def decide_with_holder(wait: Wait, claimant: Claimant) -> Flow[Decision]:
    """The decision for a claimant who would have to wait, once it is known whether the holder lives."""
    alive = yield from lives(wait.record)
    if alive is False:
        return record.decide(wait.record, claimant, died=True)
    return wait._replace(alive=alive)


def lives(found: Record) -> Flow[bool | None]:
    """Whether the holder of a claim lives; None: it cannot be told from here."""
    process = holder_of(found)
    if process is None:
        return None
    alive: bool | None = yield CheckProcess(process)
    return alive


def put_in_doubt(refuse: Refuse, chance: bytes) -> Flow[Record | None]:
    """
    Store that a dead holder's operation is in doubt, and return the stored record.

    None: somebody else was quicker, so decide again.
    """
    write = record.abandon(refuse.record, token=chance[:16], version=chance[16:32])
    put: PutResult = yield Put("abandoned", write, refuse.record.version)
    return put.record if put.landed else None
