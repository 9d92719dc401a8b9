"""
Faults to plant, one at a time: an explorer that finds nothing must be shown to find something.

Each is a mistake that a store or an engine could make, and names the invariant that must notice it and the scenarios in
which it shows. None of them is in the production code: a store's mistake is a register with one method done wrong, an
engine's is one of its functions replaced while the search runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from onceward._core import (
    dead_holder_flow,
    finish_flow,
    operation_flow,
    record,
    sequence_flow,
    settle_inside_flow,
)
from onceward._core.errors import IllegalMove, OwnershipLost, Unrecorded
from onceward._core.flow import Flow, Put, Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.operation_flow import OperationRequest
from onceward._core.record import PutResult, Record, State, Write
from onceward.gate import atomic_line_async, straight_line_async
from onceward.gate.atomic_line_async import AsyncAtomicLine
from onceward.gate.straight_line_async import AsyncStraightLine
from onceward.runtime.flow_driver import UnusualAnswer
from onceward.testing.explorer.actor_flows import id_of
from onceward.testing.explorer.actors import SKEW
from onceward.testing.explorer.world import SECOND, Row, SimulatedStore, World

_HELD = ("settle", "release", "doubt", "renew")


class PlantedFault(NamedTuple):
    """A mistake, and who must notice it."""

    name: str
    story: str
    breaks: str
    """The invariant that must notice it."""
    scenarios: tuple[str, ...]
    """Where it shows."""
    register: type[SimulatedStore] = SimulatedStore
    replaces: str = ""
    """The function of the engine that is done wrong."""
    by: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    """Makes the wrong function from the right one."""
    module: ModuleType | type = record
    """Where that function lives."""


# --- mistakes of a store ---


class _UnfencedSettle(SimulatedStore):
    def matches(self, world: World, old: Row | None, put: Put) -> bool:
        """Whoever ends an operation is believed to hold it."""
        return put.at in _HELD or super().matches(world, old, put)


class _Resurrecting(SimulatedStore):
    def is_marked(self, world: World) -> bool:
        """Nobody looks for a mark."""
        return False


class _TokenOnlySwap(SimulatedStore):
    keeps_past = True

    def matches(self, world: World, old: Row | None, put: Put) -> bool:
        """Compare who owns it and its state, and not its version: a renewal in between goes unnoticed."""
        if old is None or put.expect is None:
            return super().matches(world, old, put)
        expected = [row.write for row in (*world.past, old) if row.write.version == put.expect]
        return any((one.token, one.state) == (old.write.token, old.write.state) for one in expected)


class _UpsertClaim(SimulatedStore):
    def matches(self, world: World, old: Row | None, put: Put) -> bool:
        """Insert or overwrite."""
        return put.expect is None or super().matches(world, old, put)


class _KeyRecomputed(SimulatedStore):
    def addressed(self, put: Put, changed: Any) -> Put:
        """Make the id anew from the request, which the function has changed meanwhile."""
        if not changed:
            return put
        return put._replace(write=put.write._replace(id=id_of("changed by the function")), expect=None)


class _FenceReused(SimulatedStore):
    def fence(self, world: World, old: Row | None, write: Write) -> int:
        """Count from one again whenever nobody holds it."""
        over_nothing = old is None or old.write.state == State.RELEASED
        return 1 if write.rise and over_nothing else write.fence


class _CallersClock(SimulatedStore):
    def read(self, row: Row, world: World, actor: int) -> Record:
        """Judge the time left by the clock of whoever asks."""
        ahead = int(SKEW * SECOND) * actor
        shown = row.read(world.now)
        return shown if shown.lease_left is None else shown._replace(lease_left=shown.lease_left - ahead)


class _DuplicateIdInBatch(SimulatedStore):
    def sent_together(self, queue: tuple[tuple[int, Put], ...]) -> tuple[tuple[int, Put], ...]:
        """Everything that waits, whatever it is about."""
        return queue

    def put_together(self, world: World, together: tuple[tuple[int, Put], ...]) -> list[tuple[World, PutResult]]:
        """Compare each with what stood there before the statement; all of them land."""
        done, before = [], world
        for actor, put in together:
            _, standing = self.put(before, put, actor)
            if standing.landed and standing.record is not None:
                write = put.write._replace(first_at=standing.record.first_at, settled_at=standing.record.settled_at)
                world = world.written(Row(write, standing.record.fence, world.now), actor)
            done.append((world, standing))
        return done


class _StaleSwapAnswer(SimulatedStore):
    keeps_past = True

    def refused(self, world: World, old: Row | None, put: Put, actor: int) -> PutResult:
        """Answer a refused swap from a snapshot taken before it: it still shows the version that was expected."""
        stale = [row for row in world.past if row.write.version == put.expect and row.write.id == put.write.id]
        return super().refused(world, stale[-1] if stale else old, put, actor)


class _UnjoinedRecord(SimulatedStore):
    def put(self, world: World, put: Put, actor: int, changed: Any = None) -> tuple[World, PutResult]:
        """Write on a connection of its own: the record commits without the caller's rows."""
        return super().put(world, put, -1, changed)


