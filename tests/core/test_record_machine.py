"""The life of a key: what is decided when it shows up again, which moves it allows, and what every move keeps."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward._core import operation_flow, record
from onceward._core.errors import AlreadySettled, IllegalMove, SchemaMismatch
from onceward._core.flow import (
    CallFunction,
    Effect,
    Flow,
    Load,
    Monotonic,
    Pause,
    Put,
    Raised,
    RandomBytes,
    Returned,
)
from onceward._core.holders import Process, encode_process, holder_of, stamp_holder
from onceward._core.operation import Operation, Outcome
from onceward._core.operation_flow import OperationRequest
from onceward._core.record import NOW, Claimant, Record, Refuse, Replay, Start, Wait, Write
from onceward._core.record_types import peek_of
from onceward._core.terms import DEFAULT_TERMS
from onceward.runtime.flow_driver import run
from onceward.stores.memory import MemoryStore
from onceward.testing.clock import StillEnvironment
from onceward.testing.explorer.world import SECOND, SimulatedStore, World

SAME, OTHER = b"\1" + bytes(32), b"\1" + b"x" * 32
TOKEN, NEW_TOKEN, VERSION, NEW_VERSION = b"t" * 16, b"T" * 16, b"v" * 16, b"V" * 16
LEASE, KEYED_FOR = 60 * SECOND, 1_000 * SECOND
GUARANTEES = ("atomic", "repeatable", "keyed", "probed", "blind")

CLAIMANT = Claimant(b"i" * 32, "key", "test:acme", "k", "charge", b"f" * 32, "blind", SAME, LEASE, KEYED_FOR, False)

PROCESS = encode_process(Process("web-1", b"machine!", b"the boot", b"the pids", 4711, 1, 1))
HELD_BY = stamp_holder(PROCESS, TOKEN, by_lease=False)

CLAIMED = Record(
    id=CLAIMANT.id,
    kind="key",
    scope="test:acme",
    key="k",
    operation="charge",
    family=CLAIMANT.family,
    state="claimed",
    guarantee="blind",
    doubt=0,
    fingerprint=SAME,
    version=VERSION,
    token=TOKEN,
    fence=7_000,
    attempt=3,
    first_at=5_000,
    settled_at=None,
    age=SECOND,
    lease_left=LEASE,
    replay_left=None,
    forget_left=None,
    codec=None,
    result=None,
    error=None,
)
LAPSED = CLAIMED._replace(lease_left=0)
IN_DOUBT = CLAIMED._replace(state="in_doubt", doubt=1, lease_left=None)
RELEASED = CLAIMED._replace(state="released", lease_left=None, forget_left=SECOND)
SETTLED = CLAIMED._replace(
    state="settled",
    lease_left=None,
    settled_at=6_000,
    replay_left=SECOND,
    forget_left=2 * SECOND,
    codec="json/1",
    result=b"1",
)
EXPIRED = SETTLED._replace(replay_left=0)
FORGOTTEN = SETTLED._replace(replay_left=-SECOND, forget_left=0)


# --- what is decided ---

# Read from the top: the first line that fits decides. A dot fits everything; "unsure" is claimed or in doubt, and the
# lease of a "dead" one lasts although its holder is proved dead.
TABLE = """
life       request  state     lease   stored      doubt  kept      asked as  age    probe  | answer
forgotten  .        .         .       .           .      .         .         .      .      | start
.          other    .         .       .           .      .         .         .      .      | refuse: reused
expired    same     settled   .       .           .      .         .         .      .      | refuse: expired
lasting    same     settled   .       .           .      nothing   .         .      .      | refuse: not_replayable
lasting    same     settled   .       .           .      result    .         .      .      | replay
lasting    same     settled   .       .           .      failure   .         .      .      | replay
.          same     released  .       .           .      .         .         .      .      | start
.          same     claimed   live    .           .      .         .         .      .      | wait
.          same     claimed   dead    atomic      no     .         .         .      .      | start
.          same     claimed   dead    repeatable  no     .         .         .      .      | start
.          same     claimed   dead    probed      .      .         .         .      .      | wait
.          same     claimed   dead    .           .      .         .         .      yes    | wait
.          same     claimed   dead    keyed       .      .         keyed     young  no     | start, in doubt
.          same     claimed   dead    .           .      .         .         .      no     | refuse: in_doubt
.          same     claimed   lapsed  atomic      no     .         .         .      .      | start
.          same     claimed   lapsed  repeatable  no     .         .         .      .      | start
.          same     unsure    lapsed  .           .      .         .         .      yes    | start, in doubt, probe
.          same     unsure    lapsed  keyed       .      .         keyed     young  no     | start, in doubt
.          same     unsure    lapsed  .           .      .         .         .      no     | refuse: in_doubt
"""
COLUMNS = ("life", "request", "state", "lease", "stored", "doubt", "kept", "asked as", "age", "probe")
VALUES: dict[str, tuple[str, ...]] = {
    "life": ("lasting", "expired", "forgotten"),
    "request": ("same", "other"),
    "state": ("claimed", "settled", "released", "in_doubt"),
    "lease": ("live", "lapsed", "dead"),
    "stored": GUARANTEES,
    "doubt": ("no", "yes"),
    "kept": ("result", "failure", "nothing"),
    "asked as": GUARANTEES,
    "age": ("young", "old"),
    "probe": ("no", "yes"),
}


class Line(NamedTuple):
    """One line of the table."""

    cells: tuple[str, ...]
    answer: str

    def fits(self, case: dict[str, str]) -> bool:
        return all(
            cell in (".", case[column]) or (cell == "unsure" and case["state"] in ("claimed", "in_doubt"))
            for column, cell in zip(COLUMNS, self.cells, strict=True)
        )


def lines() -> list[Line]:
    found = []
    for text in TABLE.strip().splitlines()[1:]:
        cells, _, answer = text.partition("|")
        found.append(Line(tuple(cells.split()), answer.strip()))
    return found


def cases() -> Iterator[dict[str, str]]:
    """Every combination that can stand in a store: only a claim has a lease, and in doubt has the doubt."""
    for values in product(*(VALUES[column] for column in COLUMNS)):
        case = dict(zip(COLUMNS, values, strict=True))
        if case["state"] != "claimed" and case["lease"] != "lapsed":
            continue
        if case["state"] == "in_doubt" and case["doubt"] == "no":
            continue
        yield case


def found_in(case: dict[str, str]) -> Record:
    """The record of a case."""
    return CLAIMED._replace(
        state=case["state"],
        guarantee=case["stored"],
        doubt=int(case["doubt"] == "yes"),
        fingerprint=SAME if case["request"] == "same" else OTHER,
        lease_left=1 if case["lease"] != "lapsed" else 0 if case["state"] == "claimed" else None,
        replay_left=1 if case["life"] == "lasting" else 0,
        forget_left=0 if case["life"] == "forgotten" else 1,
        age=KEYED_FOR - LEASE - 1 if case["age"] == "young" else KEYED_FOR - LEASE,
        codec="json/1" if case["kept"] == "result" else None,
        result=b"0" if case["kept"] == "result" else None,
        error=b"{}" if case["kept"] == "failure" else None,
        holder=HELD_BY,
    )


def told(decision: record.Decision) -> str:
    """A decision in the words of the table."""
    match decision:
        case Start():
            return "start" + ", in doubt" * decision.doubt + ", probe" * decision.probe
        case Refuse(why, _):
            return f"refuse: {why.value}"
        case Replay():
            return "replay"
        case Wait():
            return "wait"


class TestDeciding:
    """`decide`: what happens when a pair of scope and key shows up again."""

    def test_every_case_is_decided_as_the_table_says(self) -> None:
        """
        All combinations of what may stand there and who may ask, against a table that was written by hand.
        """
        table, wrong, count = lines(), [], 0
        for case in cases():
            count += 1
            line = next(line for line in table if line.fits(case))
            claimant = CLAIMANT._replace(guarantee=case["asked as"], can_probe=case["probe"] == "yes")
            answer = told(record.decide(found_in(case), claimant, died=case["lease"] == "dead"))
            if answer != line.answer:
                wrong.append((case, line.answer, answer))

        assert wrong[:5] == []
        assert count == 11 * 1_800  # Eleven kinds of row, times everything else.

    @pytest.mark.parametrize("side", ["holder", "claimant"])
    def test_by_lease_alone_a_dead_holder_is_as_good_as_a_living_one(self, side: str) -> None:
        """
        In all of these cases, whoever of the two has said takeover="lease"; and if the holder cannot be read.
        """
        wrong = []
        for case in cases():
            if case["lease"] != "dead":
                continue
            claimant = CLAIMANT._replace(guarantee=case["asked as"], can_probe=case["probe"] == "yes")
            found = found_in(case)._replace(holder=stamp_holder(PROCESS, TOKEN, by_lease=side == "holder"))
            named = claimant._replace(by_lease=side == "claimant")
            nameless = found._replace(holder=None)
            if any(
                record.decide(one, named, died=True)[:2] != record.decide(one, named)[:2] for one in (found, nameless)
            ):
                wrong.append(case)

        assert wrong[:5] == []

    def test_a_quick_look_replays_just_what_is_to_be_replayed(self) -> None:
        """
        In all of these cases a glance says replay if and only if the machine does.
        """
        apart = []
        for case in cases():
            found = found_in(case)
            if found is None:
                continue
            claimant = CLAIMANT._replace(guarantee=case["asked as"], can_probe=case["probe"] == "yes")
            decided = isinstance(record.decide(found, claimant), Replay)
            if decided != record.replays(peek_of(found), claimant.fingerprint):
                apart.append(case)

        assert apart[:5] == []

    def test_every_line_of_the_table_decides_something(self) -> None:
        """
        A line that no case reaches would be a rule that nobody checks.
        """
        table = lines()
        reached = {next(number for number, line in enumerate(table) if line.fits(case)) for case in cases()}

        assert set(range(len(table))) == reached

    def test_where_nothing_stands_it_starts(self) -> None:
        """
        Over nothing, with no doubt and no probe.
        """
        assert Start(None, doubt=False, probe=False) == record.decide(None, CLAIMANT)

    @pytest.mark.parametrize("found", [RELEASED, FORGOTTEN, LAPSED._replace(guarantee="repeatable")])
    def test_what_starts_is_put_over_what_was_found(self, found: Record) -> None:
        """
        A start names the record that it replaces: its version is what the swap compares.
        """
        assert Start(found) == record.decide(found, CLAIMANT)

    @pytest.mark.parametrize(
        ("found", "answer"),
        [
            (CLAIMED._replace(lease_left=1), "wait"),
            (CLAIMED._replace(lease_left=0), "refuse: in_doubt"),
            (CLAIMED._replace(lease_left=-1), "refuse: in_doubt"),
            (CLAIMED._replace(lease_left=None), "refuse: in_doubt"),
            (SETTLED._replace(replay_left=1), "replay"),
            (SETTLED._replace(replay_left=0), "refuse: expired"),
            (SETTLED._replace(replay_left=None), "replay"),
            (EXPIRED._replace(forget_left=1), "refuse: expired"),
            (EXPIRED._replace(forget_left=0), "start"),
            (EXPIRED._replace(forget_left=None), "refuse: expired"),
        ],
    )
    def test_a_moment_belongs_to_one_side(self, found: Record, answer: str) -> None:
        """
        With nothing left, a lease has lapsed, an answer has expired, a record is forgotten; a microsecond before, not.
        """
        assert answer == told(record.decide(found, CLAIMANT))

    def test_a_wait_says_for_how_long(self) -> None:
        """
        What is left of the holder's lease, as the store measured it.
        """
        assert Wait(CLAIMED, LEASE) == record.decide(CLAIMED, CLAIMANT)

    @pytest.mark.parametrize(
        "found",
        [
            CLAIMED._replace(state="archived"),
            CLAIMED._replace(fingerprint=b"\4" + bytes(32)),
            CLAIMED._replace(fingerprint=b""),
        ],
        ids=["state", "scheme", "no fingerprint"],
    )
    def test_what_a_later_version_wrote_is_refused(self, found: Record) -> None:
        """
        An unknown state or fingerprint scheme is an error, and neither run, replayed nor called a reuse.
        """
        with pytest.raises(SchemaMismatch, match="newer version"):
            record.decide(found, CLAIMANT)


# --- the moves ---

MOVES: dict[str, Callable[[Record], Write]] = {
    "settle": lambda held: record.settle(held, version=NEW_VERSION, replay=1, forget=2, codec="json/1", result=b"null"),
    "settle without an answer": lambda held: record.settle(held, version=NEW_VERSION, replay=1, forget=2),
    "settle a failure": lambda held: record.settle(held, version=NEW_VERSION, replay=1, forget=2, error=b"{}"),
    "release": lambda held: record.release(held, version=NEW_VERSION, forget=2),
    "leave in doubt": lambda held: record.leave_in_doubt(held, version=NEW_VERSION, error=b"{}"),
    "abandon": lambda found: record.abandon(found, token=NEW_TOKEN, version=NEW_VERSION),
    "renew": lambda held: record.renew(held, version=NEW_VERSION, lease=LEASE),
    "reconcile: it happened": lambda found: record.reconcile(
        found, happened=True, token=NEW_TOKEN, version=NEW_VERSION, replay=1, forget=2, codec="json/1", result=b"1"
    ),
    "reconcile: it did not": lambda found: record.reconcile(
        found, happened=False, token=NEW_TOKEN, version=NEW_VERSION, forget=2
    ),
}
RECORDS = {
    "claimed": CLAIMED,
    "claimed, with doubt": CLAIMED._replace(doubt=1),
    "lapsed": LAPSED,
    "lapsed, with doubt": LAPSED._replace(doubt=1),
    "in doubt": IN_DOUBT,
    "released": RELEASED,
    "settled": SETTLED,
    "expired": EXPIRED,
}

# What each move makes of each record; a move that is not named here is illegal.
LEGAL = {
    ("settle", "claimed"): "settled",
    ("settle", "claimed, with doubt"): "settled",
    ("settle", "lapsed"): "settled",
    ("settle", "lapsed, with doubt"): "settled",
    ("settle without an answer", "claimed"): "settled",
    ("settle without an answer", "claimed, with doubt"): "settled",
    ("settle without an answer", "lapsed"): "settled",
    ("settle without an answer", "lapsed, with doubt"): "settled",
    ("settle a failure", "claimed"): "settled",
    ("settle a failure", "claimed, with doubt"): "settled",
    ("settle a failure", "lapsed"): "settled",
    ("settle a failure", "lapsed, with doubt"): "settled",
    ("release", "claimed"): "released",
    ("release", "claimed, with doubt"): "in_doubt",
    ("release", "lapsed"): "released",
    ("release", "lapsed, with doubt"): "in_doubt",
    ("leave in doubt", "claimed"): "in_doubt",
    ("leave in doubt", "claimed, with doubt"): "in_doubt",
    ("leave in doubt", "lapsed"): "in_doubt",
    ("leave in doubt", "lapsed, with doubt"): "in_doubt",
    ("abandon", "claimed"): "in_doubt",
    ("abandon", "claimed, with doubt"): "in_doubt",
    ("abandon", "lapsed"): "in_doubt",
    ("abandon", "lapsed, with doubt"): "in_doubt",
    ("renew", "claimed"): "claimed",
    ("renew", "claimed, with doubt"): "claimed",
    ("renew", "lapsed"): "claimed",
    ("renew", "lapsed, with doubt"): "claimed",
    ("reconcile: it happened", "lapsed"): "settled",
    ("reconcile: it happened", "lapsed, with doubt"): "settled",
    ("reconcile: it happened", "in doubt"): "settled",
    ("reconcile: it did not", "lapsed"): "released",
    ("reconcile: it did not", "lapsed, with doubt"): "released",
    ("reconcile: it did not", "in doubt"): "released",
}
ILLEGAL = sorted(set(product(MOVES, RECORDS)) - set(LEGAL))


class TestMoving:
    """Each move returns the row that follows, or raises."""

    @pytest.mark.parametrize(("move", "name"), sorted(LEGAL))
    def test_a_legal_move_leads_where_the_list_says(self, move: str, name: str) -> None:
        """
        From each record that allows it, to one state.
        """
        assert LEGAL[move, name] == MOVES[move](RECORDS[name]).state

    @pytest.mark.parametrize(("move", "name"), ILLEGAL)
    def test_an_illegal_move_raises_and_writes_nothing(self, move: str, name: str) -> None:
        """
        There is no row to put, and the record is what it was.
        """
        found = RECORDS[name]
        before, written = tuple(found), None
        with pytest.raises(IllegalMove):
            written = MOVES[move](found)

        assert written is None
        assert before == tuple(found)

    @pytest.mark.parametrize(("move", "name"), sorted(LEGAL))
    def test_every_move_keeps_what_must_be_kept(self, move: str, name: str) -> None:
        """
        Identity, fingerprint, guarantee, fence, attempt and first instant stay; the version is new.
        """
        found, write = RECORDS[name], MOVES[move](RECORDS[name])
        kept = ("id", "kind", "scope", "key", "operation", "family", "guarantee", "fingerprint", "fence", "attempt")

        assert [getattr(found, field) for field in kept] == [getattr(write, field) for field in kept]
        assert found.first_at == write.first_at
        assert (write.version, write.rise) == (NEW_VERSION, False)

    @pytest.mark.parametrize(("move", "name"), sorted(LEGAL))
    def test_what_others_decide_changes_the_token(self, move: str, name: str) -> None:
        """
        So that whoever held it is overtaken: by a person's decision, or by who finds it dead. Nothing else here does.
        """
        expected = NEW_TOKEN if move.startswith(("reconcile", "abandon")) else TOKEN

        assert MOVES[move](RECORDS[name]).token == expected

    @pytest.mark.parametrize(("move", "name"), sorted(LEGAL))
    def test_doubt_is_cleared_by_a_settle_or_a_reconcile_alone(self, move: str, name: str) -> None:
        """
        A release with doubt goes back into doubt; a renewal carries it along.
        """
        clears = move.startswith(("settle", "reconcile"))
        doubtful = bool(RECORDS[name].doubt) or move in ("leave in doubt", "abandon")

        assert int(doubtful and not clears) == MOVES[move](RECORDS[name]).doubt

    @pytest.mark.parametrize(("move", "name"), sorted(LEGAL))
    def test_only_a_claim_has_a_lease(self, move: str, name: str) -> None:
        """
        Whatever ends a claim ends its lease; a renewal gives a full one.
        """
        assert (LEASE if move == "renew" else None) == MOVES[move](RECORDS[name]).lease

    @pytest.mark.parametrize(("move", "name"), sorted(LEGAL))
    def test_what_is_settled_says_when(self, move: str, name: str) -> None:
        """
        At the store's clock at the moment of writing; nothing else is settled at all.
        """
        write = MOVES[move](RECORDS[name])

        assert (NOW if write.state == "settled" else None) == write.settled_at

    @pytest.mark.parametrize(("move", "name"), sorted(LEGAL))
    def test_a_record_names_its_holder_until_it_has_ended_well(self, move: str, name: str) -> None:
        """
        While somebody runs it, and while nobody knows what became of it; whoever put it there.
        """
        found = RECORDS[name]._replace(holder=HELD_BY)
        write = MOVES[move](found)
        landed = record.record_from_write(write, now=1, fence=1)

        assert (write.state in ("claimed", "in_doubt")) == (holder_of(landed) == holder_of(found))
        assert (write.state in ("claimed", "in_doubt")) == (write.holder is not None)

    def test_a_live_claim_of_a_dead_holder_can_be_reconciled(self) -> None:
        """
        If its death is proved, and nobody said that its lease is to be waited for.
        """
        found = CLAIMED._replace(holder=HELD_BY)
        decided = record.reconcile(found, happened=False, token=NEW_TOKEN, version=NEW_VERSION, died=True)
        by_lease = found._replace(holder=stamp_holder(PROCESS, TOKEN, by_lease=True))

        assert (decided.state, decided.token) == ("released", NEW_TOKEN)
        with pytest.raises(IllegalMove):
            record.reconcile(by_lease, happened=False, token=NEW_TOKEN, version=NEW_VERSION, died=True)

    def test_a_live_claim_cannot_be_reconciled_yet(self) -> None:
        """
        The error says when it can.
        """
        with pytest.raises(IllegalMove) as refused:
            MOVES["reconcile: it did not"](CLAIMED._replace(lease_left=1_500_000))

        assert refused.value.retry_after_seconds == 1.5

    def test_a_relaxed_settle_says_so(self) -> None:
        """
        And no other write does.
        """
        relaxed = record.settle(CLAIMED, version=NEW_VERSION, replay=1, forget=2, relaxed=True)

        assert relaxed.relaxed
        assert [name for name, move in MOVES.items() if move(LAPSED).relaxed] == []


class TestSettlingUnclaimed:
    """`settle_unclaimed`: claimed and settled by one write, for effects in the same transaction."""

    ATOMIC = CLAIMANT._replace(guarantee="atomic")

    def settled(self, claimant: Claimant, start: Start) -> Write:
        ending = {"replay": 1, "forget": 2, "codec": "json/1", "result": b"1"}
        return record.settle_unclaimed(claimant, start, token=NEW_TOKEN, version=NEW_VERSION, **ending)  # type: ignore[arg-type]

    @pytest.mark.parametrize("over", [RELEASED, LAPSED, FORGOTTEN, None])
    def test_it_is_the_claim_and_its_ending_in_one(self, over: Record | None) -> None:
        """
        Fence, attempt and identity as a claim has them; settled now, with an answer and no lease.
        """
        claimed = record.claim(self.ATOMIC, Start(over), token=NEW_TOKEN, version=NEW_VERSION)
        write = self.settled(self.ATOMIC, Start(over))
        ending = {"state": "settled", "settled_at": NOW, "lease": None, "replay": 1, "forget": 2}

        assert claimed._replace(**ending, codec="json/1", result=b"1") == write

    @pytest.mark.parametrize("start", [Start(IN_DOUBT, doubt=True), Start(IN_DOUBT, probe=True)])
    def test_it_does_not_clear_doubt(self, start: Start) -> None:
        """
        What an earlier attempt may have done is not settled by somebody who has not asked.
        """
        with pytest.raises(IllegalMove):
            self.settled(self.ATOMIC, start)

    @pytest.mark.parametrize("guarantee", ["repeatable", "keyed", "probed", "blind"])
    def test_no_other_effect_may_run_before_its_key_is_written(self, guarantee: str) -> None:
        """
        Two callers would have it twice before either knew of the other.
        """
        with pytest.raises(IllegalMove):
            self.settled(CLAIMANT._replace(guarantee=guarantee), Start(None))


class TestClaiming:
    """`claim`: absent, released, forgotten or lapsed becomes claimed."""

    def claimed(self, start: Start) -> Write:
        return record.claim(CLAIMANT, start, token=NEW_TOKEN, version=NEW_VERSION)

    def test_over_nothing_it_is_the_first_attempt(self) -> None:
        """
        Attempt 1, from now, with a lease and without doubt.
        """
        write = self.claimed(Start(None))

        assert (write.state, write.attempt, write.first_at, write.lease, write.doubt) == ("claimed", 1, NOW, LEASE, 0)
        assert (write.token, write.version, write.fingerprint) == (NEW_TOKEN, NEW_VERSION, SAME)

    @pytest.mark.parametrize("over", [RELEASED, LAPSED, IN_DOUBT, FORGOTTEN, None])
    def test_the_fence_rises(self, over: Record | None) -> None:
        """
        Above the one that stands there, and the store is told to raise it above its clock and what it has purged.
        """
        write = self.claimed(Start(over))

        assert write.rise
        assert (1 if over is None else over.fence + 1) == write.fence

    @pytest.mark.parametrize(("over", "attempt"), [(RELEASED, 4), (LAPSED, 4), (IN_DOUBT, 4), (FORGOTTEN, 1)])
    def test_attempts_are_counted_until_the_record_is_forgotten(self, over: Record, attempt: int) -> None:
        """
        The count goes on over a released or lapsed record, and begins again over a forgotten one.
        """
        assert attempt == self.claimed(Start(over)).attempt

    def test_the_first_instant_is_kept_while_there_is_doubt(self) -> None:
        """
        A keyed downstream counts its time from the first send that may have arrived.
        """
        assert IN_DOUBT.first_at == self.claimed(Start(IN_DOUBT, doubt=True)).first_at
        assert self.claimed(Start(RELEASED)).first_at == NOW

    def test_doubt_is_carried_into_the_claim(self) -> None:
        """
        So that a release of it cannot forget what an earlier attempt may have done.
        """
        assert self.claimed(Start(IN_DOUBT, doubt=True)).doubt == 1

    def test_nothing_of_an_earlier_ending_is_left(self) -> None:
        """
        No answer, no failure, no retention: it is being run.
        """
        write = self.claimed(Start(FORGOTTEN))

        assert [write.settled_at, write.replay, write.forget, write.codec, write.result, write.error] == [None] * 6


class TestShowing:
    """States in the words of the glossary, with what is derived."""

    @pytest.mark.parametrize(
        ("found", "shown", "doubtful"),
        [
            (CLAIMED, "claimed", False),
            (CLAIMED._replace(doubt=1), "claimed", False),
            (LAPSED, "in_doubt", True),
            (LAPSED._replace(guarantee="keyed"), "in_doubt", True),
            (LAPSED._replace(guarantee="repeatable"), "lapsed", False),
            (LAPSED._replace(guarantee="atomic"), "lapsed", False),
            (LAPSED._replace(guarantee="repeatable", doubt=1), "in_doubt", True),
            (IN_DOUBT, "in_doubt", True),
            (RELEASED, "released", False),
            (SETTLED, "settled", False),
            (EXPIRED, "expired", False),
            (FORGOTTEN, "absent", False),
        ],
    )
    def test_a_record_is_shown_as_what_it_is(self, found: Record, shown: str, doubtful: bool) -> None:
        """
        A lapsed claim of anything that may have had its effect is in doubt, although no store says so.
        """
        assert (shown, doubtful) == (record.shown_state(found), record.is_in_doubt(found))


# --- the picture ---

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "states.md"


def drawn() -> set[tuple[str, str, str]]:
    """The rows of the page's table: from, to, and the move."""
    rows = re.findall(r"^\| ([a-z ]+) \| ([a-z: ]+) \| ([a-z ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {(start.replace(" ", "_"), end.replace(" ", "_"), move) for start, move, end in rows if start != "from"}


def tried() -> set[tuple[str, str, str]]:
    """The arrows of the picture, which `tools/drawings/life_of_a_key.py` finds by trying."""
    sys.path.insert(0, str(PAGE.parents[2] / "tools"))
    try:
        from drawings.life_of_a_key import moves
    finally:
        sys.path.pop(0)
    return {(move.start, move.end, move.name) for move in moves()}


def possible() -> set[tuple[str, str, str]]:
    """The arrows that the machine allows, between stored states."""
    arrows = {
        (RECORDS[name].state, state, move.partition(" without")[0].partition(" a failure")[0])
        for (move, name), state in LEGAL.items()
    }
    for guarantee, probe in product(GUARANTEES, (False, True)):
        claimant = CLAIMANT._replace(guarantee=guarantee, can_probe=probe)
        for found in (None, *RECORDS.values(), FORGOTTEN):
            stored = found._replace(guarantee=guarantee) if found is not None else None
            decision = record.decide(stored, claimant)
            if isinstance(decision, Start):
                start = "absent" if stored is None or stored.forget_left == 0 else stored.state
                arrows.add((start, record.claim(claimant, decision, token=TOKEN, version=VERSION).state, "claim"))
    return arrows


def test_table_and_picture_show_every_move_and_no_other() -> None:
    """
    The page is held to the machine: a row or an arrow more or less fails.
    """
    forgetting = {("settled", "absent", "forget"), ("released", "absent", "forget")}

    assert drawn() == possible() | forgetting
    assert tried() == possible() | forgetting


# --- through the engine, over a store ---


class Bench:
    """One caller's flows over a memory store, driven by the blocking loop."""

    def __init__(self) -> None:
        self.environment = StillEnvironment()
        self.store = MemoryStore(environment=self.environment)
        self.runs = 0
        self.ask = OperationRequest(CLAIMANT, DEFAULT_TERMS)

    def drive(self, flow: Flow[Any], fn: Callable[[], Any] = lambda: None) -> Any:
        def perform(effect: Effect) -> Any:
            match effect:
                case Put():
                    return self.store.put(effect.write, effect.expect)
                case Load():
                    return self.store.load(effect.id)
                case RandomBytes():
                    return self.environment.random(48)
                case Monotonic():
                    return self.environment.monotonic()
                case Pause():
                    return self.environment.advance(effect.seconds)
                case CallFunction():
                    return self._call(effect.operation, fn)
            raise TypeError(type(effect))

        return run(flow, perform)

    def _call(self, operation: Operation, fn: Callable[[], Any]) -> Returned | Raised:
        operation.started = True
        self.runs += 1
        try:
            return Returned(fn())
        except Exception as error:
            return Raised(error)

    def operate(self, fn: Callable[[], Any]) -> Outcome[Any]:
        outcome: Outcome[Any] = self.drive(operation_flow.operate(self.ask), fn)
        return outcome


class TestSettlingAgain:
    """A claim is settled once; saying the same again changes nothing, saying something else is an error."""

    def settled(self, bench: Bench) -> Record:
        claimed = bench.drive(operation_flow.claim(bench.ask))
        held: Record = claimed.held
        bench.drive(operation_flow.settle(bench.ask, Operation(held), held, b"1" * 16, {"id": 1}))
        return held

    def test_with_the_same_answer_it_is_a_no_op(self) -> None:
        """
        The second settle succeeds, and the record keeps the version of the first.
        """
        bench = Bench()
        held = self.settled(bench)
        outcome = bench.drive(operation_flow.settle(bench.ask, Operation(held), held, b"2" * 16, {"id": 1}))
        stands = bench.store.load(held.id)

        assert outcome.value == {"id": 1}
        assert stands is not None
        assert stands.version == b"1" * 16

    def test_with_another_answer_it_is_refused(self) -> None:
        """
        The first answer stands.
        """
        bench = Bench()
        held = self.settled(bench)
        before = bench.store.load(held.id)
        with pytest.raises(AlreadySettled):
            bench.drive(operation_flow.settle(bench.ask, Operation(held), held, b"2" * 16, {"id": 2}))

        assert before == bench.store.load(held.id)


class TestFalsyAnswers:
    """Nothing is a fine answer."""

    @pytest.mark.parametrize("value", [None, False, 0, 0.0, "", b"", [], {}], ids=repr)
    def test_a_falsy_answer_is_kept_and_replayed(self, value: Any) -> None:
        """
        It settles the record, and the function is not run again to find a better one.
        """
        bench = Bench()
        first, second = bench.operate(lambda: value), bench.operate(lambda: "another")

        assert (value, False, value, True) == (first.value, first.replayed, second.value, second.replayed)
        assert type(value) is type(second.value)
        assert bench.runs == 1


# --- any history ---


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """What is tried, one after the other, and how much time goes by before each."""
    moves = st.sampled_from(["claim", "claim", "claim", *MOVES, "purge"])
    return draw(st.lists(st.tuples(moves, st.sampled_from([0, 0, 1, LEASE, KEYED_FOR])), max_size=40))


@settings(max_examples=200, deadline=None)
@given(histories(), st.sampled_from(GUARANTEES), st.booleans())
def test_any_history_keeps_the_laws(history: list[tuple[str, int]], guarantee: str, probes: bool) -> None:
    """
    Whatever is tried in whatever order: the fence never falls and rises with every claim, attempts count up, and the
    fingerprint stays, until the record is forgotten; every write has a version of its own.
    """
    claimant = CLAIMANT._replace(guarantee=guarantee, can_probe=probes)
    register, world, highest = SimulatedStore(), World(), 0
    for serial, (move, passed) in enumerate(history, start=1):
        world = world._replace(now=world.now + passed)
        if move == "purge":
            world = world.purged()
            continue
        row = world.find(claimant.id)
        found = row.read(world.now) if row is not None else None
        write = attempted(move, found, claimant, serial)
        if write is None:
            continue
        world, standing = register.put(world, Put(move, write, found.version if found is not None else None), 0)
        new = standing.record
        forgotten = found is None or (found.forget_left is not None and found.forget_left <= 0)

        assert new is not None
        assert new.fence > highest if move == "claim" else new.fence == highest
        assert new.version != (found.version if found is not None else None)
        if found is not None and not forgotten:
            assert found.fingerprint == new.fingerprint
            assert found.attempt + (move == "claim") == new.attempt
        else:
            assert new.attempt == 1
        highest = new.fence


def attempted(move: str, found: Record | None, claimant: Claimant, serial: int) -> Write | None:
    """The write of a move, or None if it is not allowed now."""
    token, version = serial.to_bytes(16, "big"), (1_000 + serial).to_bytes(16, "big")
    if move == "claim":
        decision = record.decide(found, claimant)
        return record.claim(claimant, decision, token=token, version=version) if isinstance(decision, Start) else None
    if found is None:
        return None
    try:
        return MOVES[move](found)._replace(version=version)
    except IllegalMove:
        return None
