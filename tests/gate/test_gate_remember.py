"""Which endings are kept: successes, all of them, or those that a predicate picks."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError, InDoubt
from onceward.errors import NothingHappened, RecordedFailure, RetryAdvice
from onceward.gate import Raised, Returned


class CardDeclined(Exception):
    code = "card_declined"


class TestSuccess:
    """The default: a failure is never an answer."""

    @pytest.mark.requirement("D79", "E39")
    def test_a_failure_is_not_replayed(self, world: Any) -> None:
        """
        Nothing happened and it is mended: it runs. Nobody knows: it is in doubt. Never the stored failure.
        """
        gate, charge = world.gate(), world.Effect(CardDeclined("declined"))

        with pytest.raises(CardDeclined):
            gate.run("charge:1", charge, before=CardDeclined)
        with pytest.raises(CardDeclined):
            gate.run("charge:2", charge)
        charge.value = "ch_1"

        assert gate.run("charge:1", charge, before=CardDeclined) == "ch_1"
        with pytest.raises(InDoubt):
            gate.run("charge:2", charge)

    @pytest.mark.parametrize("retain", [None, float("inf"), 0])
    @pytest.mark.requirement("D79")
    def test_there_is_no_keeping_for_ever(self, world: Any, retain: Any) -> None:
        """
        An answer without an end to its retention is a configuration error.
        """
        with pytest.raises(ConfigurationError):
            world.gate().run("charge:1", world.Effect(), retain=retain)


class TestAll:
    """Failures are stored, too, and replayed as data."""

    @pytest.mark.requirement("E08", "E39")
    def test_a_failure_is_replayed_and_does_not_run_again(self, world: Any) -> None:
        """
        The first caller gets its own exception; later ones get what was recorded of it.
        """
        gate, charge = world.gate(remember="all"), world.Effect(CardDeclined("insufficient funds"))

        with pytest.raises(CardDeclined):
            gate.run("charge:1", charge)
        for _ in range(2):
            with pytest.raises(RecordedFailure) as replayed:
                gate.run("charge:1", charge)

        failure = replayed.value
        assert charge.count == 1
        assert failure.type.rpartition(".")[2] == "CardDeclined"
        assert (failure.message, failure.failure_code) == ("insufficient funds", "card_declined")
        assert RetryAdvice.NEW_KEY is failure.retry

    def test_a_recorded_failure_is_data_and_never_the_class_that_was_raised(self, world: Any) -> None:
        """
        No class is looked up by a stored name: also the library's own comes back as data.
        """
        gate = world.gate(remember="all")
        with pytest.raises(InDoubt):
            gate.run("charge:1", world.Effect(InDoubt("inner")))

        with pytest.raises(RecordedFailure) as replayed:
            gate.run("charge:1", world.Effect())

        assert RecordedFailure is type(replayed.value)
        assert replayed.value.__cause__ is None

    def test_a_success_is_stored_as_ever(self, world: Any) -> None:
        """
        Remembering failures takes nothing away.
        """
        gate, charge = world.gate(remember="all"), world.Effect("ch_1")

        assert [gate.run("charge:1", charge) for _ in range(2)] == ["ch_1"] * 2
        assert charge.count == 1

    def test_nothing_happened_is_not_a_failure_to_remember(self, world: Any) -> None:
        """
        It is proof that the key is free.
        """
        gate, charge = world.gate(remember="all"), world.Effect(NothingHappened())

        with pytest.raises(NothingHappened):
            gate.run("charge:1", charge)
        charge.value = "ch_1"

        assert gate.run("charge:1", charge) == "ch_1"

    def test_an_interrupt_is_not_an_answer(self, world: Any) -> None:
        """
        Somebody pressed Ctrl-C: that says nothing about the charge, so it is in doubt.
        """
        gate = world.gate(remember="all")

        with pytest.raises(KeyboardInterrupt):
            gate.run("charge:1", world.Effect(KeyboardInterrupt()))

        assert gate.get("charge:1").state == "in_doubt"

    def test_an_exception_that_cannot_be_written_down_is_remembered_all_the_same(self, world: Any) -> None:
        """
        Its text raises; its type is kept.
        """

        class Unspeakable(Exception):
            def __str__(self) -> str:
                raise KeyError("no text")

            __repr__ = __str__

        gate = world.gate(remember="all")
        with pytest.raises(Unspeakable):
            gate.run("charge:1", world.Effect(Unspeakable()))

        with pytest.raises(RecordedFailure, match="Unspeakable"):
            gate.run("charge:1", world.Effect())


class TestAPredicate:
    """What is kept is a function of how it ended."""

    @pytest.mark.requirement("E39")
    def test_it_sees_both_kinds_of_ending(self, world: Any) -> None:
        """
        Returned with the value, Raised with the error.
        """
        seen: list[Any] = []
        gate, error = world.gate(), CardDeclined()

        def remember(ended: Any) -> bool:
            seen.append(ended)
            return True

        gate.run("charge:1", world.Effect("ch_1"), remember=remember)
        with pytest.raises(CardDeclined):
            gate.run("charge:2", world.Effect(error), remember=remember)

        assert [Returned("ch_1"), Raised(error)] == seen
        assert (gate.get("charge:1").state, gate.get("charge:2").state) == ("settled", "settled")

    def test_what_it_does_not_want_is_given_and_not_kept(self, world: Any) -> None:
        """
        An answer of 503 goes to its caller; the key is free for the next.
        """
        gate, call = world.gate(), world.Effect({"status": 503})

        def remember(ended: Any) -> bool:
            return isinstance(ended, Returned) and ended.value["status"] < 500

        first = gate.call("call:1", call, remember=remember)
        call.value = {"status": 201}
        second, third = (gate.call("call:1", call, remember=remember) for _ in range(2))

        assert (first.value["status"], first.replayed, first.replayable) == (503, False, False)
        assert (second.value["status"], second.replayed, second.attempt) == (201, False, 2)
        assert (third.value["status"], third.replayed, third.attempt) == (201, True, 2)
        assert call.count == 2

    def test_it_may_keep_some_failures_and_not_others(self, world: Any) -> None:
        """
        A declined card is final, a timeout is unknown.
        """
        gate = world.gate(remember=lambda ended: isinstance(ended, Raised) and isinstance(ended.error, CardDeclined))

        with pytest.raises(CardDeclined):
            gate.run("charge:1", world.Effect(CardDeclined()))
        with pytest.raises(TimeoutError):
            gate.run("charge:2", world.Effect(TimeoutError()))

        assert (gate.get("charge:1").state, gate.get("charge:2").state) == ("settled", "in_doubt")


@pytest.mark.requirement("C62")
@pytest.mark.parametrize("remember", ["success", "all"])
def test_after_a_mended_rejection_the_same_key_serves_unless_the_body_changed(world: Any, remember: str) -> None:
    """
    Successes only: the same request runs again under its key. All: its failure stands. A changed body: a new key.
    """
    gate, charge = world.gate(remember=remember, before=ValueError), world.Effect(ValueError("400: no such customer"))
    options = {"before": ()} if remember == "all" else {}
    with pytest.raises(ValueError, match="400"):
        gate.run("charge:1", charge, request={"amount": 12}, **options)
    charge.value = "ch_1"

    same = world.hear(lambda: gate.run("charge:1", charge, request={"amount": 12}, **options))
    changed = world.hear(lambda: gate.run("charge:1", charge, request={"amount": 13}, **options))
    renewed = gate.run("charge:2", charge, request={"amount": 13}, **options)

    assert same == "ch_1" if remember == "success" else same.code == "recorded_failure"
    assert changed.code == "key_reused"
    assert renewed == "ch_1"


@pytest.mark.parametrize("remember", ["failure", None, 1, ()])
def test_an_unknown_policy_is_refused(world: Any, remember: Any) -> None:
    """
    When it is declared.
    """
    with pytest.raises(ConfigurationError, match="remember"):
        world.gate(remember=remember)
