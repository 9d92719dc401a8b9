"""
A store that forgets: the claim of a running operation is gone, and nobody has taken it over.
"""

from __future__ import annotations

from typing import Any

import pytest

from onceward import InDoubt, InFlight, OwnershipLost, StoreUnavailable
from onceward.errors import NothingHappened, RetryAdvice, StoreForgot


def forgetting(world: Any, value: Any = "done", *, wait: float = 0.0, then: Any = None) -> Any:
    """A function whose claim the store loses while it runs."""

    def fn(operation: Any) -> Any:
        world.forget(operation)
        world.env.advance(wait)
        if then is not None:
            then(operation)
        if isinstance(value, BaseException):
            raise value
        return value

    return fn


class TestWithinTheLease:
    """Nobody else can have had it: the ending is put back as it is."""

    @pytest.mark.fault("what-the-store-forgot-was-taken-over")
    def test_the_answer_is_put_back_and_nothing_runs_twice(self, world: Any) -> None:
        """
        The caller has its result, a retry has the same, and a listener hears that the store forgot.
        """
        heard: list[str] = []
        gate = world.gate(listeners=[lambda event: heard.append(event.type.value)])
        first = world.hear(lambda: gate.call("job:1", forgetting(world)))
        again = gate.call("job:1", effect := world.Effect("second"))

        assert not isinstance(first, OwnershipLost)
        assert (first.value, first.replayed) == ("done", False)
        assert (again.value, again.replayed, effect.count) == ("done", True, 0)
        assert (again.fence, again.first_at_us) == (first.fence, first.first_at_us)
        assert heard == ["claimed", "store_forgot", "settled", "replayed"]

    def test_a_failure_is_left_in_doubt_as_it_would_have_been(self, world: Any) -> None:
        """
        What the function raised goes to its caller; the doubt stands.
        """
        gate = world.gate()
        with pytest.raises(ZeroDivisionError):
            gate.run("job:1", forgetting(world, ZeroDivisionError()))

        assert gate.get("job:1").state == "in_doubt"

    def test_a_release_is_one(self, world: Any) -> None:
        """
        It is proved that nothing happened: the key may be used again.
        """
        gate = world.gate()
        with pytest.raises(NothingHappened):
            gate.run("job:1", forgetting(world, NothingHappened()))

        assert gate.get("job:1").state == "released"
        assert gate.run("job:1", world.Effect("now")) == "now"

    @pytest.mark.fault("a-renewal-takes-a-forgotten-claim-for-lost")
    def test_a_renewal_puts_the_claim_back(self, world: Any) -> None:
        """
        So that nobody begins it while its function still runs.
        """
        gate, other, heard = world.gate(lease=60), world.gate(wait=0), []

        def fn(operation: Any) -> str:
            world.forget(operation)
            world.env.advance(25)
            gate.sweep()
            heard.append((operation.lost, type(world.hear(lambda: other.run("job:1", world.Effect())))))
            return "done"

        assert world.hear(lambda: gate.run("job:1", fn)) == "done"
        assert heard == [(False, InFlight)]
        assert other.run("job:1", world.Effect("second")) == "done"

    @pytest.mark.parametrize("performs", [False, True])
    def test_a_store_that_is_away_meanwhile_is_waited_for(self, world: Any, performs: bool) -> None:
        """
        Putting back is tried again within the lease, and an answer that was lost is recognised.
        """
        gate, store = world.faulty()
        store.fail("putback", 1, performs=performs)

        assert gate.run("job:1", forgetting(world)) == "done"
        assert gate.run("job:1", world.Effect("second")) == "done"
        assert store.calls.count("putback") == 2

    @pytest.mark.parametrize("form", ["plan", "sequence"])
    def test_plans_and_sequences_agree(self, world: Any, form: str) -> None:
        """
        A step and a numbered operation are ended by the same flow.
        """
        gate, effect = world.gate(), world.Effect("second")
        if form == "plan":
            answers = [gate.plan("p").step("one", fn) for fn in (forgetting(world), effect)]
        else:
            answers = [gate.sequence("s").run(1, fn) for fn in (forgetting(world), effect)]

        assert (answers, effect.count) == (["done", "done"], 0)


class TestTooLate:
    """Somebody else may have had it meanwhile, and may have been forgotten as well."""

    @pytest.mark.fault("a-late-ending-is-put-back")
    def test_after_the_lease_doubt_is_put_and_not_the_answer(self, world: Any) -> None:
        """
        The caller hears that the store forgot, with what its function returned; nobody runs it until someone decides.
        """
        gate, effect = world.gate(lease=60), world.Effect("second")
        told = world.hear(lambda: gate.run("job:1", forgetting(world, wait=61)))
        again = world.hear(lambda: gate.run("job:1", effect))

        assert (type(told), getattr(told, "value", None)) == (StoreForgot, "done")
        assert (told.retry, told.code, isinstance(told, InDoubt)) == (RetryAdvice.NEVER, "store_forgot", True)
        assert "records reconcile" in str(told)
        assert (type(again), effect.count) == (InDoubt, 0)

    @pytest.mark.fault("a-lease-on-a-clock-that-sleeps")
    def test_a_suspended_host_does_not_stretch_the_lease(self, world: Any) -> None:
        """
        The clock that counts is one that goes on while the host sleeps.
        """
        gate = world.gate(lease=60)
        told = world.hear(lambda: gate.run("job:1", forgetting(world, then=lambda _: world.env.suspend(61))))

        assert type(told) is StoreForgot
        assert gate.get("job:1").state == "in_doubt"

    def test_a_renewal_that_landed_is_a_lease_confirmed(self, world: Any) -> None:
        """
        The last confirmed lease counts, not the first.
        """
        gate = world.gate(lease=60)

        def fn(operation: Any) -> str:
            world.env.advance(40)
            gate.sweep()
            world.env.advance(40)
            world.forget(operation)
            return "done"

        assert gate.run("job:1", fn) == "done"

    @pytest.mark.fault("nothing-is-too-late-to-be-put-back")
    def test_after_the_longest_hold_nothing_is_put(self, world: Any) -> None:
        """
        By then nobody knows any more whether it was erased.
        """
        gate = world.gate(lease=60, lease_max=120)
        told = world.hear(lambda: gate.run("job:1", forgetting(world, wait=121)))

        assert type(told) is StoreForgot
        assert gate.get("job:1") is None

    def test_a_late_renewal_puts_nothing_and_says_so(self, world: Any) -> None:
        """
        The function can see that its claim is lost.
        """
        gate, seen = world.gate(lease=60), []

        def fn(operation: Any) -> None:
            world.forget(operation)
            world.env.advance(61)
            gate.sweep()
            seen.append((operation.lost, gate.get("job:1")))

        world.hear(lambda: gate.run("job:1", fn))

        assert seen == [(True, None)]


