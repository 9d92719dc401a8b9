"""What is known after a failure, by what the effect promises: and when a key is released."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import NOT_FOUND, Found, InDoubt, NothingHappened, Returned


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

        assert 1 == charge.count
        assert "in_doubt" == gate.get("charge:1").state
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

        assert ("ch_1", False, 2) == (outcome.value, outcome.replayed, outcome.attempt)
        assert 2 == charge.count

    def test_only_the_types_named_as_before_release_it(self, world: Any) -> None:
        """
        A declared type and its subclasses prove that nothing happened; their relatives prove nothing.
        """
        gate = world.gate()

        with pytest.raises(ConnectionRefusedError):
            gate.run("charge:1", world.Effect(ConnectionRefusedError()), before=ConnectionRefusedError)
        with pytest.raises(ConnectionResetError):
            gate.run("charge:2", world.Effect(ConnectionResetError()), before=(ConnectionRefusedError, Refused))

        assert "released" == gate.get("charge:1").state
        assert "in_doubt" == gate.get("charge:2").state

    def test_a_crash_is_in_doubt_as_soon_as_the_lease_has_lapsed(self, world: Any) -> None:
        """
        Not before: until then the holder may still be at it.
        """
        gate, charge = world.gate(wait=0), world.Effect()
        world.crash("charge:1", charge)

        assert "in_flight" == world.hear(lambda: gate.run("charge:1", charge)).code
        world.env.advance(60)
        assert "in_doubt" == world.hear(lambda: gate.run("charge:1", charge)).code
        assert 1 == charge.count
        assert ["in_doubt"] == [one.state for one in gate.in_doubt()]


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
        assert "released" == gate.get("charge:1").state
        broken.clear()
        assert "ch_1" == gate.run("charge:1", pay)
        assert 1 == charge.count

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

        assert "in_doubt" == gate.get("charge:1").state

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

        assert "released" == gate.get("charge:1").state

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

        assert 1 == charge.count

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

        assert "in_doubt" == gate.get("charge:1").state

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

        assert "in_doubt" == gate.get("charge:1").state

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

        assert "in_doubt" == gate.get("charge:1").state

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

        assert ("released", "in_doubt") == (gate.get("charge:before").state, gate.get("charge:after").state)
        assert 1 == charge.count


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

    assert 1 == charge.count


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

    assert "released" == gate.get("mail:1").state
    assert "in_doubt" == gate.get("charge:1").state


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

        assert ["answer"] * 2 == [gate.run("ask:1", ask, guarantee="repeatable") for _ in range(2)]
        assert 2 == ask.count

    def test_a_crash_lets_the_next_caller_run_it(self, world: Any) -> None:
        """
        As soon as the lease has lapsed.
        """
        gate, ask = world.gate(), world.Effect()
        world.crash("ask:1", ask, guarantee="repeatable")
        world.env.advance(60)

        assert 2 == gate.call("ask:1", ask, guarantee="repeatable").attempt
        assert 2 == ask.count


class TestKeyed:
    """The other side honours a key: the same one is sent again, for a stated time."""

    def test_after_an_unknown_error_it_is_sent_again_under_the_same_downstream_key(self, world: Any) -> None:
        """
        The key that is passed on is the same on every attempt; the other side sees one operation.
        """
        gate, sent = world.gate(), []

        def pay(operation: Any) -> str:
            sent.append(operation.downstream_key("stripe"))
            if len(sent) == 1:
                raise TimeoutError
            return "ch_1"

        with pytest.raises(TimeoutError):
            gate.run("charge:1", pay, guarantee="keyed")

        assert ["ch_1"] * 2 == [gate.run("charge:1", pay, guarantee="keyed") for _ in range(2)]
        assert 2 == len(sent)
        assert 1 == len({*sent})

    def test_a_crash_lets_the_next_caller_send_it_again(self, world: Any) -> None:
        """
        Same key, next attempt, and the first time is remembered: the other side counts from there.
        """
        gate, began = world.gate(), world.env.wall_us()
        world.crash("charge:1", guarantee="keyed")
        world.env.advance(61)

        outcome = gate.call("charge:1", world.Effect("ch_1"), guarantee="keyed")

        assert ("ch_1", 2, began) == (outcome.value, outcome.attempt, outcome.first_at_us)

    def test_past_the_time_the_other_side_honours_it_is_in_doubt(self, world: Any) -> None:
        """
        A whole lease must still fit in, because it may be sent at its very end. From there on nobody sends it again.
        """
        gate, pay = world.gate(), world.Effect(TimeoutError())
        for key in ("charge:1", "charge:2"):
            with pytest.raises(TimeoutError):
                gate.run(key, pay, guarantee="keyed", keyed_for=3_600)
        pay.value = "ch_1"

        world.env.advance(3_600 - 60 - 0.001)
        assert "ch_1" == gate.run("charge:1", pay, guarantee="keyed", keyed_for=3_600)
        world.env.advance(0.001)
        with pytest.raises(InDoubt):
            gate.run("charge:2", pay, guarantee="keyed", keyed_for=3_600)

        assert 3 == pay.count

    def test_a_rejection_after_an_unknown_error_stays_in_doubt(self, world: Any) -> None:
        """
        Doubt is sticky: the rejection speaks for its own attempt, and a blind caller is still refused.
        """
        gate, pay = world.gate(), world.Effect(TimeoutError())
        with pytest.raises(TimeoutError):
            gate.run("charge:1", pay, guarantee="keyed")
        pay.value = NothingHappened("declined")
        with pytest.raises(NothingHappened):
            gate.run("charge:1", pay, guarantee="keyed")

        assert ("in_doubt", True) == (gate.get("charge:1").state, gate.get("charge:1").doubt)
        with pytest.raises(InDoubt):
            gate.run("charge:1", pay)

    def test_a_settle_clears_the_doubt(self, world: Any) -> None:
        """
        Once there is an answer, there is nothing left to doubt.
        """
        gate, pay = world.gate(), world.Effect(TimeoutError())
        with pytest.raises(TimeoutError):
            gate.run("charge:1", pay, guarantee="keyed")
        pay.value = "ch_1"
        gate.run("charge:1", pay, guarantee="keyed")

        assert ("settled", False) == (gate.get("charge:1").state, gate.get("charge:1").doubt)

    def test_an_answer_that_is_not_remembered_does_not_clear_the_doubt(self, world: Any) -> None:
        """
        A function that returned something not to be kept is let go, back into the doubt of the first attempt.
        """
        gate, pay, seen = world.gate(), world.Effect(TimeoutError()), []
        with pytest.raises(TimeoutError):
            gate.run("charge:1", pay, guarantee="keyed")
        pay.value = "busy"
        gate.gate.listen(lambda event: seen.append(event.happening.value))
        gate.run("charge:1", pay, guarantee="keyed", remember=lambda ended: False)

        assert "in_doubt" == gate.get("charge:1").state
        assert "in_doubt" == seen[-1]

    def test_the_stored_guarantee_counts_not_the_callers(self, world: Any) -> None:
        """
        Calling it keyed afterwards does not make a blind first attempt safe to send again; nor the reverse.
        """
        gate, pay = world.gate(), world.Effect()
        world.crash("charge:1", pay)
        world.crash("charge:2", pay, guarantee="keyed")
        world.env.advance(61)

        for key, guarantee in (("charge:1", "keyed"), ("charge:1", "repeatable"), ("charge:2", "blind")):
            with pytest.raises(InDoubt):
                gate.run(key, pay, guarantee=guarantee)

        assert 2 == pay.count


class TestProbed:
    """It can be looked up: ask, then settle or run."""

    def crashed(self, world: Any, pay: Any) -> Any:
        world.crash("charge:1", pay, guarantee="probed", probe=lambda operation: NOT_FOUND)
        world.env.advance(61)
        return world.gate()

    def test_what_the_probe_finds_is_settled_and_nothing_runs(self, world: Any) -> None:
        """
        The probe is given the operation; its answer is everybody's answer from now on.
        """
        pay, asked = world.Effect(), []
        gate = self.crashed(world, pay)

        def probe(operation: Any) -> Found:
            asked.append((operation.key, operation.attempt))
            return Found("ch_1")

        outcomes = [gate.call("charge:1", pay, guarantee="probed", probe=probe) for _ in range(2)]

        assert [("ch_1", True)] * 2 == [(outcome.value, outcome.replayed) for outcome in outcomes]
        assert [("charge:1", 2)] == asked
        assert 1 == pay.count

    def test_what_the_probe_does_not_find_runs(self, world: Any) -> None:
        """
        Asked and answered: it did not happen.
        """
        pay = world.Effect("ch_1")
        gate = self.crashed(world, pay)

        outcome = gate.call("charge:1", pay, guarantee="probed", probe=lambda operation: NOT_FOUND)

        assert ("ch_1", False, 2) == (outcome.value, outcome.replayed, outcome.attempt)
        assert ("settled", False) == (gate.get("charge:1").state, gate.get("charge:1").doubt)

    def test_a_probe_that_answered_clears_the_doubt_for_a_later_rejection(self, world: Any) -> None:
        """
        Not found, then rejected: nothing happened in either attempt.
        """
        gate = self.crashed(world, world.Effect())

        with pytest.raises(NothingHappened):
            gate.run("charge:1", world.Effect(NothingHappened()), guarantee="probed", probe=lambda operation: NOT_FOUND)

        assert "released" == gate.get("charge:1").state

    @pytest.mark.parametrize(
        "probe",
        [
            lambda operation: {}["no such id"],
            lambda operation: None,
            lambda operation: True,
            lambda operation: "ch_1",
            lambda operation: Found,
        ],
        ids=["raises", "nothing", "true", "bare", "class"],
    )
    def test_a_probe_that_cannot_tell_leaves_it_in_doubt(self, world: Any, probe: Any) -> None:
        """
        Raising and answering nonsense are alike: nobody knows, so nothing runs.
        """
        pay = world.Effect()
        gate = self.crashed(world, pay)

        with pytest.raises(InDoubt, match="the probe could not tell"):
            gate.run("charge:1", pay, guarantee="probed", probe=probe)

        assert 1 == pay.count
        assert "in_doubt" == gate.get("charge:1").state
        assert "ch_9" == gate.run("charge:1", pay, guarantee="probed", probe=lambda operation: Found("ch_9"))

    def test_the_probe_is_not_asked_when_there_is_no_doubt(self, world: Any) -> None:
        """
        A first run and a replay cost nothing more.
        """
        gate, asked = world.gate(), []

        for _ in range(2):
            gate.run("charge:1", world.Effect(), guarantee="probed", probe=asked.append)

        assert [] == asked

    def test_a_slow_probe_that_was_overtaken_does_not_run_it_a_second_time(self, world: Any) -> None:
        """
        While the first one asked, its lease ran out and a second one asked and ran. The first must not run too.
        """
        pay = world.Effect("ch_1")
        gate = self.crashed(world, pay)
        pay.count = 0

        def slow(operation: Any) -> Any:
            world.env.advance(61)
            world.gate().run("charge:1", pay, guarantee="probed", probe=lambda operation: NOT_FOUND)
            return NOT_FOUND

        world.hear(lambda: gate.run("charge:1", pay, guarantee="probed", probe=slow))

        assert 1 == pay.count

    def test_an_answer_found_while_the_store_is_away_is_put_again_within_the_lease(self, world: Any) -> None:
        """
        Settling what the probe found is retried like any other settle.
        """
        self.crashed(world, world.Effect())
        gate, store = world.faulty()
        store.fail("settled", 2)

        assert "ch_1" == gate.run("charge:1", world.Effect(), guarantee="probed", probe=lambda operation: Found("ch_1"))


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

    assert 1 == charge.count
