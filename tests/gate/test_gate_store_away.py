"""The store fails: before, during and after. Nothing runs twice, and nobody is told a lie."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import Found, InDoubt, StoreUnavailable
from onceward._core.terms import WAITERS_MAX
from onceward.errors import RetryAdvice, Unrecorded


def test_when_the_claim_fails_nothing_runs(world: Any) -> None:
    """
    The caller is told to try again with the same key, and that works.
    """
    (gate, store), charge = world.faulty(), world.Effect("ch_1")
    store.fail("claim", 1)

    with pytest.raises(StoreUnavailable) as refusal:
        gate.run("charge:1", charge)

    assert (charge.count, refusal.value.retry) == (0, RetryAdvice.SAME_KEY)
    assert gate.run("charge:1", charge) == "ch_1"


def test_a_claim_whose_answer_was_lost_is_taken_back(world: Any) -> None:
    """
    It landed, nobody knew, nothing ran: the key is free at once and not in doubt a minute later.
    """
    (gate, store), charge = world.faulty(), world.Effect("ch_1")
    store.fail("claim", 1, performs=True)

    with pytest.raises(StoreUnavailable):
        gate.run("charge:1", charge)

    assert gate.get("charge:1").state == "released"
    assert (gate.run("charge:1", charge), charge.count) == ("ch_1", 1)


def test_a_settle_is_put_again_while_the_store_is_away(world: Any) -> None:
    """
    Within the lease: the caller notices nothing but the time.
    """
    (gate, store), charge = world.faulty(), world.Effect("ch_1")
    store.fail("settled", 5)
    before = world.env.monotonic()

    assert gate.run("charge:1", charge) == "ch_1"

    assert store.calls.count("settled") == 6
    assert 0 < world.env.monotonic() - before < 60
    assert (world.gate().run("charge:1", charge), charge.count) == ("ch_1", 1)


def test_a_settle_whose_answer_was_lost_is_recognised(world: Any) -> None:
    """
    It is put again under the same version, and found there.
    """
    (gate, store), charge = world.faulty(), world.Effect("ch_1")
    store.fail("settled", 1, performs=True)

    outcome = gate.call("charge:1", charge)

    assert (outcome.value, outcome.replayed, charge.count) == ("ch_1", False, 1)
    assert gate.call("charge:1", charge).replayed


def test_when_the_store_stays_away_the_caller_gets_the_value_with_the_error(world: Any) -> None:
    """
    It ran. The value is on the error, with the command that records it later; a retry is in doubt, never a run.
    """
    (gate, store), charge = world.faulty(), world.Effect({"id": "ch_1"})
    store.fail("settled", 10_000)
    before = world.env.monotonic()

    with pytest.raises(Unrecorded) as unrecorded:
        gate.run("charge:secret-order", charge)

    error = unrecorded.value
    assert (error.value, error.retry) == ({"id": "ch_1"}, RetryAdvice.NEVER)
    assert f"onceward records reconcile {gate.get('charge:secret-order').digest}" in str(error)
    assert "secret-order" not in str(error)
    assert pytest.approx(world.env.monotonic() - before, abs=1.5) == 60
    other = world.gate()
    with pytest.raises(InDoubt):
        other.run("charge:secret-order", charge)
    other.reconcile("charge:secret-order", Found(error.value))
    assert (other.run("charge:secret-order", charge), charge.count) == ({"id": "ch_1"}, 1)


def test_a_failure_that_cannot_be_recorded_is_raised_as_it_is(world: Any) -> None:
    """
    What the function raised matters more; the note says that the record could not be updated.
    """
    (gate, store), error = world.faulty(), TimeoutError("no answer")
    store.fail("in_doubt", 10_000)

    with pytest.raises(TimeoutError) as raised:
        gate.run("charge:1", world.Effect(error))

    assert raised.value is error
    assert "could not be updated" in "".join(error.__notes__)
    world.env.advance(61)
    with pytest.raises(InDoubt):
        world.gate().run("charge:1", world.Effect())


def test_a_crowd_of_waiters_does_not_keep_a_result_from_being_stored(world: Any) -> None:
    """
    Holding out for the store is not waiting for another holder: the limit on waiters is not for it.
    """
    (gate, store), charge = world.faulty(), world.Effect("ch_1")
    store.fail("settled", 1)
    gate.gate._waiters._table._shards[0] = {object(): (b"", None) for _ in range(WAITERS_MAX)}

    assert world.hear(lambda: gate.run("charge:1", charge)) == "ch_1"


def test_other_errors_of_the_store_are_not_taken_for_it_being_away(world: Any) -> None:
    """
    A bug in a store surfaces at once, and the record stays claimed: in doubt when its lease is over.
    """
    (gate, store), charge = world.faulty(), world.Effect()
    store.fail("settled", 1, error=ZeroDivisionError)

    with pytest.raises(ZeroDivisionError):
        gate.run("charge:1", charge)
    world.env.advance(61)
    with pytest.raises(InDoubt):
        gate.run("charge:1", charge)

    assert charge.count == 1


class Struck(BaseException):
    """Something that is no Exception, such as an interrupt."""


FAULTS = [StoreUnavailable, ZeroDivisionError, Struck]


@pytest.mark.parametrize("performs", [False, True], ids=["fails", "answer-lost"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("guarantee", ["blind", "repeatable"])
def test_whichever_call_to_the_store_fails_the_effect_takes_place_once(
    world: Any, guarantee: str, fault: type[BaseException], performs: bool
) -> None:
    """
    The first, the second, ... call fails once. A blind effect happens once at most, and the retry learns the same
    answer or is told honestly that it is in doubt; a repeatable one comes to an answer.
    """
    for position in range(1, 20):
        key, charge = f"charge:{position}", world.Effect("ch_1")
        gate, store = world.faulty(guarantee=guarantee)

        def strike(number: int, what: str, position: int = position) -> None:
            if number == position:
                raise fault

        setattr(store, "after" if performs else "before", strike)
        try:
            first = gate.run(key, charge)
        except (fault, StoreUnavailable):
            first = None
        if len(store.calls) < position:
            assert position > 2
            return
        world.env.advance(61)
        retry = world.hear(lambda key=key, charge=charge: world.gate(guarantee=guarantee).run(key, charge))

        assert first in ("ch_1", None)
        assert retry == "ch_1" or (guarantee == "blind" and first is None and isinstance(retry, InDoubt))
        assert charge.count in ((1, 2) if guarantee == "repeatable" else (1,) if retry == "ch_1" else (0, 1))
    raise AssertionError("an operation that never ends")


@pytest.mark.requirement("B38")
@pytest.mark.parametrize("position", ["before claim", "after claim", "before settled", "after settled"])
def test_a_process_killed_around_any_write_leaves_one_row_at_most(world: Any, position: str) -> None:
    """
    Killed after the settle was committed and before the reply: the retry replays. Killed earlier: in doubt or run once.
    """
    when, _, what = position.partition(" ")
    (gate, store), charge = world.faulty(), world.Effect("ch_1")
    (store.die_before if when == "before" else store.die_after)(what)

    with pytest.raises(world.Died):
        gate.run("charge:1", charge)
    world.env.advance(61)
    retry = world.hear(lambda: world.gate().run("charge:1", charge))

    assert {
        "before claim": ("ch_1", 1),
        "after claim": ("in_doubt", 0),
        "before settled": ("in_doubt", 1),
        "after settled": ("ch_1", 1),
    }[position] == (getattr(retry, "code", retry), charge.count)


def test_a_retry_while_the_store_is_away_again_changes_nothing(world: Any) -> None:
    """
    Replays need the store, too; what is settled stays settled.
    """
    (gate, store), charge = world.faulty(), world.Effect("ch_1")
    gate.run("charge:1", charge)
    for what in ("claim", "load"):
        store.fail(what, 1)
        world.hear(lambda: gate.run("charge:1", charge))

    assert (gate.run("charge:1", charge), charge.count) == ("ch_1", 1)
