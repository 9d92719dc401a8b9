"""A delta is booked once: by its key, and by its reference."""

from __future__ import annotations

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_support import LIVE, TEST, World, audited, balance, emit, sent

from onceward import InFlight, KeyMissing, KeyReused, OncewardError
from onceward.errors import KeyInvalid, RequestInvalid
from onceward.protocol.errors import CustomerUnknown, DeltaRefused, DeltaUnknown, ReferenceReused
from onceward.runtime import failpoints
from onceward.service.ledger import Ledger, ledger_entries
from onceward.service.ledger.hash_chain import LedgerEntry

pytestmark = pytest.mark.dose(1, of=("kind", "colour", "ledger"))


@pytest.mark.requirement("C10", "C12", "C17")
def test_a_new_key_is_booked_and_its_retry_is_the_first_answer(ledger: Any, world: World) -> None:
    """
    The retry has the same bytes, and the ledger one delta and one record.
    """
    first = ledger.run(ledger.flows.emit(LIVE, sent("-2.50"), "k1"))
    again = ledger.run(ledger.flows.emit(LIVE, sent("-2.5"), "k1"))

    assert (first.text, True) == (again.text, again.replayed)
    assert json.loads(first.text)["delta"] == "-2.5"
    assert (world.count(), world.records()) == (1, 1)


@pytest.mark.requirement("C13")
def test_a_key_with_another_body_is_refused_and_changes_nothing(ledger: Any, world: World) -> None:
    """
    One digit of the amount, the reason or the metadata: another request.
    """
    emit(ledger, -1, key="k1", metadata={"a": 1})
    for other in ({"delta": -2}, {"reason": "other"}, {"metadata": {"a": 2}}, {"customer": "cus_2"}):
        with pytest.raises(KeyReused):
            emit(ledger, **{"delta": -1, "metadata": {"a": 1}, **other}, key="k1")  # type: ignore[arg-type]

    assert world.count() == 1


@pytest.mark.requirement("C15", "C24")
def test_a_reference_without_a_key_is_one_delta_and_the_second_is_marked(ledger: Any, world: World) -> None:
    """
    The reference is the key, and after that it is a constraint: also with another key, also when the record is gone.
    """
    first = emit(ledger, reference_id="acme:call:2026-11:7f3a")
    again = emit(ledger, reference_id="acme:call:2026-11:7f3a")
    with_key = emit(ledger, reference_id="acme:call:2026-11:7f3a", key="another")

    assert (first["duplicate"], again["duplicate"], with_key["duplicate"]) == (False, True, True)
    assert {**first, "duplicate": True} == again == with_key
    assert world.execute("SELECT reference FROM onceward_ledger_entries") == [("live:acme:call:2026-11:7f3a",)]

    world.execute("DELETE FROM onceward_records")

    assert again == emit(ledger, reference_id="acme:call:2026-11:7f3a")
    assert world.count() == 1


@pytest.mark.requirement("C24")
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_reference_with_another_amount_is_refused(ledger: Any, world: World, forgotten: bool) -> None:
    """
    Whether or not the record of the first is still there; and the refusal says in what they differ.
    """
    emit(ledger, -1, reference_id="r1")
    if forgotten:
        world.execute("DELETE FROM onceward_records")
    with pytest.raises(ReferenceReused, match="another delta;"):
        emit(ledger, -2, reference_id="r1")
    with pytest.raises(ReferenceReused, match="another customerId and reason;"):
        emit(ledger, -1, reference_id="r1", customer="cus_2", reason="other", key="k2")

    assert world.count() == 1


@pytest.mark.requirement("E05")
def test_a_delta_without_a_name_is_refused(ledger: Any, world: World) -> None:
    """
    The caller names it; the service never makes a key up, because a retry could not know it.
    """
    with pytest.raises(KeyMissing, match="Idempotency-Key, or a referenceId"):
        emit(ledger)
    with pytest.raises(KeyMissing, match="every delta"):
        ledger.run(ledger.flows.emit_many(LIVE, [sent(reference_id="r1"), sent()]))

    assert (world.count(), world.records()) == (0, 0)


