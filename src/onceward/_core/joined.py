"""
The same operation inside the caller's own transaction.

    begin (or savepoint) -> claim -> run the function -> settle -> commit (or release the savepoint)

Record and business rows commit together or not at all, so there is no doubt to keep: whatever goes wrong, the
transaction is undone and nothing happened. The unique constraint is the arbiter here as everywhere: under it a racer
waits for the winner's commit (the database makes it wait) and then replays the winner.
"""

from __future__ import annotations

from typing import Any

from onceward._core import advice, record
from onceward._core.codec import NotEncodable, decode, encode, encode_failure
from onceward._core.engine import CLAIM_SPINS_MAX, POLL_FIRST, POLL_MAX, Ask, call, outcome_of
from onceward._core.errors import IllegalMove, InFlight, ResultInvalid, StoreContended
from onceward._core.flow import (
    CHANCE,
    MONOTONIC,
    Begin,
    Commit,
    Extend,
    Flow,
    Load,
    Pause,
    Put,
    Raised,
    Returned,
    Rollback,
)
from onceward._core.operation import Outcome, Settling, judge
from onceward._core.record import Record, Refuse, Replay, Standing, Start, Wait, Write


def operate_joined(ask: Ask) -> Flow[Outcome[Any]]:
    """Run an operation once inside the caller's transaction, or learn what became of it."""
    deadline, poll = None, POLL_FIRST
    while True:
        chance = yield CHANCE
        opened = yield Begin("begin")
        try:
            came_to = yield from _inside(ask, chance)
            if not isinstance(came_to, Wait):
                yield Commit("commit")
        except GeneratorExit:
            raise
        except BaseException:
            undone = yield Rollback("rollback")
            if not undone:
                yield from _own_up(ask, chance)
            raise
        match came_to:
            case Outcome():
                return came_to
            case Raised(error):
                raise error  # Remembered: its record is committed, its rows are not.
        # Somebody holds it outside this transaction. Waiting inside would keep that holder from settling.
        yield Rollback("rollback")
        now = yield MONOTONIC
        deadline = now + ask.terms.wait / 1e6 if deadline is None else deadline
        if not opened or ask.terms.in_flight != "wait" or now >= deadline:
            raise InFlight(advice.in_flight(came_to.record), retry_after_seconds=min(came_to.lease_left / 1e6, 1.0))
        yield Pause(ask.claimant.id, min(poll, deadline - now))
        poll = min(poll * 1.6, POLL_MAX)


def _own_up(ask: Ask, chance: bytes) -> Flow[None]:
    """
    The function ended the transaction itself, and then failed: what it committed cannot be undone.

    If our claim was committed with it, nobody may take it for a claim that was rolled back: it is left in doubt.
    """
    found: Record | None = yield Load("doubt.load", ask.claimant.id)
    if found is not None and record.still_holds(found, chance[:16]):
        yield Begin("begin")
        yield Put("doubt", record.leave_in_doubt(found, version=chance[32:]), found.version)
        yield Commit("commit")


def _inside(ask: Ask, chance: bytes) -> Flow[Outcome[Any] | Raised | Wait]:
    if ask.claimant.family is not None:
        yield Extend("touch", ask.claimant.family, ask.terms.retain, ask.terms.forget)
    start = record.FRESH
    for _ in range(CLAIM_SPINS_MAX):
        write = record.claim(ask.claimant, start, token=chance[:16], version=chance[16:32])
        standing = yield Put("claim", write, None if start.over is None else start.over.version)
        if standing.landed and standing.record is not None:
            return (yield from _run(ask, standing.record, chance[32:]))
        decision = record.decide(standing.record, ask.claimant)
        match decision:
            case Replay(found):
                return outcome_of(found, ask.restore)
            case Refuse(why, found):
                raise advice.refusal(why, found)
            case Wait():
                return decision
            case Start():
                start = decision
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _run(ask: Ask, held: Record, version: bytes) -> Flow[Outcome[Any] | Raised]:
    """Run the function; a failure that is to be remembered keeps its record and undoes its rows."""
    remembers_failures = ask.terms.remember == "all"
    if remembers_failures:
        yield Begin("begin")  # A savepoint around the function.
    ended = yield from call(Settling(held))
    if isinstance(ended, Returned):
        if remembers_failures:
            yield Commit("commit")
        return (yield from _settle(ask, held, version, ended.value))
    if remembers_failures:
        yield Rollback("rollback")
        if isinstance(ended.error, Exception):
            yield from _put(_ending(ask, held, version, error=encode_failure(ended.error)), held)
            return ended
    judge(ended.error)
    raise ended.error


def _settle(ask: Ask, held: Record, version: bytes, value: Any) -> Flow[Outcome[Any]]:
    try:
        kept = encode(value)
    except NotEncodable as error:
        raise ResultInvalid(f"{error}. Nothing happened: your transaction was undone") from None
    if kept.data is not None and len(kept.data) > ask.terms.result_bytes_max:
        raise ResultInvalid(
            f"the result has {len(kept.data)} bytes and at most {ask.terms.result_bytes_max} are stored; return less, "
            "or raise result_bytes_max. Nothing happened: your transaction was undone"
        )
    yield from _put(_ending(ask, held, version, codec=kept.codec, result=kept.data), held)
    return Outcome(decode(kept, ask.restore), False, held.first_at, held.attempt, held.fence)


def _put(write: Write, held: Record) -> Flow[None]:
    standing: Standing = yield Put("settle", write, held.version)
    if not standing.landed:
        raise IllegalMove(
            "the claim of this transaction is gone: your function ended the transaction that it was given; leave the "
            "ending to the gate"
        )


def _ending(ask: Ask, held: Record, version: bytes, **ending: Any) -> Write:
    return record.settle(held, version=version, replay=ask.terms.retain, forget=ask.terms.forget, **ending)
