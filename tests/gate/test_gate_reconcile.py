"""In doubt: what a caller is told, and how somebody decides."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import NOT_FOUND, ConfigurationError, Found, InDoubt, OncewardError
from onceward.errors import AlreadySettled, Fault, IllegalMove, RetryAdvice


def doubtful(world: Any, key: str = "charge:1", **options: Any) -> Any:
    """A gate, with a key in doubt."""
    gate = world.gate()
    with pytest.raises(TimeoutError):
        gate.run(key, world.Effect(TimeoutError("no answer from the bank")), **options)
    return gate


def test_the_error_says_what_happened_and_how_to_resolve_it(world: Any) -> None:
    """
    What is known, the command with the record's digest and the call, for either decision; never the key.
    """
    gate = doubtful(world, "charge:secret-order")
    digest = gate.get("charge:secret-order").digest

    with pytest.raises(InDoubt) as refusal:
        gate.run("charge:secret-order", world.Effect())

    text = str(refusal.value)
    assert "TimeoutError: no answer from the bank" in text
    fence = gate.get("charge:secret-order").fence
    assert f"onceward records reconcile {digest} --fence {fence} --happened 'RESULT AS JSON'" in text
    assert f"onceward records reconcile {digest} --fence {fence} --did-not-happen" in text
    assert f"gate.reconcile(key, Found(result), fence={fence})" in text
    assert f"gate.reconcile(key, NOT_FOUND, fence={fence})" in text
    assert "secret-order" not in text
    assert (refusal.value.retry, refusal.value.fault) == (RetryAdvice.NEVER, Fault.OUTSIDE)


def test_the_error_that_left_the_doubt_says_so_itself(world: Any) -> None:
    """
    The caller whose attempt failed is told in a note on the very exception, with the same ways out.
    """
    gate, error = world.gate(), TimeoutError()

    with pytest.raises(TimeoutError) as raised:
        gate.run("charge:secret-order", world.Effect(error))

    assert raised.value is error
    assert gate.get("charge:secret-order").digest in error.__notes__[0]
    assert "secret-order" not in error.__notes__[0]


def test_after_a_crash_the_error_says_that_the_holder_is_gone(world: Any) -> None:
    """
    There is no exception to tell of; that the lease ran out is what is known.
    """
    world.crash("charge:1")
    world.env.advance(61)

    with pytest.raises(InDoubt, match="its lease ran out"):
        world.gate().run("charge:1", world.Effect())


def test_found_settles_it(world: Any) -> None:
    """
    It happened, with this result: every later caller gets that, and it never runs.
    """
    gate, charge = doubtful(world), world.Effect()

    shown = gate.reconcile("charge:1", Found({"id": "ch_1"}))

    assert (shown.state, shown.result, shown.doubt) == ("settled", {"id": "ch_1"}, False)
    assert gate.run("charge:1", charge) == {"id": "ch_1"}
    assert charge.count == 0
    assert gate.in_doubt() == ()


def test_not_found_releases_it(world: Any) -> None:
    """
    It did not happen: the next caller runs it.
    """
    gate, charge = doubtful(world), world.Effect("ch_1")

    assert gate.reconcile("charge:1", NOT_FOUND).state == "released"
    assert gate.run("charge:1", charge) == "ch_1"
    assert charge.count == 1


@pytest.mark.parametrize("answer", [Found("ch_1"), NOT_FOUND], ids=repr)
def test_it_clears_sticky_doubt(world: Any, answer: Any) -> None:
    """
    Besides a settle, a decision is the only thing that does.
    """
    gate = doubtful(world, guarantee="keyed")

    gate.reconcile("charge:1", answer)

    assert not gate.get("charge:1").doubt


def test_a_lapsed_claim_can_be_decided(world: Any) -> None:
    """
    Nobody has to call first to make it in doubt.
    """
    world.crash("charge:1")
    world.env.advance(61)

    assert world.gate().reconcile("charge:1", Found("ch_1")).state == "settled"


def test_a_live_claim_is_left_to_its_holder(world: Any) -> None:
    """
    Refused with how long to wait, and the holder ends as if nobody had asked.
    """
    gate, other, heard = world.gate(), world.gate(), []

    def pay() -> str:
        heard.append(world.hear(lambda: other.reconcile("charge:1", NOT_FOUND)))
        return "ch_1"

    assert gate.run("charge:1", pay) == "ch_1"
    assert isinstance(heard[0], IllegalMove)
    assert heard[0].retry_after_seconds == 60
    assert gate.get("charge:1").state == "settled"


def test_deciding_the_same_again_changes_nothing(world: Any) -> None:
    """
    An operator may repeat a command.
    """
    gate = doubtful(world)

    first = gate.reconcile("charge:1", Found("ch_1"))
    world.env.advance(5)

    assert first.settled_at == gate.reconcile("charge:1", Found("ch_1")).settled_at


def test_deciding_otherwise_is_refused(world: Any) -> None:
    """
    The first result stands, whether a run or a person gave it.
    """
    gate = doubtful(world)
    gate.reconcile("charge:1", Found("ch_1"))

    with pytest.raises(AlreadySettled):
        gate.reconcile("charge:1", Found("ch_2"))
    with pytest.raises(IllegalMove):
        gate.reconcile("charge:1", NOT_FOUND)

    assert gate.run("charge:1", world.Effect()) == "ch_1"


def test_an_unknown_key_cannot_be_decided(world: Any) -> None:
    """
    Nothing was ever claimed, and nothing is made up.
    """
    gate = world.gate()

    with pytest.raises(IllegalMove):
        gate.reconcile("charge:1", Found("ch_1"))

    assert gate.rows() == []


@pytest.mark.parametrize("answer", ["ch_1", None, True, {"id": "ch_1"}, Found, ("ch_1",)], ids=repr)
def test_an_answer_that_is_neither_found_nor_not_found_is_refused(world: Any, answer: Any) -> None:
    """
    A bare result is most likely meant as one. Taking it for "it did not happen" would run it again.
    """
    gate = doubtful(world)

    assert isinstance(world.hear(lambda: gate.reconcile("charge:1", answer)), OncewardError)
    assert gate.get("charge:1").state == "in_doubt"


def test_a_result_that_cannot_be_stored_is_refused_as_one_of_our_errors(world: Any) -> None:
    """
    And the record stays as it was.
    """
    gate = doubtful(world)

    assert isinstance(world.hear(lambda: gate.reconcile("charge:1", Found(object()))), OncewardError)
    assert gate.get("charge:1").state == "in_doubt"


def test_a_plans_step_in_doubt_can_be_decided_from_python(world: Any) -> None:
    """
    The error names a call that works: also where the record is a step and not a key.
    """
    gate = world.gate()
    plan = gate.plan("migrate-1")
    with pytest.raises(TimeoutError):
        plan.step("seed", world.Effect(TimeoutError()))

    with pytest.raises(InDoubt) as refusal:
        plan.step("seed", world.Effect())

    assert "gate.reconcile(key," not in str(refusal.value)


def test_a_late_holder_learns_that_somebody_decided(world: Any) -> None:
    """
    Deciding takes the claim away: what the late holder brings is not stored.
    """
    gate, other = world.gate(), world.gate()

    def slow() -> str:
        world.env.advance(61)
        other.reconcile("charge:1", Found("by hand"))
        return "late"

    heard = world.hear(lambda: gate.run("charge:1", slow))

    assert (heard.code, heard.outcome.value) == ("ownership_lost", "by hand")
    assert gate.run("charge:1", world.Effect()) == "by hand"


def test_a_decision_needs_a_key_that_can_be_one(world: Any) -> None:
    """
    Every way in checks the key in the same way.
    """
    with pytest.raises((ConfigurationError, OncewardError), match="the key"):
        world.gate().reconcile("", NOT_FOUND)


def test_an_answer_about_an_earlier_attempt_does_not_decide_a_later_one(world: Any) -> None:
    """
    Two people look into the same doubt. What the slower one found out is not about what has begun since.
    """
    gate = doubtful(world)
    looked_into = gate.get("charge:1").fence
    gate.reconcile("charge:1", NOT_FOUND, fence=looked_into)
    with pytest.raises(TimeoutError):
        gate.run("charge:1", world.Effect(TimeoutError()))

    with pytest.raises(IllegalMove, match="claimed again since"):
        gate.reconcile("charge:1", NOT_FOUND, fence=looked_into)
    assert gate.get("charge:1").state == "in_doubt"