@pytest.mark.requirement("C55", "C56", "C57")
def test_environments_share_neither_keys_nor_references(ledger: Any, world: World) -> None:
    """
    The prefix is stored, is not doubled, and the other environment's is refused.
    """
    emit(ledger, reference_id="r1", place=LIVE)
    emit(ledger, reference_id="r1", place=TEST)
    emit(ledger, key="k1", place=LIVE)
    emit(ledger, key="k1", place=TEST)

    assert emit(ledger, reference_id="live:r1", place=LIVE)["duplicate"]
    assert world.execute(
        "SELECT reference FROM onceward_ledger_entries WHERE reference IS NOT NULL ORDER BY reference"
    ) == [("live:r1",), ("test:r1",)]
    for named in ({"reference_id": "test:r1"}, {"key": "test:k1"}):
        with pytest.raises(KeyInvalid, match="belongs to the test environment"):
            emit(ledger, place=LIVE, **named)
    assert (balance(ledger, place=LIVE).balance, balance(ledger, place=TEST).balance) == ("-2", "-2")


@pytest.mark.requirement("C07")
def test_a_batch_is_one_key_and_its_replay_has_each_result(ledger: Any, world: World) -> None:
    """
    Booked, duplicate, refused: each delta has its own result, and the retry has the same ones.
    """
    emit(ledger, -1, reference_id="r1")
    items = [sent(-1, reference_id="r1"), sent(-2, reference_id="r2"), sent(-9, reference_id="r1"), sent("0.5")]
    first = ledger.run(ledger.flows.emit_many(LIVE, items, "b1"))
    again = ledger.run(ledger.flows.emit_many(LIVE, items, "b1"))
    shown = json.loads(first.text)

    assert (first.text, True) == (again.text, again.replayed)
    assert [item["booked"] for item in shown["results"]] == [False, True, False, True]
    assert [item["code"] for item in shown["results"]] == [None, None, "reference_reused", None]
    assert (shown["booked"], shown["duplicates"], shown["refused"]) == (2, 1, 1)
    assert (balance(ledger).balance, world.count()) == ("-2.5", 3)
    with pytest.raises(KeyReused):
        ledger.run(ledger.flows.emit_many(LIVE, items[:2], "b1"))


