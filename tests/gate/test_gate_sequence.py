"""Sequences: numbered from one, strictly in order, each once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from onceward import NOT_FOUND, ConfigurationError, Expired, InDoubt, InFlight, KeyReused, NotReplayable
from onceward.errors import NothingHappened, OutOfOrder, RecordedFailure, SequenceForgotten

DAY = 86_400


@pytest.mark.requirement("D23", "D26")
def test_it_starts_with_one_and_goes_on_one_by_one(world: Any) -> None:
    """
    The expected number runs, is stored, and moves the sequence on.
    """
    sequence = world.gate().sequence("turns")

    assert [sequence.run(number, world.Effect(value)) for number, value in enumerate("abc", 1)] == ["a", "b", "c"]


@pytest.mark.requirement("D24")
def test_a_number_already_taken_is_answered_with_its_result(world: Any) -> None:
    """
    The latest and older ones alike, falsy results included; nothing runs.
    """
    sequence, again = world.gate().sequence("turns"), world.Effect("again")
    for number, value in enumerate((None, 0, "c"), 1):
        sequence.run(number, world.Effect(value))

    outcomes = [sequence.call(number, again) for number in (3, 1, 2)]

    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("c", True), (None, True), (0, True)]
    assert again.count == 0


@pytest.mark.requirement("D25")
def test_a_number_too_high_is_refused_with_what_was_expected(world: Any) -> None:
    """
    Both numbers are on the error.
    """
    sequence, effect = world.gate().sequence("turns"), world.Effect()

    with pytest.raises(OutOfOrder) as early:
        sequence.run(2, effect)
    sequence.run(1, effect)
    with pytest.raises(OutOfOrder) as far:
        sequence.run(7, effect)

    assert [(error.value.expected, error.value.got) for error in (early, far)] == [(1, 2), (2, 7)]
    assert effect.count == 1


@pytest.mark.requirement("D27")
@pytest.mark.parametrize("guarantee", ["blind", "repeatable"])
def test_a_failed_number_does_not_move_it_on(world: Any, guarantee: str) -> None:
    """
    The same number is accepted again once it is known that nothing happened; the next one is not.
    """
    sequence, effect = world.gate(guarantee=guarantee).sequence("turns"), world.Effect(NothingHappened())

    with pytest.raises(NothingHappened):
        sequence.run(1, effect)
    with pytest.raises(OutOfOrder):
        sequence.run(2, effect)
    effect.value = "done"

    assert sequence.run(1, effect) == "done"
    assert sequence.run(2, effect) == "done"


@pytest.mark.requirement("D27")
@pytest.mark.fault("a-sequence-moves-on-when-it-begins")
@pytest.mark.parametrize("error", [ValueError("bug"), TimeoutError(), OSError("away"), RuntimeError()], ids=repr)
def test_whatever_a_function_raises_the_same_number_is_accepted_again(world: Any, error: Exception) -> None:
    """
    Where running it twice does no harm, any failure leaves the number where it was: again it runs, the next is refused
    until it has. Where it would do harm, the same holds once somebody has decided that nothing happened.
    """
    for guarantee in ("repeatable", "blind"):
        sequence = world.gate(guarantee=guarantee).sequence(f"turns-{guarantee}")
        effect, heard = world.Effect(error), []

        def tried(number: int, sequence: Any = sequence, effect: Any = effect, heard: list[Any] = heard) -> Any:
            try:
                heard.append(sequence.run(number, effect))
            except Exception as raised:
                heard.append(type(raised))

        tried(1)
        tried(2)
        if guarantee == "blind":
            sequence.reconcile(1, NOT_FOUND)
        effect.value = "done"
        tried(2)
        tried(1)
        tried(2)

        assert [type(error), OutOfOrder, OutOfOrder, "done", "done"] == heard
        assert effect.count == 3


def test_a_number_in_doubt_stops_it_until_somebody_decides(world: Any) -> None:
    """
    Neither that number nor the next one runs.
    """
    sequence, effect = world.gate().sequence("turns"), world.Effect(TimeoutError())
    with pytest.raises(TimeoutError):
        sequence.run(1, effect)

    with pytest.raises(InDoubt):
        sequence.run(1, effect)
    with pytest.raises(OutOfOrder):
        sequence.run(2, effect)

    assert effect.count == 1


@pytest.mark.requirement("D28")
@pytest.mark.parametrize("number", [0, -1, -(10**18)])
def test_a_number_that_never_was_is_a_typed_error(world: Any, number: int) -> None:
    """
    Zero and below.
    """
    sequence, effect = world.gate().sequence("turns"), world.Effect()
    sequence.run(1, effect)

    with pytest.raises(SequenceForgotten):
        sequence.run(number, effect)

    assert effect.count == 1


@pytest.mark.parametrize("number", [True, 1.0, "1", None, 2**53 + 1], ids=repr)
def test_what_is_no_whole_number_is_refused(world: Any, number: Any) -> None:
    """
    And so is one that JSON could not carry.
    """
    with pytest.raises(ConfigurationError):
        world.gate().sequence("turns").run(number, world.Effect())


@pytest.mark.requirement("D28", "D29")
def test_it_survives_restarts_and_purges_and_stays_bounded(world: Any) -> None:
    """
    Old results go, their numbers are a typed error, and the mark stays where it was for ever.
    """
    gate, effect = world.gate(), world.Effect()
    for number in range(1, 21):
        gate.sequence("turns").run(number, effect)
    world.env.advance(31 * DAY)
    gate.purge()

    restarted = world.gate().sequence("turns")

    assert [row.kind for row in gate.rows()] == ["sequence"]
    with pytest.raises(SequenceForgotten, match="21 is next"):
        restarted.run(7, effect)
    with pytest.raises(OutOfOrder):
        restarted.run(22, effect)
    assert effect.count == 20
    restarted.run(21, effect)
    assert effect.count == 21


def test_a_result_past_its_retention_is_not_run_again(world: Any) -> None:
    """
    Expired, purged or not: it did run.
    """
    gate, effect = world.gate(), world.Effect()
    gate.sequence("turns").run(1, effect)
    world.env.advance(DAY)

    with pytest.raises((SequenceForgotten, Expired)):
        gate.sequence("turns").run(1, effect)

    assert effect.count == 1


def test_a_process_that_died_before_it_moved_the_mark_is_made_up_for(world: Any) -> None:
    """
    The number had settled: the next caller moves on from there.
    """
    gate, store = world.faulty()
    effect, dead = world.Effect(), []

    def kill(number: int, what: str) -> None:
        if dead or store.calls.count("settled") == 2:
            dead.append(True)
            raise world.Died

    store.before = kill
    with pytest.raises(world.Died):
        gate.sequence("turns").run(1, effect)
    resumed = world.gate().sequence("turns")

    assert [resumed.run(1, effect), resumed.run(2, effect)] == ["done", "done"]
    assert effect.count == 2


def test_a_number_with_another_request_is_refused(world: Any) -> None:
    """
    While it is the latest and when it lies behind.
    """
    sequence = world.gate().sequence("turns")
    for number in (1, 2):
        sequence.run(number, world.Effect(), request=number)

    for number in (1, 2):
        with pytest.raises(KeyReused):
            sequence.run(number, world.Effect(), request="other")


def test_a_number_whose_result_could_not_be_kept_says_so(world: Any) -> None:
    """
    It ran; the sequence goes on; asking for it again is told that.
    """
    sequence, effect = world.gate().sequence("turns"), world.Effect(object())
    sequence.run(1, effect)
    effect.value = "done"

    with pytest.raises((NotReplayable, SequenceForgotten)):
        sequence.run(1, effect)
    assert (sequence.run(2, effect), effect.count) == ("done", 2)


def test_a_remembered_failure_neither_moves_it_on_nor_is_forgotten(world: Any) -> None:
    """
    With remember="all" the number's answer is its failure; a failure does not move a sequence.
    """
    sequence, effect = world.gate(remember="all").sequence("turns"), world.Effect(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        sequence.run(1, effect)

    with pytest.raises(RecordedFailure):
        sequence.run(1, effect)
    assert effect.count == 1


def test_an_answer_that_is_not_remembered_does_not_move_it_on(world: Any) -> None:
    """
    The number is free again, so it is still the next.
    """
    sequence = world.gate().sequence("turns", remember=lambda ended: ended[0] != "busy")
    sequence.run(1, world.Effect("busy"))

    assert sequence.run(1, world.Effect("done")) == "done"


def test_sequences_of_other_names_and_scopes_count_by_themselves(world: Any) -> None:
    """
    Each has its own number one.
    """
    effect = world.Effect()

    for scope in ("acme", "other"):
        for name in ("turns", "steps"):
            world.gate(scope=scope).sequence(name).run(1, effect)

    assert effect.count == 4


@pytest.mark.requirement("D30")
def test_a_second_writer_is_never_interleaved(world: Any) -> None:
    """
    While number one runs, a second writer of it is refused or waits, and number two is out of order.
    """
    first, second, heard = world.gate().sequence("turns"), world.gate(wait=1).sequence("turns"), []

    def slow() -> str:
        heard.extend(world.hear(lambda number=number: second.run(number, world.Effect())) for number in (1, 2))
        return "first"

    assert first.run(1, slow) == "first"
    assert [InFlight, OutOfOrder] == [type(error) for error in heard]
    assert second.run(1, world.Effect()) == "first"


@pytest.mark.requirement("D30")
def test_many_writers_at_once_run_every_number_once_and_in_order(threads: Any) -> None:
    """
    Eight writers each want to write one to six: every number runs once, and all agree on every result.
    """
    gates, order, lock, together = [threads.gate() for _ in range(4)], [], threading.Lock(), threading.Barrier(8)

    def work(number: int, writer: int) -> int:
        with lock:
            order.append(number)
        return writer

    def writer(me: int) -> list[int]:
        sequence = gates[me % 4].sequence("turns")
        together.wait()
        return [sequence.run(number, partial(work, number, me)) for number in range(1, 7)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(writer, range(8)))

    assert order == [1, 2, 3, 4, 5, 6]
    assert len({tuple(answer) for answer in answers}) == 1