class _UnfencedInside(SimulatedStore):
    def matches(self, world: World, old: Row | None, put: Put) -> bool:
        """Settle inside a transaction without comparing anything."""
        return put.at == "inside" or super().matches(world, old, put)


class _NoConstraint(SimulatedStore):
    def matches(self, world: World, old: Row | None, put: Put) -> bool:
        """Insert a settled record whatever stands there: the table has no unique constraint."""
        return (put.at == "settle" and put.expect is None) or super().matches(world, old, put)


# --- mistakes of an engine ---


def _without_fingerprint(right: Callable[..., Write]) -> Callable[..., Write]:
    return lambda held, **ending: right(held, **ending)._replace(fingerprint=b"\1" + bytes(32))


def _without_lease(right: Callable[..., Any]) -> Callable[..., Any]:
    def decide(found: Record | None, claimant: Any) -> Any:
        lapsed = found is not None and found.lease_left is not None
        return right(found._replace(lease_left=0) if found is not None and lapsed else found, claimant)

    return decide


def _releasing(right: Callable[..., Write]) -> Callable[..., Write]:
    def leave_in_doubt(held: Record, *, version: bytes, error: bytes | None = None) -> Write:
        return right(held, version=version, error=error)._replace(state=State.RELEASED.value, doubt=0)

    return leave_in_doubt


def _without_doubt(right: Callable[..., Write]) -> Callable[..., Write]:
    return lambda held, **ending: right(held._replace(doubt=0), **ending)


def _skipping(right: Callable[..., Flow[int]]) -> Callable[..., Flow[int]]:
    def expected(ask: OperationRequest, scope: str, name: str) -> Flow[int]:
        return (yield from right(ask, scope, name)) + 1

    return expected


def _sure_of_nothing(right: Callable[..., bool]) -> Callable[..., bool]:
    return lambda operation, ended: False


def _believing_the_function(right: Callable[..., Flow[Any]]) -> Callable[..., Flow[Any]]:
    """Whoever settled is believed to have committed."""

    def not_committed(
        ask: OperationRequest, operation: Operation, held: Record, version: bytes, ended: Any
    ) -> Flow[Any]:
        if operation.inside is not None and operation.inside.called and isinstance(ended, Returned):
            return Outcome(ended.value, False, held.first_at, held.attempt, held.fence)
        return (yield from right(ask, operation, held, version, ended))

    return not_committed


def _taking_renewals_for_racers(right: Callable[..., Flow[None]]) -> Callable[..., Flow[None]]:
    """Put once, and take a record that has moved for somebody else's."""

    def put_inside(ask: OperationRequest, held: Record, kept: Any, chance: bytes) -> Flow[None]:
        flow = right(ask, held, kept, chance)
        standing = yield next(flow)
        if not standing.landed:
            raise IllegalMove("the record has moved")

    return put_inside