@pytest.mark.parametrize("many", [1, 6, 37, 99])
def test_a_batch_of_any_size_is_one_chain_in_its_order(ledger: Any, world: World, many: int) -> None:
    """
    Each customer's deltas are numbered as they were sent, and follow each other; a reference that the batch itself has
    before is a duplicate, and changes no number.
    """
    emit(ledger, -1, customer="cus_0", key="k0")
    items = [sent(-number - 1, f"cus_{number % 3}", reference_id=f"r{number}") for number in range(many)]
    shown = json.loads(ledger.run(ledger.flows.emit_many(LIVE, [*items, items[0]], "b1")).text)

    *deltas, last = [item["delta"] for item in shown["results"]]
    numbers = [number // 3 + (2 if number % 3 == 0 else 1) for number in range(many)]
    found = audited(ledger)
    assert [(one["referenceId"], one["seq"]) for one in deltas] == [(f"r{at}", seq) for at, seq in enumerate(numbers)]
    assert (last["duplicate"], last["id"], shown["booked"]) == (True, deltas[0]["id"], many)
    assert (found.entries, found.findings, world.count()) == (many + 1, [], many + 1)


@pytest.mark.fault("a-batch-reads-the-whole-ledger")
def test_a_batch_reads_no_more_of_a_long_ledger(tmp_path: Path) -> None:
    """
    Its references are looked up in their index, and not in every entry there is.
    """
    with Ledger.open(f"sqlite:///{tmp_path}/agent.db", create=True) as ledger:
        emit(ledger, -1, key="k0")
    statement = ledger_entries._BY_REFERENCES.format(rows="VALUES (?, ?), (?, ?)")
    with closing(sqlite3.connect(tmp_path / "agent.ledger.db")) as database:
        asked = database.execute(f"EXPLAIN QUERY PLAN {statement}", ("live:acme", "r1", "live:acme", "r2"))
        plan = [str(step) for *_, step in asked]

    assert [step for step in plan if step.startswith("SCAN") and "CONSTANT" not in step] == ["SCAN wanted"]
    assert [step for step in plan if "onceward_ledger_entries_reference (scope=? AND reference=?)" in step]


@pytest.mark.fault("a-batch-with-a-gap-is-kept")
@pytest.mark.parametrize("key", [None, "b1"])
def test_a_batch_that_meets_a_reference_being_booked_starts_over(world: World, key: str | None) -> None:
    """
    Another customer's delta takes one of the batch's references, and commits while the batch waits for it: the batch
    finds it, and no chain has a gap.
    """
    taken, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        taken.set()
        go_on.wait(60)

    items = [sent(-1, "cus_2", reference_id=f"r{number}") for number in range(3)]
    with world.open() as one, world.open() as two, ThreadPoolExecutor(2) as threads:
        failpoints.arm("ledger.book.written", hold)
        try:
            first = threads.submit(emit, one, -1, customer="cus_1", reference_id="r1", key="k1")
            assert taken.wait(60)
            batch = threads.submit(two.run, two.flows.emit_many(LIVE, items, key))
            world.wait_for_a_waiter()
        finally:
            go_on.set()
            failpoints.disarm()
        first.result(60)
        shown = json.loads(batch.result(60).text)
        found = audited(one)

    assert [item["code"] for item in shown["results"]] == [None, "reference_reused", None]
    assert [item["delta"]["seq"] for item in shown["results"] if item["booked"]] == [1, 2]
    assert (found.entries, found.findings) == (3, [])


def test_a_batch_with_one_malformed_delta_books_nothing(ledger: Any, world: World) -> None:
    """
    What is no delta at all is told with its place, and none of the others is booked; nor are 101.
    """
    with pytest.raises(RequestInvalid, match=r"deltas\[1\]: delta is zero"):
        ledger.run(ledger.flows.emit_many(LIVE, [sent(reference_id="r1"), sent(0, reference_id="r2")]))
    with pytest.raises(RequestInvalid, match="1 to 100"):
        ledger.run(ledger.flows.emit_many(LIVE, [sent()] * 101, "k"))

    assert world.count() == 0


def test_a_correction_is_a_new_delta_that_names_the_old_one(ledger: Any, world: World) -> None:
    """
    The old one stays as it is; what names nothing, or another customer's, is refused.
    """
    wrong = emit(ledger, -10, reference_id="r1")
    right = emit(ledger, 9, reference_id="r2", corrects=wrong["id"])
    other = emit(ledger, -1, reference_id="r3", customer="cus_2")

    assert (wrong["id"], "-1") == (right["corrects"], balance(ledger).balance)
    for corrects in ("dl_" + "0" * 32, other["id"]):
        with pytest.raises(DeltaUnknown):
            emit(ledger, 1, reference_id="r4", corrects=corrects)
    with pytest.raises(RequestInvalid, match="corrects"):
        emit(ledger, 1, reference_id="r4", corrects="anything")
    assert audited(ledger).findings == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"customer": "has space"}, "customerId"),
        ({"customer": "x" * 129}, "customerId"),
        ({"customer": ""}, "customerId"),
        ({"customer": "cus\n"}, "customerId"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 501}, "reason"),
        ({"reason": "nul\x00"}, "reason"),
        ({"metadata": {"x": "y" * 4_096}}, "metadata"),
        ({"period": "2026-13"}, "period"),
        ({"period": "2099-01"}, "has not begun"),
    ],
)
def test_what_cannot_be_booked_is_refused_and_leaves_nothing(
    ledger: Any, world: World, more: dict[str, Any], said: str
) -> None:
    """
    The refusal says what is wrong; the key stays free.
    """
    with pytest.raises(RequestInvalid, match=said):
        emit(ledger, key="k1", **more)

    assert (world.count(), world.records()) == (0, 0)
    assert emit(ledger, key="k1")["seq"] == 1


