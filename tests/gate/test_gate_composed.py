"""A policy, a breaker and a budget around an operation: replay, then breaker and budget, then claim, then attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward import (
    NOT_FOUND,
    BudgetExhausted,
    CircuitOpen,
    ConfigurationError,
    DeadlineExceeded,
    Found,
    Retry,
    deadline,
    stop_of,
)
from onceward.retry import Breaker, Budget
from onceward.testing import no_sleeping

REFUSED, UNKNOWN = ConnectionRefusedError, TimeoutError


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    with no_sleeping():
        yield


class Dependency:
    """Follows a script: errors are raised, the rest is returned; the last line goes on for ever."""

    def __init__(self, *lines: Any) -> None:
        self.lines = lines
        self.calls = 0

    def __call__(self) -> Any:
        line = self.lines[min(self.calls, len(self.lines) - 1)]
        self.calls += 1
        if isinstance(line, type) and issubclass(line, BaseException):
            raise line
        return line


def opened(world: Any, **options: Any) -> Breaker:
    breaker = Breaker("payments", environment=world.env, **options)
    breaker.trip()
    return breaker


def state(gate: Any, key: str) -> str | None:
    found = gate.get(key)
    return None if found is None else found.state


def calling(world: Any, gate: Any, how: str, body: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    """One operation, `charge:1`, by every way in."""
    if how == "once":
        declared = gate.once(key="charge:{order}", **options)(lambda order: body())
        return lambda: declared(order=1)
    if how == "plan":
        return lambda: gate.plan("order").step("charge:1", body, **options)
    return lambda: getattr(gate, how)("charge:1", body, **options)


@pytest.fixture(params=["call", "run", "once", "plan"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestTheOrder:
    """Who is asked first, and what is left behind by who says no."""

    @pytest.mark.fault("the-breaker-is-asked-before-the-record")
    def test_a_replay_is_answered_although_the_circuit_is_open(self, world: Any, how: str) -> None:
        """
        It has an answer, and nothing needs to be called for it.
        """
        gate, charge = world.gate(), Dependency("ch_1")
        breaker = Breaker("payments", environment=world.env)
        first = calling(world, gate, how, lambda: charge(), breaker=breaker)()
        breaker.trip()
        again = world.hear(calling(world, gate, how, lambda: charge(), breaker=breaker))

        assert (getattr(first, "value", first), 1) == (getattr(again, "value", again), charge.calls)

    @pytest.mark.fault("an-open-circuit-is-found-out-after-the-claim")
    def test_an_open_circuit_refuses_before_anything_is_claimed(self, world: Any, how: str) -> None:
        """
        No record, no doubt, no call; and when it is closed again the same call succeeds.
        """
        gate, charge = world.gate(), Dependency("ch_1")
        breaker = opened(world)
        pay = calling(world, gate, how, lambda: charge(), breaker=breaker)
        with pytest.raises(CircuitOpen) as raised:
            pay()

        assert (gate.rows(), charge.calls) == ([], 0)
        assert raised.value.digest is not None
        breaker.reset()
        assert getattr(answer := pay(), "value", answer) == "ch_1"

    def test_a_breaker_inside_the_policy_is_asked_at_the_same_place(self, world: Any) -> None:
        """
        `Retry(breaker=...)` and `breaker=` are the same breaker, in the same place.
        """
        gate, charge = world.gate(), Dependency("ch_1")
        policy = Retry(breaker=opened(world), environment=world.env)
        with pytest.raises(CircuitOpen):
            gate.run("charge:1", lambda: charge(), retry=policy)

        assert (gate.rows(), charge.calls) == ([], 0)

    def test_a_deadline_that_is_over_refuses_before_anything_is_claimed(self, world: Any) -> None:
        """
        There is no time left: nothing is claimed, and a replay is still answered.
        """
        gate, charge = world.gate(), Dependency("ch_1")
        policy = Retry(environment=world.env)
        gate.run("charge:2", lambda: charge(), retry=policy)
        with deadline(1, environment=world.env):
            world.env.advance(2)
            with pytest.raises(DeadlineExceeded):
                gate.run("charge:1", lambda: charge(), retry=policy)
            assert gate.run("charge:2", lambda: charge(), retry=policy) == "ch_1"

        assert (state(gate, "charge:1"), charge.calls) == (None, 1)

    @pytest.mark.fault("a-run-after-a-failed-one-is-not-paid-for")
    def test_a_run_after_a_failed_one_is_paid_for_before_the_claim(self, world: Any) -> None:
        """
        Whoever asks for it: the framework around us retries, and the budget holds for that, too.
        """
        gate, budget = world.gate(), Budget(burst=1, environment=world.env)
        charge = Dependency(ValueError)
        heard: list[Any] = []
        for _ in range(3):
            try:
                gate.run("charge:1", lambda: charge(), before=ValueError, budget=budget)
            except (ValueError, BudgetExhausted) as error:
                heard.append(error)

        assert [ValueError, ValueError, BudgetExhausted] == [type(error) for error in heard]
        assert (state(gate, "charge:1"), charge.calls, heard[-1].key) == ("released", 2, "charge:1")

    def test_a_probe_that_another_has_taken_leaves_nothing_behind(self, world: Any) -> None:
        """
        The recovery is over, and somebody else's probe is under way: refused, and the key is free.
        """
        gate, charge = world.gate(), Dependency("ch_1")
        breaker = opened(world)
        world.env.advance(31)
        assert isinstance(breaker.admit(), int)
        with pytest.raises(CircuitOpen):
            gate.run("charge:1", lambda: charge(), breaker=breaker)

        assert (charge.calls, [row for row in gate.rows() if row.state != "released"]) == (0, [])

    def test_a_fallback_is_not_stored_as_the_answer(self, world: Any, how: str) -> None:
        """
        The effect has not taken place: what a fallback says is no result of it.
        """
        gate, charge = world.gate(), Dependency("ch_1")
        breaker = opened(world, fallback=lambda _: "instead")
        for parts in ({"breaker": breaker}, {"retry": Retry(breaker=breaker, environment=world.env)}):
            with pytest.raises(CircuitOpen):
                calling(world, gate, how, lambda: charge(), **parts)()

        assert gate.rows() == []


class TestAttempts:
    """Several attempts under one claim: repeated where that is safe, and doubt is sticky."""

    @pytest.mark.parametrize("guarantee", ["keyed", "repeatable"])
    def test_an_unknown_outcome_is_tried_again_where_the_guarantee_allows_it(
        self, world: Any, how: str, guarantee: str
    ) -> None:
        """
        Three attempts, one claim, one answer.
        """
        gate, charge = world.gate(), Dependency(UNKNOWN, UNKNOWN, "ch_1")
        options: dict[str, Any] = {"guarantee": guarantee, "retry": Retry(environment=world.env)}
        answer = calling(world, gate, how, lambda: charge(), **options)()

        assert (getattr(answer, "value", answer), charge.calls) == ("ch_1", 3)
        assert [(row.state, row.attempt) for row in gate.rows()] == [("settled", 1)]

    @pytest.mark.fault("a-blind-operation-is-tried-again")
    def test_a_blind_one_is_not(self, world: Any, how: str) -> None:
        """
        One call; in doubt; and what is raised is what the function raised, with the reason on it.
        """
        gate, charge = world.gate(), Dependency(UNKNOWN)
        with pytest.raises(UNKNOWN) as raised:
            calling(world, gate, how, lambda: charge(), retry=Retry(environment=world.env))()
        stop = stop_of(raised.value)

        assert (charge.calls, [row.state for row in gate.rows()]) == (1, ["in_doubt"])
        assert stop is not None
        assert stop.reason == "no_key"

    @pytest.mark.fault("doubt-is-forgotten-between-attempts")
    def test_doubt_is_sticky_among_the_attempts(self, world: Any) -> None:
        """
        The first may have happened, the second certainly did not: that does not clear the first.
        """
        gate, charge = world.gate(), Dependency(UNKNOWN, REFUSED)

        def pay(operation: Any) -> Any:
            with operation.effect():
                return charge()

        with pytest.raises(REFUSED):
            gate.run("charge:1", pay, guarantee="keyed", retry=Retry(environment=world.env))

        assert (state(gate, "charge:1"), charge.calls) == ("in_doubt", 3)

    def test_attempts_that_certainly_did_nothing_release_it(self, world: Any) -> None:
        """
        A marked effect, refused three times: tried three times, and released.
        """
        gate, charge = world.gate(), Dependency(REFUSED)

        def pay(operation: Any) -> Any:
            with operation.effect():
                return charge()

        with pytest.raises(REFUSED):
            gate.run("charge:1", pay, retry=Retry(environment=world.env))

        assert (state(gate, "charge:1"), charge.calls) == ("released", 3)

    def test_preparation_that_fails_after_a_refused_attempt_releases_it(self, world: Any) -> None:
        """
        Each attempt is judged by itself: the second one had not begun its effect.
        """
        gate, charge, tries = world.gate(), Dependency(REFUSED), []

        def pay(operation: Any) -> Any:
            tries.append(1)
            if len(tries) > 1:
                raise KeyError("no such order")
            with operation.effect():
                return charge()

        with pytest.raises(KeyError):
            gate.run("charge:1", pay, retry=Retry(environment=world.env))

        assert (state(gate, "charge:1"), len(tries)) == ("released", 2)

    @pytest.mark.parametrize(("answer", "calls"), [(Found("ch_0"), 1), (NOT_FOUND, 2)], ids=["found", "not found"])
    def test_a_probe_is_asked_between_the_attempts(self, world: Any, answer: Any, calls: int) -> None:
        """
        What it finds is the answer; what it does not find is tried again, and is no doubt any more.
        """
        gate, charge = world.gate(), Dependency(UNKNOWN, "ch_1")
        policy = Retry(environment=world.env)
        value = gate.run("charge:1", lambda: charge(), guarantee="probed", probe=lambda _: answer, retry=policy)

        assert ({1: "ch_0", 2: "ch_1"}[calls], calls) == (value, charge.calls)

    def test_an_empty_budget_ends_the_attempts(self, world: Any) -> None:
        """
        One call and one retry that was paid for; a keyed operation may be asked for again later.
        """
        gate, charge = world.gate(), Dependency(UNKNOWN)
        budget = Budget(burst=1, environment=world.env)
        with pytest.raises(BudgetExhausted):
            gate.run("charge:1", lambda: charge(), guarantee="keyed", retry=Retry(environment=world.env), budget=budget)

        assert (charge.calls, state(gate, "charge:1")) == (2, "in_doubt")

    def test_a_circuit_that_opens_between_the_attempts_ends_them(self, world: Any) -> None:
        """
        Refused attempts of a marked effect: the third is not made, and the key is released.
        """
        gate, charge = world.gate(), Dependency(REFUSED)
        breaker = Breaker("payments", threshold=2, environment=world.env)

        def pay(operation: Any) -> Any:
            with operation.effect():
                return charge()

        with pytest.raises((CircuitOpen, REFUSED)):
            gate.run("charge:1", pay, retry=Retry(environment=world.env), breaker=breaker)

        assert (state(gate, "charge:1"), charge.calls) == ("released", 2)

    def test_failures_under_a_gate_open_the_breaker(self, world: Any, how: str) -> None:
        """
        With a policy and without: what the function raises is counted.
        """
        gate = world.gate()
        for number, parts in enumerate(({}, {"retry": Retry(attempts=1, environment=world.env)})):
            breaker, charge = Breaker(f"p{number}", threshold=1, environment=world.env), Dependency(REFUSED)
            with pytest.raises(REFUSED):
                calling(world, gate, how, lambda: charge(), breaker=breaker, guarantee="repeatable", **parts)()  # noqa: B023

            assert (breaker.state, charge.calls) == ("open", 1)

    def test_an_interrupt_between_the_attempts_leaves_no_doubt(self, world: Any) -> None:
        """
        What was tried certainly did nothing, and nothing is under way.
        """
        gate, charge = world.gate(), Dependency(REFUSED)

        def on_retry(_: Any) -> None:
            raise KeyboardInterrupt

        def pay(operation: Any) -> Any:
            with operation.effect():
                return charge()

        with pytest.raises(KeyboardInterrupt):
            gate.run("charge:1", pay, retry=Retry(on_retry=on_retry, environment=world.env))

        assert (state(gate, "charge:1"), charge.calls) == ("released", 1)


class TestDeclaring:
    """What cannot work is refused where it is said."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"retry": 3}, "retry is a Retry"),
            ({"breaker": "payments"}, "breaker is a Breaker"),
            ({"budget": Budget}, "budget is a Budget"),
        ],
    )
    def test_something_else_is_refused(self, world: Any, options: dict[str, Any], words: str) -> None:
        """
        By name.
        """
        with pytest.raises(ConfigurationError, match=words):
            world.gate().run("charge:1", lambda: None, **options)

    def test_two_breakers_are_refused(self, world: Any) -> None:
        """
        One operation has one.
        """
        one, two = (Breaker(name, environment=world.env) for name in ("a", "b"))
        with pytest.raises(ConfigurationError, match="Give only one of them"):
            world.gate().run("charge:1", lambda: None, retry=Retry(breaker=one), breaker=two)

    def test_a_gate_may_have_them_for_all_its_operations(self, world: Any) -> None:
        """
        As any other option.
        """
        gate, charge = world.gate(breaker=opened(world)), Dependency("ch_1")
        with pytest.raises(CircuitOpen):
            gate.run("charge:1", lambda: charge())

        assert charge.calls == 0
