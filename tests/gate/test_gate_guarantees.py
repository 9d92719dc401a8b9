"""What is known after a failure, by what the effect promises: and when a key is released."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import InDoubt
from onceward.errors import NothingHappened
from onceward.gate import Returned


class Refused(Exception):
    """The other side said no."""


class TestBlind:
    """The default: nobody can look it up or send it again, so nobody runs it again unless that is harmless."""

    def test_an_unknown_error_leaves_it_in_doubt_and_it_does_not_run_again(self, world: Any) -> None:
        """
        A timeout does not say whether the card was charged.
        """
        gate, charge = world.gate(), world.Effect(TimeoutError("no answer"))

        with pytest.raises(TimeoutError) as raised:
            gate.run("charge:1", charge)
        for _ in range(3):
            with pytest.raises(InDoubt):
                gate.run("charge:1", charge)

        assert charge.count == 1
        assert gate.get("charge:1").state == "in_doubt"
        assert "in doubt" in "".join(raised.value.__notes__)

    def test_nothing_happened_releases_it(self, world: Any) -> None:
        """
        The function says so itself; the next call runs, as the second attempt.
        """
        gate, charge = world.gate(), world.Effect(NothingHappened("card refused"))

        with pytest.raises(NothingHappened):
            gate.run("charge:1", charge)
        charge.value = "ch_1"
        outcome = gate.call("charge:1", charge)

        assert (outcome.value, outcome.replayed, outcome.attempt) == ("ch_1", False, 2)
        assert charge.count == 2

    def test_only_the_types_named_as_before_release_it(self, world: Any) -> None:
        """
        A declared type and its subclasses prove that nothing happened; their relatives prove nothing.
        """
        gate = world.gate()

        with pytest.raises(ConnectionRefusedError):
            gate.run("charge:1", world.Effect(ConnectionRefusedError()), before=ConnectionRefusedError)
        with pytest.raises(ConnectionResetError):
            gate.run("charge:2", world.Effect(ConnectionResetError()), before=(ConnectionRefusedError, Refused))

        assert gate.get("charge:1").state == "released"
        assert gate.get("charge:2").state == "in_doubt"

    def test_a_crash_is_in_doubt_as_soon_as_the_lease_has_lapsed(self, world: Any) -> None:
        """
        Not before: until then the holder may still be at it.
        """
        gate, charge = world.gate(wait=0), world.Effect()
        world.crash("charge:1", charge)

        assert world.hear(lambda: gate.run("charge:1", charge)).code == "in_flight"
        world.env.advance(60)
        assert world.hear(lambda: gate.run("charge:1", charge)).code == "in_doubt"
        assert charge.count == 1
        assert [one.state for one in gate.in_doubt()] == ["in_doubt"]


class TestTheMarkedEffect:
    """`with operation.effect():` tells what came before the effect from what came after it."""

    def test_a_typo_before_the_effect_needs_no_operator(self, world: Any) -> None:
        """
        Whatever is raised before the block releases the key, whatever its type.
        """
        gate, charge, broken = world.gate(), world.Effect("ch_1"), [True]

        def pay(operation: Any) -> Any:
            if broken:
                {}["typo"]
            with operation.effect():
                return charge()

        with pytest.raises(KeyError):
            gate.run("charge:1", pay)
        assert gate.get("charge:1").state == "released"
        broken.clear()
        assert gate.run("charge:1", pay) == "ch_1"
        assert charge.count == 1

    def test_an_unknown_error_inside_leaves_it_in_doubt(self, world: Any) -> None:
        """
        The effect had begun.
        """
        gate = world.gate()

        def pay(operation: Any) -> None:
            with operation.effect():
                raise TimeoutError

        with pytest.raises(TimeoutError):
            gate.run("charge:1", pay)

        assert gate.get("charge:1").state == "in_doubt"

    @pytest.mark.parametrize("error", [NothingHappened, Refused])
    def test_a_rejection_inside_releases_it(self, world: Any, error: type[Exception]) -> None:
        """
        Inside the block the verdict counts: NothingHappened, or a type declared before=.
        """
        gate = world.gate()

        def pay(operation: Any) -> None:
            with operation.effect():
                raise error

        with pytest.raises(error):
            gate.run("charge:1", pay, before=Refused)

        assert gate.get("charge:1").state == "released"

    @pytest.mark.parametrize("error", [NothingHappened, Refused, KeyError])
    def test_nothing_that_is_raised_after_it_releases_it(self, world: Any, error: type[Exception]) -> None:
        """
        charge(); send_mail() with the mail refused must not charge again.
        """
        gate, charge = world.gate(), world.Effect()

        def pay(operation: Any) -> None:
            with operation.effect():
                charge()
            raise error

        with pytest.raises(error):
            gate.run("charge:1", pay, before=Refused)
        with pytest.raises(InDoubt):
            gate.run("charge:1", pay, before=Refused)

        assert charge.count == 1

    def test_a_rejection_is_not_believed_when_another_error_came_out_of_the_block(self, world: Any) -> None:
        """
        A timeout inside, turned into a rejection outside: the timeout is what is known.
        """
        gate, charge = world.gate(), world.Effect(TimeoutError())

        def pay(operation: Any) -> None:
            try:
                with operation.effect():
                    charge()
            except TimeoutError:
                raise Refused from None

        with pytest.raises(Refused):
            gate.run("charge:1", pay, before=Refused)

        assert gate.get("charge:1").state == "in_doubt"

    def test_a_rejection_of_the_second_try_does_not_speak_for_the_first(self, world: Any) -> None:
        """
        A function that tries twice by itself: the first try timed out, and may have happened.
        """
        gate, charge = world.gate(), world.Effect(TimeoutError("it happened, the answer was lost"))

        def pay(operation: Any) -> None:
            for _ in range(2):
                try:
                    with operation.effect():
                        charge()
                except TimeoutError:
                    charge.value = Refused()

        with pytest.raises(Refused):
            gate.run("charge:1", pay, before=Refused)

        assert gate.get("charge:1").state == "in_doubt"

    def test_a_block_in_a_function_defined_inside_does_not_mark_the_outer_one(self, world: Any) -> None:
        """
        The inner function's operation is its own; what the outer one raises is not before anybody's effect.
        """
        gate, charge = world.gate(), world.Effect()

        def pay(operation: Any) -> None:
            def mail(operation: Any) -> None:
                with operation.effect():
                    raise AssertionError("never called")

            charge()
            raise KeyError(mail.__name__)

        with pytest.raises(KeyError):
            gate.run("charge:1", pay)

        assert gate.get("charge:1").state == "in_doubt"

    def test_a_declared_function_is_marked_in_the_same_way(self, world: Any) -> None:
        """
        Under @gate.once the block means the same.
        """
        charge = world.Effect()
        gate = world.gate()

        @gate.once(key="charge:{order}")
        def pay(order: str, fails: str, *, operation: Any) -> None:
            if fails == "before":
                raise KeyError
            with operation.effect():
                charge()
            if fails == "after":
                raise KeyError

        for fails in ("before", "after"):
            with pytest.raises(KeyError):
                pay(fails, fails)

        assert (gate.get("charge:before").state, gate.get("charge:after").state) == ("released", "in_doubt")
        assert charge.count == 1


def test_without_the_marker_a_refused_mail_does_not_charge_again(world: Any) -> None:
    """
    An exception's type is no proof in a body that does several things.
    """
    gate, charge, mail = world.gate(), world.Effect(), world.Effect(ConnectionRefusedError("mail"))

    def pay() -> None:
        charge()
        mail()

    with pytest.raises(ConnectionRefusedError):
        gate.run("charge:1", pay)
    with pytest.raises(InDoubt):
        gate.run("charge:1", pay)

    assert charge.count == 1


def test_a_gated_mail_that_says_nothing_happened_speaks_for_itself_only(world: Any) -> None:
    """
    The inner operation's NothingHappened is about the mail; the charge around it did happen.
    """
    gate, inner = world.gate(), world.gate()
    charge, mail = world.Effect(), world.Effect(NothingHappened("mail refused"))

    def pay() -> None:
        charge()
        inner.run("mail:1", mail)

    with pytest.raises(NothingHappened):
        gate.run("charge:1", pay)

    assert gate.get("mail:1").state == "released"
    assert gate.get("charge:1").state == "in_doubt"


class TestRepeatable:
    """Harmless to run again: stored for its answer."""

    def test_an_unknown_error_releases_it(self, world: Any) -> None:
        """
        The next call runs it again.
        """
        gate, ask = world.gate(), world.Effect(TimeoutError())

        with pytest.raises(TimeoutError):
            gate.run("ask:1", ask, guarantee="repeatable")
        ask.value = "answer"

        assert [gate.run("ask:1", ask, guarantee="repeatable") for _ in range(2)] == ["answer"] * 2
        assert ask.count == 2

    def test_a_crash_lets_the_next_caller_run_it(self, world: Any) -> None:
        """
        As soon as the lease has lapsed.
        """
        gate, ask = world.gate(), world.Effect()
        world.crash("ask:1", ask, guarantee="repeatable")
        world.env.advance(60)

        assert gate.call("ask:1", ask, guarantee="repeatable").attempt == 2
        assert ask.count == 2


def test_a_predicate_that_raises_does_not_make_it_run_again(world: Any) -> None:
    """
    The effect took place; what is remembered of it is unknown, so it is in doubt.
    """
    gate, charge = world.gate(), world.Effect()

    def broken(ended: Any) -> bool:
        raise KeyError(type(ended) is Returned)

    with pytest.raises(KeyError):
        gate.run("charge:1", charge, remember=broken)
    world.env.advance(61)
    with pytest.raises(InDoubt):
        gate.run("charge:1", charge)

    assert charge.count == 1
