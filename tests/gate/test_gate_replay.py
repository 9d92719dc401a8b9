"""A first answer, and every later one: equal, however the result looks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from onceward import NOT_FOUND, Expired, InDoubt, KeyReused
from onceward.errors import NothingHappened, RequestInvalid, ResultInvalid, RetryAdvice


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Receipt:
    id: str
    amount: Decimal
    at: datetime


class Shipment(TypedDict):
    id: str
    weight: float


class Invoice(pydantic.BaseModel):
    id: int
    total: Decimal


class Delta(msgspec.Struct):
    customer: str
    amount: int


def test_the_first_call_runs_and_the_second_replays(world: Any) -> None:
    """
    The effect takes place once, and both callers get the same answer.
    """
    gate, charge = world.gate(), world.Effect({"id": "ch_1"})

    first = gate.call("charge:1", charge, request={"amount": 12})
    second = gate.call("charge:1", charge, request={"amount": 12})

    assert charge.count == 1
    assert {"id": "ch_1"} == first.value == second.value
    assert (first.replayed, second.replayed) == (False, True)


def test_an_outcome_tells_how_the_answer_came_about(world: Any) -> None:
    """
    Value, whether replayed, when first claimed on the store's clock, which attempt, which fence.
    """
    gate = world.gate()
    began = world.env.wall_us()

    first = gate.call("charge:1", world.Effect(1))
    world.env.advance(10)
    second = gate.call("charge:1", world.Effect(2))

    assert (began, 1, True, False, None) == (
        first.first_at_us,
        first.attempt,
        first.replayable,
        first.pending,
        first.retry_after_seconds,
    )
    assert datetime.fromtimestamp(began // 1_000_000, UTC) == first.first_at
    assert first._replace(replayed=True) == second
    assert first.fence > 0


def test_another_gate_on_the_same_records_replays_too(world: Any) -> None:
    """
    The answer belongs to scope and key, not to the object or the process that made it.
    """
    charge = world.Effect("ch_1")
    world.gate().run("charge:1", charge)

    assert world.gate().run("charge:1", charge) == "ch_1"
    assert charge.count == 1


@pytest.mark.requirement("D22")
@pytest.mark.parametrize("value", [0, None, "", [], False, {}, 0.0, b""], ids=repr)
def test_a_result_that_is_nothing_replays_as_itself(world: Any, value: Any) -> None:
    """
    Zero, nothing, empty and false are answers like any other: stored, replayed, and never run again.
    """
    gate, effect = world.gate(), world.Effect(value)

    answers = [gate.run("count:1", effect) for _ in range(3)]

    assert effect.count == 1
    assert [(type(value), value)] * 3 == [(type(answer), answer) for answer in answers]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Decimal, Decimal("12.50")),
        (datetime, datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        (date, date(2024, 2, 29)),
        (UUID, UUID("12345678-1234-5678-1234-567812345678")),
        (Colour, Colour.RED),
        (Receipt, Receipt("r-1", Decimal("0.10"), datetime(2024, 1, 1, tzinfo=UTC))),
        (Shipment, Shipment(id="s-1", weight=1.5)),
        (Invoice, Invoice(id=7, total=Decimal("99.90"))),
        (Delta, Delta("c-1", -5)),
        (list[Receipt], [Receipt("r-2", Decimal(1), datetime(2024, 1, 1, tzinfo=UTC))]),
        (tuple[int, str], (1, "a")),
        (bytes, b"\x00\xff"),
        (Decimal | None, None),
    ],
    ids=str,
)
def test_first_result_and_replay_have_the_declared_type(world: Any, annotation: Any, value: Any) -> None:
    """
    What a function says it returns is what the first caller and every later one get, equal to each other.
    """
    calls = []

    def make(order: str):  # type: ignore[no-untyped-def]
        calls.append(order)
        return value

    make.__annotations__["return"] = annotation
    made = world.gate().once(key="make:{order}")(make)

    first, second = made("o-1"), made("o-1")

    assert calls == ["o-1"]
    assert (type(value), value) == (type(first), first) == (type(second), second)


def test_without_an_annotation_first_result_and_replay_are_equal_all_the_same(world: Any) -> None:
    """
    Both pass through the stored form, so that nobody sees a Decimal the first time and a text the second.
    """
    gate = world.gate()

    first, second = (gate.run("price:1", lambda: {"price": Decimal("1.50"), "pair": (1, 2)}) for _ in range(2))

    assert first == second == {"price": "1.50", "pair": [1, 2]}


def test_a_caller_that_changes_its_answer_changes_nobody_elses(world: Any) -> None:
    """
    Answers are copies: the function's own object and earlier answers are not handed out again.
    """
    gate, rows = world.gate(), world.Effect([1, 2])

    gate.run("rows:1", rows).append(3)

    assert gate.run("rows:1", rows) == [1, 2]


def test_a_result_that_does_not_fit_its_annotation_is_recorded_all_the_same(world: Any) -> None:
    """
    It ran. That it cannot be turned into the declared type does not make it run again.
    """
    calls = []

    def make(order: str) -> Receipt:
        calls.append(order)
        return {"surprise": 1}  # type: ignore[return-value]

    made = world.gate().once(key="make:{order}")(make)

    for _ in range(3):
        with pytest.raises(ResultInvalid):
            made("o-1")

    assert calls == ["o-1"]
    assert world.gate().get("make:o-1").state == "settled"


def test_an_annotation_that_cannot_be_resolved_is_left_alone(world: Any) -> None:
    """
    A name that does not exist at run time is no reason to refuse or to run twice.
    """
    calls = []

    def make(order: str) -> Nowhere:  # type: ignore[name-defined] # noqa: F821
        calls.append(order)
        return {"id": 1}

    made = world.gate().once(key="make:{order}")(make)

    assert [made("o-1"), made("o-1")] == [{"id": 1}] * 2
    assert calls == ["o-1"]


class TestTheSameKeyWithAnotherRequest:
    """One key stands for one request; another one is refused at every point of the record's life."""

    def refused(self, world: Any, gate: Any, key: str = "charge:1") -> None:
        before, other = gate.get(key), world.Effect()
        with pytest.raises(KeyReused) as refusal:
            gate.run(key, other, request={"amount": 99})

        assert other.count == 0
        assert before == gate.get(key)
        assert RetryAdvice.NEW_KEY is refusal.value.retry

    @pytest.mark.requirement("D04", "E28", "E40", "C23")
    def test_after_it_settled(self, world: Any) -> None:
        """
        Another amount or another customer never gets the stored answer, and nothing runs.
        """
        gate, charge = world.gate(), world.Effect()
        gate.run("charge:1", charge, request={"customer": "c-1", "amount": 12})
        before = gate.get("charge:1")

        for other in ({"customer": "c-1", "amount": 99}, {"customer": "c-2", "amount": 12}):
            with pytest.raises(KeyReused, match="use a new key for a new one"):
                gate.run("charge:1", charge, request=other)

        assert charge.count == 1
        assert before == gate.get("charge:1")

    def test_while_the_first_is_in_flight(self, world: Any) -> None:
        """
        It is refused at once: it does not wait for an answer that is not its own.
        """
        gate, other = world.gate(), world.gate()

        gate.run("charge:1", lambda: self.refused(world, other), request={"amount": 12})

        assert gate.get("charge:1").state == "settled"

    def test_after_it_expired(self, world: Any) -> None:
        """
        A tombstone still knows which request it was for.
        """
        gate = world.gate()
        gate.run("charge:1", world.Effect(), request={"amount": 12})
        world.env.advance(86_401)
        gate.purge()

        self.refused(world, gate)
        with pytest.raises(Expired):
            gate.run("charge:1", world.Effect(), request={"amount": 12})

    def test_after_it_was_released(self, world: Any) -> None:
        """
        A released key may be tried again, with the same request only.
        """
        gate = world.gate()
        with pytest.raises(NothingHappened):
            gate.run("charge:1", world.Effect(NothingHappened()), request={"amount": 12})

        self.refused(world, gate)
        assert gate.run("charge:1", world.Effect(), request={"amount": 12}) == "done"

    def test_in_doubt(self, world: Any) -> None:
        """
        Doubt about one request is no licence for another.
        """
        gate = world.gate()
        world.crash("charge:1", request={"amount": 12})
        world.env.advance(61)

        self.refused(world, gate)
        with pytest.raises(InDoubt):
            gate.run("charge:1", world.Effect(), request={"amount": 12})

    def test_after_it_was_reconciled(self, world: Any) -> None:
        """
        The fingerprint is carried through every later write.
        """
        gate = world.gate()
        world.crash("charge:1", request={"amount": 12})
        world.env.advance(61)
        gate.reconcile("charge:1", NOT_FOUND)

        self.refused(world, gate)


def test_a_request_without_a_canonical_form_is_refused_before_anything_is_stored(world: Any) -> None:
    """
    A retry could not be told from another request, so there is no first try either.
    """
    gate, effect = world.gate(), world.Effect()

    with pytest.raises(RequestInvalid):
        gate.run("charge:1", effect, request={"amount": object()})

    assert (effect.count, gate.rows()) == (0, [])


def test_a_request_that_is_changed_while_it_runs_was_taken_as_it_was_sent(world: Any) -> None:
    """
    The fingerprint is taken before the function runs; a function that edits its input does not change it.
    """
    gate, order = world.gate(), {"amount": 12}

    gate.run("charge:1", lambda: order.update(amount=99), request=order)

    assert gate.call("charge:1", world.Effect(), request={"amount": 12}).replayed
