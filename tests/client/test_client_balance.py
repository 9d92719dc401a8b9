"""The client's balance against the real ledger, by blocking and by awaiting."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from middleman import Middleman
from own_client_support import Maker

from onceward import ConfigurationError, KeyMissing, KeyReused, Retry
from onceward.client import (
    CustomerUnknown,
    DeltaUnknown,
    NewDelta,
    NothingToReceipt,
    PeriodClosed,
    Reference,
    ReferenceReused,
)
from onceward.errors import KeyInvalid, RequestInvalid
from service.service_support import Served

pytestmark = pytest.mark.dose(1, of="client_of")

QUICK = Retry(attempts=3, base=0.001, cap=0.002)


@pytest.fixture
def customer(name: str) -> str:
    """A customer of the test's own."""
    return f"cus_{name}"


@pytest.fixture
def between(served: Served) -> Iterator[Middleman]:
    """Somebody in between."""
    with Middleman(served.address) as middleman:
        yield middleman


@pytest.fixture
def balance(client_of: Maker, served: Served, between: Middleman) -> Any:
    """The ledger, reached through somebody in between."""
    return client_of(between.address, token=served.token, retry=QUICK).balance


class TestEmit:
    """One delta."""

    @pytest.mark.requirement("C06", "C17")
    def test_a_delta_goes_out_under_the_documents_names_and_comes_back_typed(
        self, balance: Any, between: Middleman, customer: str
    ) -> None:
        """
        customerId, delta, reason, referenceId, metadata; an exact Decimal, a time with its zone.
        """
        found = balance.emit(
            customer,
            Decimal("-0.10"),
            "api call",
            reference_id=f"{customer}:1",
            metadata={"model": "m", "n": [1]},
        )

        assert {
            "customerId": customer,
            "delta": "-0.1",
            "reason": "api call",
            "referenceId": f"{customer}:1",
            "metadata": {"model": "m", "n": [1]},
        } == json.loads(between.passed[0].body)
        assert (customer, 1, Decimal("-0.1"), "verified", False) == (
            found.customer,
            found.seq,
            found.delta,
            found.status,
            found.duplicate,
        )
        assert found.metadata == {"model": "m", "n": [1]}
        assert found.booked_at.tzinfo == UTC
        assert found == balance.delta(found.id)

    @pytest.mark.requirement("C14", "C15", "C24")
    def test_the_reference_is_the_key_when_none_is_given(
        self, balance: Any, served: Served, between: Middleman, customer: str
    ) -> None:
        """
        However often it is emitted it is one delta. The record is that of the reference with its environment in front:
        a stranger who sends that as the header is answered from it.
        """
        reference = f"{customer}:1"
        first, *others = [balance.emit(customer, -1, "call", reference_id=reference) for _ in range(5)]
        said = served.call("POST", "/api/v1/balance/delta", raw=between.passed[0].body,
                           headers={"Idempotency-Key": f"test:{reference}"})  # fmt: skip

        assert [one.duplicate for one in others] == [True] * 4
        assert {first.id} == {one.id for one in others}
        assert ("true", first.id) == (said.headers.get("idempotency-replayed"), said.document["id"])
        assert balance.derive(customer).balance == Decimal(-1)

    @pytest.mark.requirement("C57")
    def test_a_key_carries_its_environment(self, balance: Any, between: Middleman, customer: str) -> None:
        """
        Put in front once, and not doubled; the other environment's is refused before anything is sent.
        """
        first = balance.emit(customer, 5, "top-up", idempotency_key=f"{customer}:k")
        again = balance.emit(customer, 5, "top-up", idempotency_key=f"test:{customer}:k")
        with pytest.raises(KeyInvalid, match="live"):
            balance.emit(customer, 5, "top-up", idempotency_key="live:k")
        with pytest.raises(KeyInvalid, match="live"):
            balance.emit(customer, 5, "top-up", reference_id="live:r")

        assert (False, True, first.id) == (first.replayed, again.replayed, again.id)
        assert [one.headers["idempotency-key"] for one in between.passed] == [f"test:{customer}:k"] * 2

    @pytest.mark.parametrize("spoiled", ["lose answer", "cut", (503, {}, b""), "half answer"])
    def test_what_is_lost_on_the_way_is_sent_again_with_the_same_bytes(
        self, balance: Any, between: Middleman, customer: str, spoiled: Any
    ) -> None:
        """
        By the retry layer, without a word from the caller: one delta.
        """
        between.spoil = [spoiled]
        balance.emit(customer, -1, "call", reference_id=f"{customer}:1")

        assert len(between.sent) == 2
        assert len(set(between.sent)) == 1
        assert (balance.derive(customer).balance, balance.gaps(customer).last_seq) == (Decimal(-1), 1)

    @pytest.mark.requirement("C13")
    def test_refusals_are_typed(self, balance: Any, customer: str) -> None:
        """
        The reference of another delta, the key of another request, what is not there.
        """
        balance.emit(customer, -1, "call", reference_id=f"{customer}:1")
        balance.emit(customer, -1, "call", idempotency_key=f"{customer}:k")

        with pytest.raises(ReferenceReused):
            balance.emit(customer, -2, "call", reference_id=f"{customer}:1")
        with pytest.raises(KeyReused):
            balance.emit(customer, -2, "call", idempotency_key=f"{customer}:k")
        with pytest.raises(DeltaUnknown):
            balance.delta("dl_" + "0" * 32)
        with pytest.raises(CustomerUnknown):
            balance.gaps("nobody")
        with pytest.raises(NothingToReceipt):
            balance.receipt(customer, reference_id="no:such")
        assert balance.derive(customer).balance == Decimal(-2)

    def test_one_that_is_still_being_processed_is_asked_for_again(
        self, balance: Any, between: Middleman, customer: str
    ) -> None:
        """
        202 with its code is no answer: the client asks again, and does not take it for one.
        """
        pending = {"code": "IDEMPOTENCY_PENDING", "retryAfterSeconds": 0.001, "detail": "still at it"}
        between.spoil = [(202, {"content-type": "application/problem+json"}, json.dumps(pending).encode())]
        found = balance.emit(customer, -1, "call", reference_id=f"{customer}:1")

        assert (len(between.sent), found.seq) == (2, 1)


