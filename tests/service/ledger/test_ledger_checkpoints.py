"""Balances are derived from verified deltas, from the last checkpoint on; periods are closed once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from ledger_support import LIVE, TEST, World, audited, balance, emit

from onceward import OncewardError
from onceward._core.operation import to_datetime
from onceward.errors import RequestInvalid
from onceward.protocol.errors import (
    CustomerUnknown,
    DeltaUnknown,
    NothingToReceipt,
    PeriodClosed,
    VerificationPending,
)
from onceward.service.ledger.hash_chain import LedgerEntry

pytestmark = pytest.mark.dose(1, of=("kind", "colour", "ledger"))


def close(ledger: Any, period: str, key: str | None = None, customer: str = "cus_1", **spoken: bool) -> Any:
    """Ask for a checkpoint of a period; what is answered."""
    return json.loads(ledger.run(ledger.flows.checkpoint(LIVE, customer, period, key, **spoken)).text)


@pytest.mark.requirement("C43")
def test_a_balance_is_the_sum_of_its_deltas_to_the_last_digit(ledger: Any) -> None:
    """
    Large and small together, beyond what a float or a bigint of billionths could hold.
    """
    for number in range(12):
        emit(ledger, "999999999.999999999", reference_id=f"in-{number}")
    emit(ledger, "-0.000000001", reference_id="out")
    found = balance(ledger)

    assert (found.balance, found.deltas, found.checkpoint) == ("11999999999.999999987", 13, None)
    with pytest.raises(CustomerUnknown):
        balance(ledger, "nobody")
    with pytest.raises(CustomerUnknown):
        balance(ledger, place=TEST)


@pytest.mark.requirement("C45", "C46", "C08")
def test_a_period_is_closed_once_whatever_the_key(ledger: Any, world: World) -> None:
    """
    The same key replays; another key and none find the same checkpoint, marked; there is one row.
    """
    emit(ledger, "1.5", reference_id="r1", period="2020-01")
    first = close(ledger, "2020-01", "k1")

    assert first == close(ledger, "2020-01", "k1")
    assert {**first, "duplicate": True} == close(ledger, "2020-01", "k2") == close(ledger, "2020-01")
    assert (world.count("onceward_ledger_checkpoints"), first["balance"], first["deltas"]) == (1, "1.5", 1)


def test_checkpoints_follow_one_another_and_derivations_start_from_the_last(ledger: Any) -> None:
    """
    A derivation says where it started and adds only what came since; a period asked for ends with that period.
    """
    emit(ledger, 1, reference_id="a", period="2020-01")
    emit(ledger, 10, reference_id="b", period="2020-03")
    emit(ledger, 100, reference_id="c", period="2020-02")
    first, second = close(ledger, "2020-01"), close(ledger, "2020-02")
    emit(ledger, 1000, reference_id="d")
    found = balance(ledger)

    assert (1, 2, first["hash"]) == (first["number"], second["number"], second["previous"])
    assert (first["balance"], second["balance"]) == ("1", "101")
    assert ("1111", 2, second["id"]) == (found.balance, found.deltas, found.checkpoint.id)
    for period, expected in (("2019-12", "0"), ("2020-01", "1"), ("2020-02", "101"), ("2020-12", "111")):
        assert balance(ledger, period=period).balance == expected
    assert audited(ledger).findings == []


def test_a_closed_period_takes_no_more_deltas(ledger: Any, world: World) -> None:
    """
    Refused with advice, for it and for those before it; a retry of what is booked there is still answered.
    """
    emit(ledger, 1, reference_id="a", period="2020-02")
    close(ledger, "2020-02")
    for period in ("2020-01", "2020-02"):
        with pytest.raises(PeriodClosed, match='Send it with "period": "20'):
            emit(ledger, 1, key="late", period=period)
    with pytest.raises(PeriodClosed, match="together with a later one"):
        close(ledger, "2020-01")
    with pytest.raises(RequestInvalid, match="has not begun"):
        close(ledger, "2099-01")
    with pytest.raises(CustomerUnknown):
        close(ledger, "2020-01", customer="nobody")

    assert emit(ledger, 1, reference_id="a", period="2020-02")["duplicate"]
    assert world.count() == 1
    assert emit(ledger, 1, key="late")["seq"] == 2


def test_late_deltas_go_into_the_next_period_if_the_operator_says_so(world: World) -> None:
    """
    Booked into the first period that is open, and counted there; the checkpoint stays true.
    """
    with world.open(late="next") as ledger:
        emit(ledger, 1, reference_id="a", period="2020-01")
        closed = close(ledger, "2020-01")
        late = emit(ledger, 2, reference_id="b", period="2020-01")

        assert closed["period"] < late["period"]
        assert (closed["balance"], balance(ledger).balance) == ("1", "3")
        assert {**late, "duplicate": True} == emit(ledger, 2, reference_id="b", period="2020-01")
        assert audited(ledger).findings == []


@pytest.mark.requirement("C45", "C46")
@pytest.mark.fault("a-checkpoint-closes-the-running-period")
def test_a_checkpoint_inside_a_running_period_is_a_mark_that_deltas_do_not_mind(ledger: Any, world: World) -> None:
    """
    "Running additional checkpoints inside a period is safe": the same mark until a delta comes, another one after it,
    nothing is stored or closed, and the next delta is booked as before.
    """
    emit(ledger, "1.5", reference_id="a", period="2020-01")
    close(ledger, "2020-01")
    booked = emit(ledger, 2, reference_id="b")
    period = booked["period"]
    marks = [close(ledger, period), close(ledger, period, "k1"), close(ledger, period, "k2", close=False)]
    assert [one["closed"] for one in marks] == [False] * 3
    after = emit(ledger, 4, reference_id="c")
    later = close(ledger, period)

    assert [marks[0]] * 3 == marks
    assert (marks[0]["closed"], marks[0]["closedAt"], marks[0]["balance"]) == (False, None, "3.5")
    assert (marks[0]["seq"], marks[0]["deltas"]) == (2, 1)
    assert after["period"] == period
    assert (later["seq"], later["balance"], later["deltas"]) == (3, "7.5", 2)
    assert later["id"] != marks[0]["id"]
    assert close(ledger, period, "k1") == marks[0]
    assert world.count("onceward_ledger_checkpoints") == 1
    assert balance(ledger).balance == "7.5"
    assert audited(ledger).findings == []


def test_a_mark_ends_before_the_first_delta_that_waits_for_its_verification(world: World) -> None:
    """
    It covers what is decided, and is the same when it is derived again later; it never has to wait itself.
    """
    with world.open() as ledger:
        emit(ledger, 1, reference_id="a")
        period = emit(ledger, 2, reference_id="b")["period"]
    with world.open(verify="queued") as ledger:
        before = close(ledger, period)
        emit(ledger, 4, reference_id="c")

        assert close(ledger, period) == before
        assert (before["seq"], before["balance"]) == (2, "3")
        ledger.run(ledger.flows.verify_queued())
        assert (close(ledger, period)["seq"], close(ledger, period)["balance"]) == (3, "7")


@pytest.mark.fault("an-early-close-says-never")
def test_closing_a_running_period_is_spoken_and_says_what_it_refuses(tmp_path: Any) -> None:
    """
    Closed early, it takes nothing until the month is over. Who is refused is told when to send again, and nothing of
    it is lost: the same delta is booked then.
    """
    world = World("sqlite", tmp_path)
    with world.open() as ledger:
        emit(ledger, 1, reference_id="a")
        closed, again = close(ledger, "2026-11", close=True), close(ledger, "2026-11", close=True)
        with pytest.raises(OncewardError, match="unchanged, when 2026-12 has begun") as refused:
            emit(ledger, 1, reference_id="b")
        left = refused.value.retry_after_seconds
        world.environment.advance(left or 0)
        late = emit(ledger, 1, reference_id="b")

        assert closed["closed"] and "no deltas until 2026-12 begins (2026-12-01T00:00:00Z)" in closed["refuses"]
        assert again == {**closed, "duplicate": True}
        assert (refused.value.code, refused.value.retry) == ("period_not_open", "same-key")
        assert left == (datetime(2026, 12, 1, tzinfo=UTC) - to_datetime(1_794_000_000_000_000)).total_seconds()
        assert late["period"] == "2026-12"


def test_a_period_that_is_over_is_closed_without_further_words(tmp_path: Any) -> None:
    """
    What was a mark while the month ran is a close when it has ended; `close=False` still only marks.
    """
    world = World("sqlite", tmp_path)
    with world.open() as ledger:
        emit(ledger, 1, reference_id="a")
        running = close(ledger, "2026-11")
        world.environment.advance(30 * 86_400)
        marked, closed = close(ledger, "2026-11", close=False), close(ledger, "2026-11")

        assert [one["closed"] for one in (running, marked, closed)] == [False, False, True]
        assert running == marked
        assert (closed["balance"], closed["refuses"]) == (running["balance"], None)
        with pytest.raises(PeriodClosed, match='Send it with "period": "2026-12"'):
            emit(ledger, 1, reference_id="b", period="2026-11")


@pytest.mark.requirement("C61")
def test_queued_deltas_count_when_a_worker_has_verified_them(world: World) -> None:
    """
    queued, then verified or failed, in one step each; only verified ones are derived, and no period closes before.
    """

    def rule(entry: LedgerEntry) -> str | None:
        return "too much" if entry.amount > 5 * 10**9 else None

    with world.open(verify="queued", rule=rule) as ledger:
        good, bad = emit(ledger, 5, reference_id="a", period="2020-01"), emit(ledger, 6, key="b", period="2020-01")

        assert {good["status"], bad["status"]} == {"queued"}
        before = balance(ledger)
        assert (before.balance, before.deltas, before.queued) == ("0", 0, 2)
        with pytest.raises(VerificationPending):
            close(ledger, "2020-01")
        with pytest.raises(VerificationPending):
            ledger.run(ledger.flows.receipt(LIVE, "cus_1", reference="a"))
        assert audited(ledger).findings == []

        assert [ledger.run(ledger.flows.verify_queued(1)) for _ in range(3)] == [1, 1, 0]

        after = balance(ledger)
        assert (after.balance, after.deltas, after.queued) == ("5", 1, 0)
        shown = [ledger.run(ledger.flows.delta(LIVE, one["id"])) for one in (good, bad)]
        assert [(one.status, one.failure) for one in shown] == [("verified", None), ("failed", "too much")]
        assert close(ledger, "2020-01")["balance"] == "5"
        assert audited(ledger).findings == []


@pytest.mark.requirement("C58")
def test_a_receipt_is_the_same_one_whenever_it_is_asked_for(ledger: Any, world: World) -> None:
    """
    For a delta by its reference, for a period by its checkpoint; none for what is not there.
    """
    emit(ledger, 1, reference_id="a", period="2020-01")
    first = ledger.run(ledger.flows.receipt(LIVE, "cus_1", reference="a"))
    closed = close(ledger, "2020-01")
    emit(ledger, 1, reference_id="b")
    of_period = ledger.run(ledger.flows.receipt(LIVE, "cus_1", period="2020-01"))

    assert first == ledger.run(ledger.flows.receipt(LIVE, "cus_1", reference="live:a"))
    assert first.id != ledger.run(ledger.flows.receipt(LIVE, "cus_1", reference="b")).id
    assert closed["hash"] == of_period.checkpoint.hash
    for asked in ({"reference": "c"}, {"period": "2020-02"}):
        with pytest.raises(NothingToReceipt):
            ledger.run(ledger.flows.receipt(LIVE, "cus_1", **asked))
    for asked in ({}, {"reference": "a", "period": "2020-01"}):
        with pytest.raises(RequestInvalid, match="either referenceId or period"):
            ledger.run(ledger.flows.receipt(LIVE, "cus_1", **asked))
    with pytest.raises(NothingToReceipt):
        ledger.run(ledger.flows.receipt(LIVE, "cus_2", reference="a"))


def test_a_delta_is_shown_to_its_own_environment_only(ledger: Any) -> None:
    """
    By its id; somebody else's looks as if there were none.
    """
    made = emit(ledger, "0.25", reference_id="a", metadata={"tokens": 17, "rate": 0.5})

    assert ledger.run(ledger.flows.delta(LIVE, made["id"])).delta == "0.25"
    assert ledger.run(ledger.flows.delta(LIVE, made["id"])).metadata == {"tokens": 17, "rate": 0.5}
    with pytest.raises(DeltaUnknown):
        ledger.run(ledger.flows.delta(TEST, made["id"]))
    with pytest.raises(RequestInvalid):
        ledger.run(ledger.flows.delta(LIVE, "1 OR 1=1"))


def test_gaps_are_the_numbers_of_rows_that_somebody_removed(ledger: Any, world: World) -> None:
    """
    None while nobody has; then each run of them, at either end too.
    """
    for number in range(1, 10):
        emit(ledger, 1, reference_id=f"r{number}")

    def gaps() -> list[tuple[int, int]]:
        found = ledger.run(ledger.flows.gaps(LIVE, "cus_1"))
        assert found.last_seq == 9
        return [(gap.first, gap.last) for gap in found.gaps]

    assert gaps() == []
    world.execute("DELETE FROM onceward_ledger_entries WHERE seq IN (1, 4, 5, 7, 9)")
    assert gaps() == [(1, 1), (4, 5), (7, 7), (9, 9)]
    world.execute("DELETE FROM onceward_ledger_entries")
    assert gaps() == [(1, 9)]
