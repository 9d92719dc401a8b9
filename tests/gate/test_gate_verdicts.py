"""What comes out of a marked effect is judged by its verdict; anywhere else an error proves nothing by its type."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError, InDoubt, StoreUnavailable
from onceward.verdicts import Action, Certainty, Classifier, Kind, Verdict

REJECTED = Verdict(Certainty.REJECTED, Kind.CLIENT, Action.NEVER)


class CardDeclined(Exception):
    """The provider's own word: read, and refused."""


class Answered(Exception):
    """An HTTP client's error for an answer with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status


def marked(charge: Any) -> Any:
    """A function that does nothing but its effect."""

    def pay(operation: Any) -> Any:
        with operation.effect():
            return charge()

    return pay


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ConnectionRefusedError(), "released"),
        (Answered(429), "released"),
        (Answered(400), "released"),
        (Answered(403), "released"),
        (StoreUnavailable(), "released"),
        (TimeoutError(), "in_doubt"),
        (ConnectionResetError(), "in_doubt"),
        (Answered(408), "in_doubt"),
        (Answered(500), "in_doubt"),
        (Answered(503), "in_doubt"),
        (Answered(200), "in_doubt"),
        (CardDeclined(), "in_doubt"),
        (KeyError("a bug"), "in_doubt"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value) or type(value).__name__,
)
def test_inside_the_mark_the_verdict_decides(world: Any, error: Exception, state: str) -> None:
    """
    Not sent and rejected release the key; an unknown outcome, and one that happened, do not.
    """
    gate, charge = world.gate(), world.Effect(error)

    with pytest.raises(type(error)):
        gate.run("charge:1", marked(charge))

    assert state == gate.get("charge:1").state
    assert charge.count == 1


def test_what_was_not_sent_is_run_by_the_next_caller(world: Any) -> None:
    """
    Refused, released, and the retry under the same key succeeds.
    """
    gate, charge = world.gate(), world.Effect(ConnectionRefusedError())

    with pytest.raises(ConnectionRefusedError):
        gate.run("charge:1", marked(charge))
    charge.value = "ch_1"

    assert gate.run("charge:1", marked(charge)) == "ch_1"
    assert charge.count == 2


def test_without_the_mark_the_same_error_proves_nothing(world: Any) -> None:
    """
    It may be about the mail that was to be sent after the charge.
    """
    gate, charge = world.gate(), world.Effect(ConnectionRefusedError())

    with pytest.raises(ConnectionRefusedError):
        gate.run("charge:1", lambda: charge())
    with pytest.raises(InDoubt):
        gate.run("charge:1", lambda: charge())

    assert charge.count == 1


def test_after_the_marked_effect_the_same_error_proves_nothing(world: Any) -> None:
    """
    The charge has happened; the refused mail does not undo it.
    """
    gate, charge = world.gate(), world.Effect("ch_1")

    def pay(operation: Any) -> None:
        with operation.effect():
            charge()
        raise ConnectionRefusedError("mail")

    with pytest.raises(ConnectionRefusedError):
        gate.run("charge:1", pay)

    assert gate.get("charge:1").state == "in_doubt"


def test_the_second_of_two_marked_effects_does_not_speak_for_the_first(world: Any) -> None:
    """
    Two calls, two blocks: the first is done, so the key is not released for the refusal of the second.
    """
    gate, charge = world.gate(), world.Effect("ch_1")

    def pay(operation: Any) -> None:
        with operation.effect():
            charge()
        with operation.effect():
            raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        gate.run("charge:1", pay)

    assert gate.get("charge:1").state == "in_doubt"


def test_a_refused_second_try_in_one_run_does_not_clear_the_first(world: Any) -> None:
    """
    A function that tries twice by itself: the first try timed out, the second was refused.
    """
    gate, charge = world.gate(), world.Effect(TimeoutError())

    def pay(operation: Any) -> None:
        for _ in range(2):
            try:
                with operation.effect():
                    charge()
            except TimeoutError:
                charge.value = ConnectionRefusedError()

    with pytest.raises(ConnectionRefusedError):
        gate.run("charge:1", pay)

    assert gate.get("charge:1").state == "in_doubt"


def test_a_rejection_does_not_clear_an_earlier_attempts_doubt(world: Any) -> None:
    """
    Unknown, then refused under the same key: the first attempt may still have happened, so doubt stays.
    """
    gate, charge = world.gate(guarantee="keyed"), world.Effect(TimeoutError())

    with pytest.raises(TimeoutError):
        gate.run("charge:1", marked(charge))
    charge.value = ConnectionRefusedError()
    with pytest.raises(ConnectionRefusedError):
        gate.run("charge:1", marked(charge))

    assert gate.get("charge:1").state == "in_doubt"


def test_an_error_of_an_operation_inside_says_nothing_of_this_one(world: Any) -> None:
    """
    The inner key is released by the refusal, the outer is not: the refusal was about the inner effect.
    """
    gate, inside, charge = world.gate(), world.gate(), world.Effect(ConnectionRefusedError())

    def outer(operation: Any) -> Any:
        with operation.effect():
            return inside.run("inner:1", marked(charge))

    with pytest.raises(ConnectionRefusedError):
        gate.run("outer:1", outer)

    assert (gate.get("inner:1").state, gate.get("outer:1").state) == ("released", "in_doubt")


def test_a_gate_can_be_taught_its_errors(world: Any) -> None:
    """
    What CardDeclined means is said once, to the gate; one operation may still say otherwise.
    """
    gate = world.gate(classifier=Classifier().extended({CardDeclined: REJECTED}))

    for key, options in (("charge:1", {}), ("charge:2", {"classifier": Classifier()})):
        with pytest.raises(CardDeclined):
            gate.run(key, marked(world.Effect(CardDeclined())), **options)

    assert (gate.get("charge:1").state, gate.get("charge:2").state) == ("released", "in_doubt")


def test_a_classifier_that_is_none_is_refused_when_it_is_declared(world: Any) -> None:
    """
    A function in its place would be called with the wrong things at three in the morning.
    """
    with pytest.raises(ConfigurationError, match="classifier"):
        world.gate(classifier=lambda error: REJECTED)