class TestBeforeSending:
    """What cannot be booked does not travel."""

    @pytest.mark.requirement("C17")
    @pytest.mark.parametrize(
        ("delta", "says"),
        [
            (0, "zero"),
            ("0.00", "zero"),
            (Decimal("-0"), "zero"),
            (Decimal("NaN"), "finite"),
            (Decimal("Infinity"), "finite"),
            (float("nan"), "float"),
            (float("inf"), "float"),
            (0.1, "Decimal"),
            (1.0, "Decimal"),
            ("nan", "not a decimal"),
            ("1,5", "not a decimal"),
            ("", "not a decimal"),
            (True, "bool"),
            (None, "null"),
            (10**9 + 1, "bounds"),
            (-(10**9) - 1, "bounds"),
            ("0.0000000001", "places"),
            (Decimal("1e999999"), "bounds"),
        ],
    )
    def test_an_amount_is_exact_finite_and_not_zero(self, delta: Any, says: str) -> None:
        """
        Floats are refused with advice; nothing is rounded.
        """
        with pytest.raises(RequestInvalid, match=says):
            NewDelta(customer="c", delta=delta, reason="r", reference_id="r").document("test")

    @pytest.mark.requirement("C17")
    @pytest.mark.parametrize(
        ("delta", "sent"),
        [
            (-1, "-1"),
            (1, "1"),
            (Decimal("12.50"), "12.5"),
            ("12.50", "12.5"),
            (10**9, "1000000000"),
            ("1e-9", "0.000000001"),
        ],
    )
    def test_amounts_that_are_equal_are_the_same_bytes(self, delta: Any, sent: str) -> None:
        """
        So that a retry from stored text is the same request.
        """
        assert sent == NewDelta(customer="c", delta=delta, reason="r", reference_id="r").document("test")["delta"]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"customer": ""},
            {"customer": "Anna Müller"},
            {"customer": "c" * 129},
            {"customer": 17},
            {"reason": ""},
            {"reason": "r" * 501},
            {"reason": None},
            {"metadata": ["a"]},
            {"metadata": {"a": object()}},
            {"metadata": {"a": float("nan")}},
            {"metadata": {"a": "x" * 5_000}},
            {"reference_id": "has spaces"},
            {"reference_id": ""},
            {"reference_id": "r" * 256},
        ],
    )
    def test_bad_input_is_refused(self, wrong: dict[str, Any]) -> None:
        """
        Where it was called, in the caller's own words.
        """
        good: dict[str, Any] = {"customer": "cus_1", "delta": 1, "reason": "r", "reference_id": "r:1"}

        assert NewDelta(**good).document("test")
        with pytest.raises((RequestInvalid, KeyInvalid, ConfigurationError)):
            NewDelta(**{**good, **wrong}).document("test")

    def test_what_the_client_does_not_know_the_service_refuses(self, balance: Any, customer: str) -> None:
        """
        And nothing is booked.
        """
        for wrong in ({"corrects": "that one"}, {"period": "November"}):
            with pytest.raises(RequestInvalid):
                balance.emit(customer, 1, "r", reference_id=f"{customer}:1", **wrong)
        with pytest.raises(CustomerUnknown):
            balance.gaps(customer)

    @pytest.mark.requirement("C15")
    def test_without_a_name_it_is_not_sent(self, balance: Any, between: Middleman, customer: str) -> None:
        """
        A retry of it would be a second delta; the advice says what to do.
        """
        with pytest.raises(KeyMissing, match="reference_id"):
            balance.emit(customer, -1, "call")
        with pytest.raises(KeyMissing, match=r"deltas\[0\]"):
            balance.emit_many([NewDelta(customer=customer, delta=1, reason="r")])
        assert between.passed == []

    def test_a_local_file_has_no_ledger(self, client_of: Maker, tmp_path: Path) -> None:
        """
        It says so, and what to start.
        """
        with pytest.raises(ConfigurationError, match="onceward serve"):
            client_of(f"sqlite:///{tmp_path}/shop.db").balance.emit("c", 1, "r", reference_id="r")


