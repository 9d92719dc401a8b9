"""Plans: a series of steps, resumed step by step."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceward import NOT_FOUND, Expired, Found, InDoubt, KeyReused
from onceward.errors import KeyInvalid, NothingHappened

DAY = 86_400


class Script:
    """Five steps, some of which fail; tells what ran."""

    STEPS = ("create", "seed", "verify", "announce", "archive")

    def __init__(self, world: Any, plan: str = "migrate-1", **options: Any) -> None:
        self.plan = world.gate().plan(plan, **options)
        self.ran: list[str] = []

    def run(self, *, failing: str = "") -> list[Any]:
        """Run the script to its end or to the failing step; what each step answered, and whether it was replayed."""
        outcomes: list[Any] = []

        def work(step: str) -> Any:
            self.ran.append(step)
            if step == failing:
                raise NothingHappened(step)
            return f"{step} done"

        for step in self.STEPS:
            try:
                outcome = self.plan.call(step, partial(work, step))
            except NothingHappened:
                break
            outcomes.append((outcome.value, outcome.replayed))
        return outcomes


@pytest.mark.requirement("A23")
def test_a_finished_plan_run_again_replays_every_step(world: Any) -> None:
    """
    Nothing runs a second time, also in another process.
    """
    first, second = Script(world), Script(world)

    fresh, replayed = first.run(), second.run()

    assert [(f"{step} done", False) for step in Script.STEPS] == fresh
    assert [(f"{step} done", True) for step in Script.STEPS] == replayed
    assert (first.ran, second.ran) == ([*Script.STEPS], [])


@pytest.mark.requirement("A24")
def test_a_broken_plan_run_again_replays_what_succeeded_and_runs_the_rest(world: Any) -> None:
    """
    Step three of five fails: one and two replay; three, four and five run.
    """
    first, second = Script(world), Script(world)

    first.run(failing="verify")
    outcomes = second.run()

    assert first.ran == ["create", "seed", "verify"]
    assert second.ran == ["verify", "announce", "archive"]
    assert [replayed for _, replayed in outcomes] == [True, True, False, False, False]


def test_a_crash_in_the_middle_is_resumed(world: Any) -> None:
    """
    Killed inside the second step: a repeatable one runs again, a blind one waits for a decision; the first replays.
    """
    gate, store = world.faulty()
    plan, create, seed = gate.plan("migrate-1", guarantee="repeatable"), world.Effect(1), world.Effect(2)
    plan.step("create", create)
    store.die_before("settled")
    with pytest.raises(world.Died):
        plan.step("seed", seed)
    world.env.advance(61)

    resumed = world.gate().plan("migrate-1", guarantee="repeatable")

    assert [resumed.step("create", create), resumed.step("seed", seed)] == [1, 2]
    assert (create.count, seed.count) == (1, 2)


def test_a_blind_step_in_doubt_can_be_decided(world: Any) -> None:
    """
    By the plan and the step's name; the error names that call.
    """
    plan = world.gate().plan("migrate-1")
    for step in ("create", "seed"):
        with pytest.raises(TimeoutError):
            plan.step(step, world.Effect(TimeoutError()))
    with pytest.raises(InDoubt, match=r"reconcile"):
        plan.step("create", world.Effect())

    plan.reconcile("create", Found("by hand"))
    plan.reconcile("seed", NOT_FOUND)

    assert [plan.step("create", world.Effect("run")), plan.step("seed", world.Effect("run"))] == ["by hand", "run"]


@pytest.mark.requirement("A29")
def test_steps_are_free_text_in_any_order(world: Any) -> None:
    """
    No step waits for another, and the order may differ from run to run.
    """
    plan, effects = world.gate().plan("p-1"), {step: world.Effect(step) for step in ("10", "zeta/1", "a:b", "-")}

    for order in (("10", "zeta/1", "a:b", "-"), ("-", "a:b", "10", "zeta/1"), ("a:b",)):
        assert [*order] == [plan.step(step, effects[step]) for step in order]

    assert [effect.count for effect in effects.values()] == [1] * 4


@pytest.mark.requirement("A31")
def test_plans_named_after_different_identifiers_share_no_steps(world: Any) -> None:
    """
    migrate-1 and migrate-2 both have a step called seed.
    """
    gate, seed = world.gate(), world.Effect()

    for migration in (1, 2, 1, 2):
        gate.plan(f"migrate-{migration}").step("seed", seed)

    assert seed.count == 2


def test_a_step_never_meets_a_key_or_another_plans_step(world: Any) -> None:
    """
    However the names run together.
    """
    gate, effect = world.gate(), world.Effect()

    gate.plan("a:b").step("c", effect)
    gate.plan("a").step("b:c", effect)
    gate.run("a:b:c", effect)
    gate.run("a", effect)

    assert effect.count == 4
    assert len(gate.rows()) == 4


@pytest.mark.requirement("A20")
def test_two_keys_in_one_plan_know_nothing_of_each_other(world: Any) -> None:
    """
    A key speaks for one request: other requests made inside a step are under their own keys.
    """
    gate, inner = world.gate(), world.gate()
    first, second = world.Effect("first"), world.Effect("second")

    def both() -> list[Any]:
        return [inner.run("request:1", first, request=1), inner.run("request:2", second, request=2)]

    assert gate.plan("p-1").step("both", both) == ["first", "second"]
    assert gate.run("request:2", second, request=2) == "second"
    assert (first.count, second.count) == (1, 1)


def test_a_step_with_another_request_is_refused(world: Any) -> None:
    """
    A step stands for one request, like a key.
    """
    plan = world.gate().plan("p-1")
    plan.step("seed", world.Effect(), request={"rows": 1})

    with pytest.raises(KeyReused):
        plan.step("seed", world.Effect(), request={"rows": 2})


@pytest.mark.parametrize("step", ["", "two words", "x" * 256, "ü"], ids=["empty", "blank", "long", "not-ascii"])
def test_a_step_needs_a_name_that_can_be_one(world: Any, step: str) -> None:
    """
    The same rules as for keys, for steps and for plans.
    """
    gate, effect = world.gate(), world.Effect()

    with pytest.raises(KeyInvalid):
        gate.plan("p-1").step(step, effect)
    with pytest.raises(KeyInvalid):
        gate.plan(step)

    assert effect.count == 0


class TestHowLongStepsLive:
    """As long as their plan is touched."""

    def test_touching_a_plan_keeps_all_its_steps(self, world: Any) -> None:
        """
        Step one cannot expire while step two is still being retried.
        """
        gate, create = world.gate(), world.Effect("created")
        plan = gate.plan("p-1")
        plan.step("create", create)

        for attempt in range(5):
            world.env.advance(DAY - 60)
            with pytest.raises(NothingHappened):
                plan.step("seed", world.Effect(NothingHappened(str(attempt))))

        assert (plan.step("create", create), create.count) == ("created", 1)

    def test_another_plan_is_not_kept_by_it(self, world: Any) -> None:
        """
        Each plan has its own life.
        """
        gate = world.gate()
        gate.plan("p-1").step("create", world.Effect())
        gate.plan("p-2").step("create", world.Effect())
        world.env.advance(DAY - 60)
        gate.plan("p-2").step("seed", world.Effect())
        world.env.advance(60)

        with pytest.raises(Expired):
            gate.plan("p-1").step("create", world.Effect())
        assert gate.plan("p-2").step("create", world.Effect("again")) == "done"

    @pytest.mark.requirement("A27")
    def test_a_day_after_the_last_touch_the_steps_run_again_where_that_is_agreed(self, world: Any) -> None:
        """
        With after_expiry="run": replayed a second before, run a second after.
        """
        gate, seed = world.gate(after_expiry="run"), world.Effect()
        gate.plan("p-1").step("seed", seed)
        world.env.advance(DAY - 1)
        gate.plan("p-1").step("seed", seed)
        world.env.advance(DAY - 1)
        gate.plan("p-1").step("seed", seed)
        assert seed.count == 1

        world.env.advance(DAY + 1)
        gate.plan("p-1").step("seed", seed)

        assert seed.count == 2

    def test_what_has_expired_is_not_brought_back_by_a_touch(self, world: Any) -> None:
        """
        A plan that was left alone for a day is over.
        """
        gate = world.gate()
        gate.plan("p-1").step("create", world.Effect())
        world.env.advance(DAY)
        gate.plan("p-1").step("seed", world.Effect())

        with pytest.raises(Expired):
            gate.plan("p-1").step("create", world.Effect())


class TestSchemaChanges:
    """Steps on a real database: migrate, seed, verify."""

    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(tmp_path / "business.db", check_same_thread=False, isolation_level=None)
        yield connection
        connection.close()

    @pytest.mark.requirement("A30")
    def test_a_replayed_create_tables_does_not_trip_over_its_own_tables(
        self, world: Any, database: sqlite3.Connection
    ) -> None:
        """
        Without the plan the second CREATE TABLE would say that the table exists.
        """

        def migrate() -> list[Any]:
            plan = world.gate().plan("migrate-42")
            return [
                plan.step("create-tables", lambda: database.execute("CREATE TABLE t (a)").rowcount),
                plan.step("seed-defaults", lambda: database.execute("INSERT INTO t VALUES (1), (2)").rowcount),
                plan.step("verify", lambda: database.execute("SELECT count(*) FROM t").fetchone()[0]),
            ]

        first, second = migrate(), migrate()

        assert [-1, 2, 2] == first == second
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            database.execute("CREATE TABLE t (a)")
