"""Effects that can be sent again under the same key, or looked up: what happens after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import NOT_FOUND, Found, InDoubt
from onceward.errors import NothingHappened


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

        assert [gate.run("charge:1", pay, guarantee="keyed") for _ in range(2)] == ["ch_1"] * 2
        assert len(sent) == 2
        assert len({*sent}) == 1

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
        assert gate.run("charge:1", pay, guarantee="keyed", keyed_for=3_600) == "ch_1"
        world.env.advance(0.001)
        with pytest.raises(InDoubt):
            gate.run("charge:2", pay, guarantee="keyed", keyed_for=3_600)

        assert pay.count == 3

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

        assert (gate.get("charge:1").state, gate.get("charge:1").doubt) == ("in_doubt", True)
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

        assert (gate.get("charge:1").state, gate.get("charge:1").doubt) == ("settled", False)

    def test_an_answer_that_is_not_remembered_does_not_clear_the_doubt(self, world: Any) -> None:
        """
        A function that returned something not to be kept is let go, back into the doubt of the first attempt.
        """
        gate, pay, seen = world.gate(), world.Effect(TimeoutError()), []
        with pytest.raises(TimeoutError):
            gate.run("charge:1", pay, guarantee="keyed")
        pay.value = "busy"
        gate.gate.listen(lambda event: seen.append(event.type.value))
        gate.run("charge:1", pay, guarantee="keyed", remember=lambda ended: False)

        assert gate.get("charge:1").state == "in_doubt"
        assert seen[-1] == "in_doubt"

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

        assert pay.count == 2


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

        assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("ch_1", True)] * 2
        assert asked == [("charge:1", 2)]
        assert pay.count == 1

    def test_what_the_probe_does_not_find_runs(self, world: Any) -> None:
        """
        Asked and answered: it did not happen.
        """
        pay = world.Effect("ch_1")
        gate = self.crashed(world, pay)

        outcome = gate.call("charge:1", pay, guarantee="probed", probe=lambda operation: NOT_FOUND)

        assert (outcome.value, outcome.replayed, outcome.attempt) == ("ch_1", False, 2)
        assert (gate.get("charge:1").state, gate.get("charge:1").doubt) == ("settled", False)

    def test_a_probe_that_answered_clears_the_doubt_for_a_later_rejection(self, world: Any) -> None:
        """
        Not found, then rejected: nothing happened in either attempt.
        """
        gate = self.crashed(world, world.Effect())

        with pytest.raises(NothingHappened):
            gate.run("charge:1", world.Effect(NothingHappened()), guarantee="probed", probe=lambda operation: NOT_FOUND)

        assert gate.get("charge:1").state == "released"

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

        assert pay.count == 1
        assert gate.get("charge:1").state == "in_doubt"
        assert gate.run("charge:1", pay, guarantee="probed", probe=lambda operation: Found("ch_9")) == "ch_9"

    def test_the_probe_is_not_asked_when_there_is_no_doubt(self, world: Any) -> None:
        """
        A first run and a replay cost nothing more.
        """
        gate, asked = world.gate(), []

        for _ in range(2):
            gate.run("charge:1", world.Effect(), guarantee="probed", probe=asked.append)

        assert asked == []

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

        assert pay.count == 1

    def test_an_answer_found_while_the_store_is_away_is_put_again_within_the_lease(self, world: Any) -> None:
        """
        Settling what the probe found is retried like any other settle.
        """
        self.crashed(world, world.Effect())
        gate, store = world.faulty()
        store.fail("settled", 2)

        assert gate.run("charge:1", world.Effect(), guarantee="probed", probe=lambda operation: Found("ch_1")) == "ch_1"