class TestReferences:
    """`vendor:operation:bucket:identifier`."""

    @pytest.mark.requirement("C16")
    def test_a_reference_has_the_documents_shape(self) -> None:
        """
        Four parts; a fresh one each time, or the same from an identifier that was stored.
        """
        calls = Reference("acme", "call", "2026-11")
        one, other = calls.new(), calls.new()

        assert one.split(":")[:3] == ["acme", "call", "2026-11"]
        assert len(one.split(":")[3]) == 36
        assert one != other
        assert one == calls.of(one.split(":")[3])
        assert calls.of(17) == "acme:call:2026-11:17"

    @pytest.mark.requirement("C16")
    def test_parts_never_run_together(self) -> None:
        """
        A colon in a part is escaped; a part that is empty or no text is refused when it is declared.
        """
        assert Reference("a:b", "c", "d").of("e") != Reference("a", "b:c", "d").of("e")
        for parts in (("", "b", "c"), ("a", None, "c"), ("a", "b", 0.5)):
            with pytest.raises(KeyInvalid):
                Reference(*parts)  # type: ignore[arg-type]
        with pytest.raises(KeyInvalid):
            Reference("a", "b", "c").of(0.5)


class TestBatches:
    """`emit_many`."""

    @pytest.mark.requirement("C07")
    def test_a_batch_says_what_became_of_each_delta(self, balance: Any, customer: str) -> None:
        """
        Booked, a duplicate, refused: one does not spoil the others. Under a key the first answer is replayed.
        """
        balance.emit(customer, -1, "call", reference_id=f"{customer}:1")
        batch = [
            NewDelta(customer=customer, delta=delta, reason="call", reference_id=f"{customer}:{number}")
            for number, delta in ((1, -1), (1, -2), (2, -3))
        ]
        found = balance.emit_many(batch, idempotency_key=f"{customer}:b")
        again = balance.emit_many(batch, idempotency_key=f"{customer}:b")

        assert (found.booked, found.duplicates, found.refused, found.replayed) == (1, 1, 1, False)
        assert [(o.booked, o.delta is not None) for o in found.results] == [(False, True), (False, False), (True, True)]
        assert isinstance(found.results[1].error, ReferenceReused)
        assert again.replayed
        assert [one.booked for one in found.results] == [one.booked for one in again.results]
        assert balance.derive(customer).balance == Decimal(-4)

    def test_a_batch_without_a_key_is_safe_by_its_references(
        self, balance: Any, between: Middleman, customer: str
    ) -> None:
        """
        Its answer is lost, and it is sent again: each delta is booked once, and the second answer says so.
        """
        between.spoil = ["lose answer"]
        found = balance.emit_many(
            NewDelta(customer=customer, delta=-1, reason="call", reference_id=f"{customer}:{n}") for n in range(3)
        )

        assert (found.booked, found.duplicates) == (0, 3)
        assert len(set(between.sent)) == 1
        assert balance.derive(customer).balance == Decimal(-3)

    @pytest.mark.parametrize("count", [0, 101])
    def test_a_batch_has_one_to_a_hundred(self, balance: Any, between: Middleman, count: int) -> None:
        """
        More are refused before anything is sent.
        """
        with pytest.raises(RequestInvalid, match="1 to 100"):
            balance.emit_many(NewDelta(customer="c", delta=1, reason="r", reference_id=f"r:{n}") for n in range(count))
        with pytest.raises(ConfigurationError, match="NewDelta"):
            balance.emit_many([{"customer": "c"}])
        assert between.passed == []