def _claiming_that_it_ran(right: Callable[..., Flow[None]]) -> Callable[..., Flow[None]]:
    def take_back(ask: OperationRequest, write: Write, version: bytes) -> Flow[None]:
        yield from right(ask, write, version)
        raise Unrecorded

    return take_back


def _taking_it_for_overtaken(right: Callable[..., Flow[Any]]) -> Callable[..., Flow[Any]]:
    def within_lease(ask: OperationRequest, held: Record, operation: Operation | None) -> Flow[Any]:
        yield from right(ask, held, operation)
        raise OwnershipLost

    return within_lease


def _burying_alive(right: Callable[..., Flow[bool | None]]) -> Callable[..., Flow[bool | None]]:
    """Whoever named itself is taken for dead."""

    def lives(found: Record) -> Flow[bool | None]:
        alive = yield from right(found)
        return None if alive is None else False

    return lives


def _never_short(right: Callable[..., bool]) -> Callable[..., bool]:
    return lambda held, request: False


def _replaying_whatever_stands_there(right: Callable[..., Any]) -> Callable[..., Any]:
    async def claims(line: AsyncStraightLine) -> Record:
        try:
            return await right(line)  # type: ignore[no-any-return]
        except UnusualAnswer as unusual:
            if record.is_settled(unusual.answer.record):
                return unusual.answer.record  # type: ignore[no-any-return]
            raise

    return claims


def _settling_what_it_claimed(right: Callable[..., Any]) -> Callable[..., Any]:
    """A settle that does not land is taken for one that did."""

    async def settles(line: AsyncStraightLine, ended: Returned | Raised) -> Any:
        try:
            return await right(line, ended)
        except UnusualAnswer as unusual:
            if not isinstance(unusual.answer, PutResult) or unusual.answer.record is None:
                raise
            kept, _ = operation_flow.settling(line._prepared.request, line._answers[1].record, b"", ended.value)  # type: ignore[union-attr]
            return kept, unusual.answer.record

    return settles


def _replaying_whatever_was_found(right: Callable[..., Any]) -> Callable[..., Any]:
    async def claims(line: AsyncAtomicLine) -> Any:
        try:
            return await right(line)
        except UnusualAnswer as unusual:
            found = unusual.answer.record if isinstance(unusual.answer, PutResult) else unusual.answer
            if isinstance(found, Record) and record.is_settled(found):
                return await line._replay(unusual.answer, record.Replay(found))
            raise

    return claims


def _believing_in_the_commit(right: Callable[..., Any]) -> Callable[..., Any]:
    """A settle that does not land is taken for one that was committed."""

    async def settles(line: AsyncAtomicLine, ended: Returned | Raised) -> Any:
        try:
            return await right(line, ended)
        except UnusualAnswer as unusual:
            if isinstance(unusual.answer, PutResult):
                return Outcome(ended.value, False, 0, 1, 0)  # type: ignore[union-attr]
            raise

    return settles


def _forgetting_the_last_answer(right: Callable[..., Flow[Any]]) -> Callable[..., Flow[Any]]:
    return lambda flow, answers, end: right(flow, answers[:1], end)