def test_known_customers_only_if_the_operator_says_so(world: World) -> None:
    """
    An unknown customer's delta is refused until the customer is added.
    """
    with world.open(customers="known") as ledger:
        with pytest.raises(CustomerUnknown):
            emit(ledger, key="k1")
        with pytest.raises(CustomerUnknown):
            balance(ledger)
        added = [ledger.run(ledger.flows.add_customer(LIVE, "cus_1")) for _ in range(2)]

        assert added == [True, False]
        assert (audited(ledger).findings, audited(ledger).customers) == ([], 1)
        assert emit(ledger, key="k1")["seq"] == 1
        assert audited(ledger).findings == []


def test_an_operators_rule_refuses_before_anything_is_booked(world: World) -> None:
    """
    Inline: what the rule refuses is not there, and the key is free for a delta that it takes.
    """

    def rule(entry: LedgerEntry) -> str | None:
        return "more than ten units" if abs(entry.amount) > 10 * 10**9 else None

    with world.open(rule=rule) as ledger:
        with pytest.raises(DeltaRefused, match="more than ten units"):
            emit(ledger, -11, key="k1")

        assert (world.count(), world.records()) == (0, 0)
        assert emit(ledger, -10, key="k1")["delta"] == "-10"


@pytest.mark.requirement("C11")
def test_a_key_in_flight_is_told_so_at_once(world: World) -> None:
    """
    While the first is inside its transaction, the second is refused and runs nothing; afterwards it replays.
    """
    heard: list[OncewardError] = []
    with world.open() as first, world.open() as other:
        emit(first, key="k0")
        second = other if world.kind == "postgres" else first  # On PostgreSQL also from another process.

        def knock() -> None:
            failpoints.disarm()
            for asked in (second, first):
                with pytest.raises(InFlight) as refused:
                    emit(asked, key="k1")
                heard.append(refused.value)

        failpoints.arm("ledger.book.written", knock)
        try:
            made = emit(first, key="k1")
        finally:
            failpoints.disarm()

        assert [error.retry_after_seconds for error in heard] == [1.0, 1.0]
        assert made == emit(second, key="k1")
    assert world.count() == 2


@pytest.mark.requirement("C14")
def test_a_hundred_emits_in_a_row_and_a_hundred_at_once_are_one_delta(world: World) -> None:
    """
    Of one reference, from two services with eight threads each; then of one key.
    """
    with world.open() as one, world.open() as two, ThreadPoolExecutor(16) as threads:

        def persist(number: int) -> Any:
            while True:
                try:
                    return emit((one, two)[number % 2], reference_id="r1", key="k1" if number % 4 > 1 else None)["id"]
                except InFlight:
                    continue

        ids = {*threads.map(persist, range(100)), *map(persist, range(100))}

        assert len(ids) == 1
        assert (balance(one).balance, world.count()) == ("-1", 1)
        assert audited(one).findings == []


def test_the_chain_holds_whoever_emits_at_once(world: World) -> None:
    """
    Deltas of one customer and of many, alone and in batches, with references that meet: no number twice, none missing.
    """
    with world.open() as one, world.open() as two, ThreadPoolExecutor(8) as threads:

        def work(number: int) -> int:
            ledger = (one, two)[number % 2]
            several = [sent(-1, f"cus_{(number + step) % 3}", reference_id=f"b{number}-{step}") for step in range(3)]
            while True:
                try:
                    ledger.run(ledger.flows.emit_many(LIVE, several[:: 1 if number % 4 > 1 else -1]))
                    emit(ledger, -1, reference_id=f"r{number // 2}", customer="cus_0")
                    return number
                except InFlight:
                    continue

        assert list(threads.map(work, range(24))) == list(range(24))
        found = audited(one)

        assert (found.customers, found.entries, found.findings) == (3, 24 * 3 + 12, [])
        for customer in ("cus_0", "cus_1", "cus_2"):
            assert one.run(one.flows.gaps(LIVE, customer)).gaps == []
        total = sum(int(balance(one, customer).balance) for customer in ("cus_0", "cus_1", "cus_2"))
        assert total == -(24 * 3 + 12)
