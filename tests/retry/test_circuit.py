"""The breaker's state machine: every rule by itself, and all of them against a model written another way."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError
from onceward._core.circuit import BreakerRefusal, BreakerRule, Circuit, CircuitState, is_failure
from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward.runtime.environment import SeededRandom

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def admitted(circuit: Circuit, now: float) -> int:
    ticket = circuit.admit(now)
    assert not isinstance(ticket, BreakerRefusal)
    return ticket


def fail(circuit: Circuit, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        circuit.failed(admitted(circuit, now), now)


@pytest.mark.requirement("D58", "D59", "D60")
def test_five_failures_in_a_row_open_it_for_thirty_seconds() -> None:
    """
    Closed after four, open after five; then refused until the recovery is over, and told how long that is.
    """
    circuit = Circuit(BreakerRule())
    fail(circuit, 4)
    assert CLOSED is circuit.state
    fail(circuit, 1)

    assert OPEN is circuit.state
    assert BreakerRefusal(30.0) == circuit.admit(0.0)
    assert BreakerRefusal(0.5) == circuit.admit(29.5)
    assert CLOSED is not circuit.state
    admitted(circuit, 30.0)
    assert HALF_OPEN is circuit.state


@pytest.mark.requirement("D61")
def test_a_probe_that_succeeds_closes_it_and_begins_the_count_anew() -> None:
    """
    Afterwards it takes five failures again.
    """
    circuit = Circuit(BreakerRule())
    fail(circuit, 5)
    assert circuit.succeeded(admitted(circuit, 30), 30)

    assert CLOSED is circuit.state
    fail(circuit, 4, 31)
    assert CLOSED is circuit.state


@pytest.mark.requirement("D62")
def test_a_probe_that_fails_opens_it_for_another_recovery() -> None:
    """
    One failure is enough then, and the time begins anew.
    """
    circuit = Circuit(BreakerRule())
    fail(circuit, 5)
    assert circuit.failed(admitted(circuit, 30), 31)

    assert OPEN is circuit.state
    assert BreakerRefusal(29.0) == circuit.admit(32)


@pytest.mark.requirement("D63")
def test_of_twenty_arrivals_one_probes() -> None:
    """
    The others are refused until it has come back; with probes=3, three go.
    """
    for probes in (1, 3):
        circuit = Circuit(BreakerRule(probes=probes))
        fail(circuit, 5)

        assert probes == sum(not isinstance(circuit.admit(30), BreakerRefusal) for _ in range(20))


@pytest.mark.requirement("D64")
def test_alternating_failures_do_not_open_it() -> None:
    """
    A success in between begins the row anew: a hundred failures among as many successes leave it closed.
    """
    circuit = Circuit(BreakerRule())
    for _ in range(100):
        fail(circuit, 1)
        circuit.succeeded(admitted(circuit, 0), 0)

    assert CLOSED is circuit.state


@pytest.mark.requirement("D65")
def test_what_says_nothing_about_the_dependency_counts_for_nothing() -> None:
    """
    It neither trips the circuit nor saves it: two real failures out of three still open it.
    """
    circuit = Circuit(BreakerRule())
    for _ in range(5):
        circuit.ended(admitted(circuit, 0))
    assert CLOSED is circuit.state
    for _ in range(5):
        fail(circuit, 1)
        circuit.ended(circuit.serial)

    assert OPEN is circuit.state


@pytest.mark.requirement("D65", "D68", "D71")
@pytest.mark.parametrize(
    ("verdict", "counts"),
    [
        (Verdict(Certainty.UNKNOWN, Kind.UPSTREAM, Action.SAME_KEY), True),
        (Verdict(Certainty.UNKNOWN, Kind.NETWORK, Action.SAME_KEY), True),
        (Verdict(Certainty.NOT_SENT, Kind.NETWORK, Action.SAME_KEY), True),
        (Verdict(Certainty.NOT_SENT, Kind.RATE_LIMIT, Action.SAME_KEY, 3.0), True),
        (Verdict(Certainty.REJECTED, Kind.CLIENT, Action.NEVER), False),
        (Verdict(Certainty.REJECTED, Kind.AUTH, Action.REFRESH), False),
        (Verdict(Certainty.REJECTED, Kind.STATE, Action.SAME_KEY), False),
        (Verdict(Certainty.UNKNOWN, Kind.OTHER, Action.NEVER), False),
        (Verdict(Certainty.NOT_SENT, Kind.OTHER, Action.NEVER), False),
    ],
)
def test_a_failure_is_what_may_be_retried(verdict: Verdict, counts: bool) -> None:
    """
    Breaker and retry read the same verdict: refused requests, another's turn and an open circuit are no failures.
    """
    assert counts is is_failure(verdict)


def test_a_probe_that_never_comes_back_gives_its_slot_up() -> None:
    """
    After `probe_lapse` another may try, and the late one's answer changes nothing.
    """
    circuit = Circuit(BreakerRule(probe_lapse=10))
    fail(circuit, 5)
    lost = admitted(circuit, 30)
    assert BreakerRefusal(1.0) == circuit.admit(39)
    heir = admitted(circuit, 40)

    assert not circuit.failed(lost, 41)
    assert not circuit.succeeded(lost, 41)
    assert HALF_OPEN is circuit.state
    assert circuit.succeeded(heir, 42)


def test_a_cancelled_probe_gives_its_slot_back_at_once() -> None:
    """
    It is no failure and no success: the next call probes.
    """
    circuit = Circuit(BreakerRule())
    fail(circuit, 5)
    circuit.ended(admitted(circuit, 30))

    assert HALF_OPEN is circuit.state
    admitted(circuit, 30)


def test_a_call_from_before_the_circuit_opened_changes_nothing() -> None:
    """
    A slow success that was sent before does not close it, and a slow failure does not open it again after it closed.
    """
    circuit = Circuit(BreakerRule())
    slow = admitted(circuit, 0)
    fail(circuit, 5)
    assert not circuit.succeeded(slow, 1)
    assert OPEN is circuit.state
    circuit.succeeded(admitted(circuit, 30), 30)
    for _ in range(9):
        circuit.failed(slow, 31)

    assert CLOSED is circuit.state


def test_failures_far_apart_are_no_row() -> None:
    """
    With age=10, five failures eleven seconds apart leave it closed, and five within nine seconds open it.
    """
    circuit = Circuit(BreakerRule(age=10))
    for second in range(0, 55, 11):
        fail(circuit, 1, second)
    assert CLOSED is circuit.state
    for second in range(100, 145, 9):
        fail(circuit, 1, second)

    assert OPEN is circuit.state


def test_a_rate_opens_it_where_a_row_never_comes() -> None:
    """
    Half of forty calls failing opens at rate 0.5; a third does not; fewer calls than the minimum never do.
    """

    def after(pattern: str, calls: int, **options: Any) -> CircuitState:
        circuit = Circuit(BreakerRule(rate=0.5, **options))
        for number in range(calls):
            ticket = circuit.admit(number / 10)
            if isinstance(ticket, BreakerRefusal):
                break
            end = circuit.failed if pattern[number % len(pattern)] == "x" else circuit.succeeded
            end(ticket, number / 10)
        return circuit.state

    assert OPEN is after(".x", 40)
    assert CLOSED is after("..x", 600)
    assert CLOSED is after("x", 19)
    assert OPEN is after("x", 20)
    assert CLOSED is after("x", 19, window=1)


def test_an_old_outage_leaves_the_window() -> None:
    """
    Failures older than the window count no more.
    """
    circuit = Circuit(BreakerRule(rate=0.5, window=10, calls_min=20))
    fail(circuit, 19, 0)
    for _ in range(18):
        circuit.succeeded(admitted(circuit, 30), 30)
    fail(circuit, 2, 30)

    assert CLOSED is circuit.state


def test_more_successes_may_be_asked_for() -> None:
    """
    With successes=3 it takes three probes, one after another.
    """
    circuit = Circuit(BreakerRule(successes=3))
    fail(circuit, 5)
    for _ in range(2):
        circuit.succeeded(admitted(circuit, 30), 30)
    assert HALF_OPEN is circuit.state
    circuit.succeeded(admitted(circuit, 30), 30)

    assert CLOSED is circuit.state


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0},
        {"threshold": 2.5},
        {"threshold": True},
        {"recovery": 0},
        {"recovery": float("inf")},
        {"recovery": float("nan")},
        {"probes": 0},
        {"successes": 0},
        {"probe_lapse": -1},
        {"age": 0},
        {"rate": 0},
        {"rate": 1.5},
        {"calls_min": 0},
    ],
)
def test_a_rule_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    """
    When it is declared, with the option's name.
    """
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        BreakerRule(**options)


class Against:
    """
    A random history of calls that overlap, end in any order or never, while the clock moves on.

    The model is the list of what happened; what must hold is computed from it, and from nothing of the circuit's own.
    """

    STEPS = 40

    def __init__(self, make: type[Circuit], seed: int) -> None:
        self.dice = SeededRandom(seed)
        rule = BreakerRule(
            threshold=self.dice.randint(1, 4), recovery=10, probes=self.dice.randint(1, 3), probe_lapse=7
        )
        self.circuit = make(rule)
        self.now = 0.0
        self.closed, self.streak, self.opened_at = True, 0, 0.0
        self.era = 0
        self.out: dict[int, list[Any]] = {}  # number -> [era, sent at, ticket, whether its slot was given up]
        self.number = 0

    def run(self) -> None:
        for _ in range(self.STEPS):
            self.dice.choice((self.wait, self.call, self.end))()
            assert self.closed is (self.circuit.state is CLOSED)

    def wait(self) -> None:
        self.now += self.dice.choice([0.0, 0.5, 3.0, 7.0, 10.0])

    def call(self) -> None:
        answer = self.circuit.admit(self.now)
        cooling = not self.closed and self.now < self.opened_at + 10
        probing = [one for one in self.out.values() if not self.closed and one[0] == self.era and not one[3]]
        for one in probing:
            one[3] = self.now - one[1] >= 7
        full = not self.closed and sum(not one[3] for one in probing) >= self.circuit.rule.probes
        assert isinstance(answer, BreakerRefusal) is (cooling or full)
        if isinstance(answer, BreakerRefusal):
            assert answer.retry_after > 0
            return
        self.number += 1
        self.out[self.number] = [self.era, self.now, answer, False]

    def end(self) -> None:
        if not self.out:
            return
        era, _, ticket, lost = self.out.pop(self.dice.choice(sorted(self.out)))
        end = self.dice.choice(["succeeded", "failed", "ended"])
        if end == "ended":
            self.circuit.ended(ticket)
            return
        getattr(self.circuit, end)(ticket, self.now)
        if era != self.era or lost:
            return
        self.streak = 0 if end == "succeeded" else self.streak + 1
        if end == "succeeded" and not self.closed:
            self._become(closed=True)
        elif end == "failed" and (not self.closed or self.streak >= self.circuit.rule.threshold):
            self._become(closed=False)

    def _become(self, *, closed: bool) -> None:
        self.closed, self.streak, self.opened_at = closed, 0, self.now
        self.era += 1


def search(make: type[Circuit]) -> None:
    """Two thousand histories: a seed that fails can be had again."""
    for seed in range(2_000):
        Against(make, seed).run()


@pytest.mark.requirement("D58", "D63")
def test_no_history_makes_it_do_otherwise() -> None:
    """
    Whatever calls overlap, end late or never: it admits and refuses as the list of what happened says.
    """
    search(Circuit)


class Cumulative(Circuit):
    """Counts failures and never begins anew."""

    def succeeded(self, ticket: int, now: float) -> bool:
        streak = self.streak
        changed = super().succeeded(ticket, now)
        if not changed:
            self.streak = streak
        return changed


class Stampede(Circuit):
    """Lets everybody probe."""

    def _probe(self, now: float) -> int | BreakerRefusal:
        self._probes = dict.fromkeys(self._probes, now - 1_000.0)
        return super()._probe(now)


class Unfenced(Circuit):
    """Believes calls from before the last change."""

    def failed(self, ticket: int, now: float) -> bool:
        if self.state is not CLOSED:
            self.open(now)
        return super().failed(self.serial, now)


class Sticky(Circuit):
    """A probe that never comes back keeps its slot."""

    def _probe(self, now: float) -> int | BreakerRefusal:
        self._probes = dict.fromkeys(self._probes, now)
        return super()._probe(now)


@pytest.mark.parametrize("fault", [Cumulative, Stampede, Unfenced, Sticky])
def test_a_planted_fault_is_found(fault: type[Circuit]) -> None:
    """
    The search above is able to fail.
    """
    with pytest.raises(AssertionError):
        search(fault)