def _always(right: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *anything: True


def _believing(right: Callable[..., bool]) -> Callable[..., bool]:
    def spared(operation: Operation, error: BaseException, harmless: Any, *, marked: bool, classifier: Any) -> bool:
        proved = right(operation, error, harmless, marked=marked, classifier=classifier)
        return proved or classifier.judge(error).happened is False

    return spared


_FAULTS = (
    PlantedFault(
        "unfenced-settle",
        "a settle is written without comparing anything",
        "overtaken-changes-nothing",
        ("keyed", "repeatable"),
        _UnfencedSettle,
    ),
    PlantedFault(
        "token-only-swap",
        "a swap compares token and state, not the version",
        "one-live-lease",
        ("renewal",),
        _TokenOnlySwap,
    ),
    PlantedFault("upsert-claim", "a claim overwrites an existing record", "one-live-lease", ("blind",), _UpsertClaim),
    PlantedFault(
        "key-recomputed",
        "the ending is written to an id made from a request that has changed",
        "acknowledged-stands",
        ("mutation",),
        _KeyRecomputed,
    ),
    PlantedFault("fence-reused", "fences start at one again", "fence-rises", ("release", "purge"), _FenceReused),
    PlantedFault(
        "callers-clock", "a lease is judged by the caller's clock", "one-live-lease", ("keyed",), _CallersClock
    ),
    PlantedFault(
        "duplicate-id-in-batch",
        "two writes for one key in one statement both land",
        "one-live-lease",
        ("batch", "batch-takeover"),
        _DuplicateIdInBatch,
    ),
    PlantedFault(
        "stale-swap-answer",
        "a refused swap shows the version that was expected",
        "never-stuck",
        ("repeatable",),
        _StaleSwapAnswer,
    ),
    PlantedFault(
        "dropped-fingerprint",
        "a settle drops the fingerprint",
        "fingerprint-stays",
        ("blind", "blind-other"),
        replaces="settle",
        by=_without_fingerprint,
    ),
    PlantedFault(
        "lease-ignored",
        "a live lease is taken for a lapsed one",
        "one-live-lease",
        ("repeatable", "keyed"),
        replaces="decide",
        by=_without_lease,
    ),
    PlantedFault(
        "release-on-unknown",
        "an unknown failure releases the key",
        "doubt-never-reruns",
        ("fails-unknown", "fails-unknown-idle"),
        replaces="leave_in_doubt",
        by=_releasing,
    ),
    PlantedFault(
        "doubt-not-sticky",
        "a rejection clears an earlier attempt's doubt",
        "doubt-is-sticky",
        ("sticky-keyed",),
        replaces="release",
        by=_without_doubt,
    ),
    PlantedFault(
        "unmarked-verdict",
        "an error's verdict is believed although nothing says which call it is about",
        "one-effect",
        ("fails-mail-refused",),
        replaces="spared",
        by=_believing,
        module=Operation,
    ),
    PlantedFault(
        "unjoined-record",
        "in atomic mode the record is written outside the caller's transaction",
        "atomic-together",
        ("atomic-fails",),
        _UnjoinedRecord,
    ),
    PlantedFault(
        "unfenced-inside",
        "a function settles inside its transaction although it was overtaken",
        "overtaken-changes-nothing",
        ("inside", "inside-renewal"),
        _UnfencedInside,
    ),
    PlantedFault(
        "unsettled-released",
        "an operation whose function never settled it is released",
        "one-effect",
        ("inside-forgets",),
        replaces="_may_stand_alone",
        by=_sure_of_nothing,
        module=settle_inside_flow,
    ),
    PlantedFault(
        "uncommitted-believed",
        "a result that was settled inside a transaction is returned without checking that it was committed",
        "acknowledged-stands",
        ("inside-undoes",),
        replaces="_not_committed",
        by=_believing_the_function,
        module=settle_inside_flow,
    ),
    PlantedFault(
        "renewal-overtakes",
        "the caller's own renewal is taken for another caller",
        "never-stuck",
        ("inside-renewal",),
        replaces="_put_inside",
        by=_taking_renewals_for_racers,
        module=settle_inside_flow,
    ),
    PlantedFault(
        "forgotten-overtaken",
        "a claim that the store forgot is taken for one that another caller took over",
        "overtaken-is-told",
        ("forgotten-blind",),
        replaces="within_lease",
        by=_taking_it_for_overtaken,
        module=finish_flow,
    ),
    PlantedFault(
        "resurrected",
        "what the store forgot is put back although it was erased",
        "erased-stays-erased",
        ("erased", "erased-forgotten"),
        _Resurrecting,
    ),
    PlantedFault(
        "no-constraint",
        "a key that is written last is not checked against the existing one",
        "one-effect",
        ("last", "last-serial", "last-mixed"),
        _NoConstraint,
    ),
    PlantedFault(
        "gap-accepted",
        "a sequence takes a number before the one that precedes it",
        "in-order",
        ("sequence-gap",),
        replaces="_expected",
        by=_skipping,
        module=sequence_flow,
    ),
    PlantedFault(
        "unrun-unrecorded",
        "a claim whose response was lost is reported as if its function had run",
        "unrecorded-ran",
        ("blind-lost",),
        replaces="_take_back",
        by=_claiming_that_it_ran,
        module=operation_flow,
    ),
    PlantedFault(
        "holder-buried-alive",
        "a living holder is taken for dead",
        "one-live-lease",
        ("holder-repeatable", "holder-keyed"),
        replaces="lives",
        by=_burying_alive,
        module=dead_holder_flow,
    ),
    PlantedFault(
        "line-runs-late",
        "the straight line runs the function although most of its lease has passed",
        "both-ways-agree",
        ("slow-claim",),
        replaces="is_short",
        by=_never_short,
        module=straight_line_async,
    ),
    PlantedFault(
        "line-replays-anything",
        "the straight line replays a result without checking that it may",
        "both-ways-agree",
        ("purge",),
        replaces="_claim",
        by=_replaying_whatever_stands_there,
        module=AsyncStraightLine,
    ),
    PlantedFault(
        "line-settles-nothing",
        "the straight line takes a settle that did not land for a successful one",
        "both-ways-agree",
        ("blind-lost", "renewal-lost", "blind"),
        replaces="_settle",
        by=_settling_what_it_claimed,
        module=AsyncStraightLine,
    ),
    PlantedFault(
        "line-leads-astray",
        "the flow that takes over is not told of the claim that landed",
        "both-ways-agree",
        ("remembered",),
        replaces="rest_after",
        by=_forgetting_the_last_answer,
        module=straight_line_async,
    ),
    PlantedFault(
        "atomic-line-replays-all",
        "the straight line of atomic mode replays a result without checking that it may",
        "both-ways-agree",
        ("last-other",),
        replaces="_claim",
        by=_replaying_whatever_was_found,
        module=AsyncAtomicLine,
    ),
    PlantedFault(
        "atomic-line-uncommitted",
        "the straight line of atomic mode takes a settle that was rolled back for a committed one",
        "both-ways-agree",
        ("last", "last-serial"),
        replaces="_settle",
        by=_believing_in_the_commit,
        module=AsyncAtomicLine,
    ),
    PlantedFault(
        "atomic-line-astray",
        "in atomic mode the flow that takes over is not told that its transaction was opened",
        "both-ways-agree",
        ("atomic-fails",),
        replaces="rest_after",
        by=_forgetting_the_last_answer,
        module=atomic_line_async,
    ),
    PlantedFault(
        "probed-at-once",
        "a probe is asked as soon as the holder is dead, while its request may still be on its way",
        "one-live-lease",
        ("holder-probed",),
        replaces="_passes_on",
        by=_always,
    ),
)

FAULTS: dict[str, PlantedFault] = {fault.name: fault for fault in _FAULTS}
"""Mistakes that can be planted, each of which the explorer must find."""


@contextmanager
def plant(fault: PlantedFault | None) -> Iterator[SimulatedStore]:
    """The register to search over; while this lasts, the engine makes the fault's mistake."""
    if fault is None or fault.by is None:
        yield SimulatedStore() if fault is None else fault.register()
        return
    right = getattr(fault.module, fault.replaces)
    setattr(fault.module, fault.replaces, fault.by(right))
    try:
        yield fault.register()
    finally:
        setattr(fault.module, fault.replaces, right)