class TestSomebodyElse:
    """The store forgot, and another caller came before the ending did."""

    def test_whoever_began_since_is_left_alone_and_nobody_is_told_to_repeat(self, world: Any) -> None:
        """
        It may happen twice, which cannot be helped; the first caller is told, and never "ask again".
        """
        gate, other = world.gate(), world.gate()
        told = world.hear(
            lambda: gate.run("job:1", forgetting(world, then=lambda _: other.run("job:1", world.Effect("other"))))
        )

        assert (type(told), told.value, told.retry) == (StoreForgot, "done", RetryAdvice.NEVER)
        assert "may have happened twice" in str(told)
        assert gate.run("job:1", world.Effect("third")) == "other"

    def test_who_was_overtaken_still_hears_that(self, world: Any) -> None:
        """
        A claim that lapsed and was taken over is another matter: there is a winner.
        """
        gate, other = world.gate(lease=60), world.gate()

        def slow() -> str:
            world.env.advance(61)
            other.run("job:1", world.Effect("winner"), guarantee="repeatable")
            return "too late"

        told = world.hear(lambda: gate.run("job:1", slow, guarantee="repeatable"))

        assert (type(told), told.outcome.value) == (OwnershipLost, "winner")


class TestErased:
    """Erased stays erased."""

    @pytest.mark.fault("an-erasure-leaves-no-mark")
    def test_what_was_erased_while_it_ran_does_not_come_back(self, world: Any) -> None:
        """
        Its function ends, and nothing is stored: not the answer, not doubt.
        """
        gate, operator = world.gate(), world.gate()

        def fn(operation: Any) -> str:
            assert world.do(operator.gate.records.erase()) == 1
            return "done"

        told = world.hear(lambda: gate.run("job:1", fn))

        assert (type(told), getattr(told, "value", None)) == (StoreForgot, "done")
        assert gate.rows() == []

    @pytest.mark.fault("an-erasure-leaves-no-mark")
    def test_nor_what_the_store_had_forgotten_before(self, world: Any) -> None:
        """
        The mark is of the scope: an erasure need not have seen the record.
        """
        gate, operator = world.gate(), world.gate()
        erase = lambda _: world.do(operator.gate.records.erase())  # noqa: E731
        told = world.hear(lambda: gate.run("job:1", forgetting(world, then=erase)))

        assert (type(told), gate.rows()) == (StoreForgot, [])

    def test_a_renewal_does_not_bring_it_back(self, world: Any) -> None:
        """
        It finds the mark, and the function can see that its claim is lost.
        """
        gate, operator, seen = world.gate(lease=60), world.gate(), []

        def fn(operation: Any) -> None:
            world.do(operator.gate.records.erase())
            world.env.advance(25)
            gate.sweep()
            seen.append((operation.lost, gate.rows()))

        world.hear(lambda: gate.run("job:1", fn))

        assert seen == [(True, [])]

    def test_another_scope_is_put_back_all_the_same(self, world: Any) -> None:
        """
        What somebody else has erased is no concern of this one.
        """
        gate, operator = world.gate(), world.gate(scope="acme-2")
        erase = lambda _: world.do(operator.gate.records.erase())  # noqa: E731

        assert gate.run("job:1", forgetting(world, then=erase)) == "done"

    def test_whoever_was_erased_may_come_again(self, world: Any) -> None:
        """
        A new claim works as ever, runs, and replays.
        """
        gate = world.gate()
        gate.run("job:1", world.Effect("before"))
        world.do(gate.gate.records.erase())
        answers = [gate.run("job:1", world.Effect(value)) for value in ("after", "again")]

        assert answers == ["after", "after"]

    def test_everything_of_the_scope_goes_and_nothing_else(self, world: Any) -> None:
        """
        More than a page, in every state; another scope keeps its own.
        """
        gate, other = world.gate(), world.gate(scope="acme-2")
        other.run("job:1", world.Effect("theirs"))
        for number in range(3):
            gate.run(f"job:{number}", world.Effect())
        world.hear(lambda: gate.run("job:9", forgetting_nothing))
        erased = world.do(gate.gate.records.erase())

        assert (erased, gate.rows(), len(other.rows())) == (4, [], 1)


def forgetting_nothing() -> None:
    """Fails, and leaves doubt."""
    raise StoreUnavailable