class TestBooks:
    """derive, checkpoint, receipt, corrections."""

    @pytest.mark.requirement("C43", "C45", "C46", "C58")
    def test_a_period_is_closed_once_and_has_one_receipt(self, balance: Any, customer: str) -> None:
        """
        Whatever the key. A derivation starts from the checkpoint; late deltas are refused.
        """
        balance.emit(customer, "10.25", "top-up", reference_id=f"{customer}:1", period="2026-10")
        closed = balance.checkpoint(customer, "2026-10")
        again = balance.checkpoint(customer, "2026-10", idempotency_key=f"{customer}:other")
        balance.emit(customer, -1, "call", reference_id=f"{customer}:2")
        derived = balance.derive(customer)
        receipts = [balance.receipt(customer, period="2026-10") for _ in range(2)]

        assert (False, True, closed.id) == (closed.duplicate, again.duplicate, again.id)
        assert (Decimal("9.25"), closed.id, 1) == (derived.balance, derived.checkpoint, derived.deltas)
        assert Decimal("10.25") == balance.derive(customer, period="2026-10").balance == closed.balance
        assert len({one.id for one in receipts}) == 1
        assert closed.id == receipts[0].checkpoint.id
        with pytest.raises(PeriodClosed):
            balance.emit(customer, -1, "late", reference_id=f"{customer}:3", period="2026-10")

    @pytest.mark.requirement("C58")
    def test_a_delta_has_one_receipt_and_a_correction_names_it(self, balance: Any, customer: str) -> None:
        """
        A mistake stays, and a new delta names it.
        """
        wrong = balance.emit(customer, -5, "call", reference_id=f"{customer}:1")
        fixed = balance.emit(customer, 4, "was 1", reference_id=f"{customer}:2", corrects=wrong.id)
        receipts = [balance.receipt(customer, reference_id=f"{customer}:1") for _ in range(2)]

        assert wrong.id == fixed.corrects
        assert len({one.id for one in receipts}) == 1
        assert wrong.id == receipts[0].delta.id
        assert balance.derive(customer).balance == Decimal(-1)
        assert (balance.gaps(customer).gaps, balance.gaps(customer).last_seq) == ([], 2)
        for names in ({}, {"reference_id": "r", "period": "2026-10"}):
            with pytest.raises(ConfigurationError, match="either reference_id or period"):
                balance.receipt(customer, **names)

    @pytest.mark.requirement("C44", "C60")
    def test_deriving_after_every_emit_is_advised_against(
        self, balance: Any, customer: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Not the first time: it is a habit that is told, on the result and in the log.
        """
        caplog.set_level(logging.WARNING)
        advice = []
        for number in range(6):
            balance.emit(customer, -1, "call", reference_id=f"{customer}:{number}")
            advice.append(balance.derive(customer).advice)

        assert advice[:4] == [None] * 4
        assert "derive-per-emit" in (advice[-1] or "")
        assert any("derive-per-emit" in record.getMessage() for record in caplog.records)
