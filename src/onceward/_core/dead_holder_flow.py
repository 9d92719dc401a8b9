"""
Waiting for a holder that may be dead: look, where it can be seen, and decide with what was seen.

The rules are those of `record.py`; whether a process lives is asked of the shell.
"""

from __future__ import annotations

from onceward._core import record
from onceward._core.flow import CheckProcess, Flow, Put
from onceward._core.holders import holder_of
from onceward._core.record import Claimant, Decision, PutResult, Record, Refuse, Wait


def decide_with_holder(wait: Wait, claimant: Claimant) -> Flow[Decision]:
    """What follows for a claimant who would have to wait, once somebody has looked for the holder."""
    alive = yield from lives(wait.record)
    if alive is False:
        return record.decide(wait.record, claimant, died=True)
    return wait._replace(alive=alive)


def lives(found: Record) -> Flow[bool | None]:
    """Whether the holder of a claim lives; None: nobody can tell from here."""
    process = holder_of(found)
    if process is None:
        return None
    alive: bool | None = yield CheckProcess(process)
    return alive


def put_in_doubt(refuse: Refuse, chance: bytes) -> Flow[Record | None]:
    """
    Store that a dead holder's operation is in doubt, for everybody to see and to decide; what stands there then.

    None: somebody else was quicker, so that it has to be looked at again.
    """
    write = record.abandon(refuse.record, token=chance[:16], version=chance[16:32])
    put: PutResult = yield Put("abandoned", write, refuse.record.version)
    return put.record if put.landed else None
