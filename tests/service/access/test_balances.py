"""Prepaid balances: whole micro-units, reserved before anything runs, never spent twice, never lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from access_support import World

from onceward import ConfigurationError, Gate, KeyReused
from onceward.errors import BalanceExhausted, IllegalMove, NothingHappened, StoreUnavailable
from onceward.runtime import failpoints
from onceward.service.access import flows, format_units, top_up_once
from onceward.service.access.access_tables import others_know
from onceward.service.access.balances import AMOUNT_MAX, KEPT_US, LAPSE_SECONDS, SWEEP_BATCH

pytestmark = pytest.mark.dose(1, of=("kind", "colour"))

UNIT = 1_000_000


@pytest.fixture
def acme(access: Any) -> str:
    """A tenant that has paid ten units in advance."""
    return _paid(access)


def _paid(access: Any, units: int = 10, name: str = "acme") -> str:
    assert access.create_tenant(name, prepaid=True)
    assert units * UNIT == access.top_up(name, units * UNIT, reference="first")
    return name


def balance(access: Any, name: str = "acme") -> tuple[int, int]:
    """What is left, and what is reserved."""
    tenant = access.tenant(name)
    return tenant.balance, tenant.reserved


class TestCharging:
    """Reserve, then commit or give back."""

    def test_a_charge_is_reserved_and_then_spent(self, access: Any, acme: str) -> None:
        """
        Exact to the micro-unit.
        """
        reserved = access.charge(acme, 2_500_001)
        assert balance(access) == (7_499_999, 2_500_001)

        access.commit(reserved)

        assert balance(access) == (7_499_999, 0)

    def test_what_did_not_run_is_given_back(self, access: Any, acme: str) -> None:
        """
        All of it.
        """
        reserved = access.charge(acme, 3 * UNIT)

        access.give_back(reserved)

        assert balance(access) == (10 * UNIT, 0)

    @pytest.mark.requirement("A34")
    def test_an_empty_balance_refuses_before_anything_runs(self, access: Any, acme: str, world: World) -> None:
        """
        Nothing is written, the key is not consumed; once topped up, the same key runs.
        """
        access.commit(access.charge(acme, 10 * UNIT))
        ran: list[int] = []

        def paid() -> str:
            try:
                reserved = access.charge(acme, 1, operation="order-17")
            except BalanceExhausted as error:
                raise NothingHappened(str(error)) from error
            ran.append(1)
            access.commit(reserved)
            return "done"

        with Gate(world.url, scope="live:acme") as gate:
            with pytest.raises(NothingHappened) as refused:
                gate.run("order-17", paid)
            assert (ran, (refused.value.__cause__.balance, refused.value.__cause__.price)) == ([], (0, 1))
            assert balance(access) == (0, 0)

            access.top_up(acme, 1, reference="second")

            assert (gate.run("order-17", paid), ran, balance(access)) == ("done", [1], (0, 0))

    def test_what_is_reserved_cannot_be_spent_again(self, access: Any, acme: str) -> None:
        """
        To the last unit, and not one more.
        """
        access.charge(acme, 10 * UNIT - 1)
        access.charge(acme, 1)

        with pytest.raises(BalanceExhausted):
            access.charge(acme, 1)
        assert balance(access) == (0, 10 * UNIT)

    def test_who_does_not_pay_in_advance_is_not_charged(self, access: Any) -> None:
        """
        And a price of nothing is free for everybody; committing and giving back do nothing then.
        """
        access.create_tenant("free")
        access.create_tenant("broke", prepaid=True)

        for name, price in (("free", UNIT), ("broke", 0)):
            reserved = access.charge(name, price)
            access.commit(reserved)
            access.give_back(reserved)
            assert None is reserved.id
        assert balance(access, "free") == (None, 0)

    @pytest.mark.parametrize("price", [-1, 1.0, True, "1", None, AMOUNT_MAX + 1, float("nan")])
    def test_money_is_whole_numbers(self, blocking: Any, price: Any) -> None:
        """
        Never a float, and nothing that could be a mistake.
        """
        _paid(blocking)

        with pytest.raises(ConfigurationError):
            blocking.charge("acme", price)
        with pytest.raises(ConfigurationError):
            blocking.top_up("acme", price, reference="x")
        assert balance(blocking) == (10 * UNIT, 0)

    def test_nobody_is_charged_who_is_not_there(self, access: Any) -> None:
        """
        A mistake of the service, told as one.
        """
        with pytest.raises(ConfigurationError):
            access.charge("nobody", 1)

    def test_a_crowd_never_spends_a_unit_twice(self, world: World) -> None:
        """
        Thirty-two calls of two processes' worth of connections, ten of them covered: ten go through.
        """
        shells = [world.open(), world.open()]
        _paid(shells[0])
        through: list[Any] = []

        def call(number: int) -> None:
            try:
                through.append(shells[number % 2].charge("acme", UNIT))
            except BalanceExhausted:
                return

        crowd = [threading.Thread(target=call, args=(number,)) for number in range(32)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()

        assert (len(through), balance(shells[0])) == (10, (0, 10 * UNIT))
        assert len({one.id for one in through}) == 10
        for shell in shells:
            shell.close()


class TestAgain:
    """Whatever is sent again counts once."""

    @pytest.mark.fault("money-attempts-share-a-reservation")
    def test_each_attempt_has_a_reservation_of_its_own(self, access: Any, acme: str) -> None:
        """
        Two attempts of one operation: the one that was refused gives its own back, and the other's stands.
        """
        first = access.charge(acme, UNIT, operation="op-1")
        second = access.charge(acme, UNIT, operation="op-1")
        assert (first.id != second.id, balance(access)) == (True, (8 * UNIT, 2 * UNIT))

        access.give_back(second)
        assert balance(access) == (9 * UNIT, UNIT)
        access.commit(first)

        assert balance(access) == (9 * UNIT, 0)

    def test_what_was_used_is_spent_and_the_rest_is_back(self, access: Any, acme: str) -> None:
        """
        Of three units two: also where the reservation had lapsed. More than was reserved is refused.
        """
        reserved = access.charge(acme, 3 * UNIT)
        with pytest.raises(ConfigurationError):
            access.commit(reserved, 3 * UNIT + 1)
        assert balance(access) == (7 * UNIT, 3 * UNIT)

        access.commit(reserved, 2 * UNIT)
        access.commit(reserved, 2 * UNIT)

        assert balance(access) == (8 * UNIT, 0)

    @pytest.mark.parametrize("end", ["commit", "give_back"])
    def test_ending_twice_does_no_harm(self, access: Any, acme: str, end: str) -> None:
        """
        The same end, as often as one likes.
        """
        reserved = access.charge(acme, UNIT)
        for _ in range(3):
            getattr(access, end)(reserved)

        assert (9 * UNIT if end == "commit" else 10 * UNIT, 0) == balance(access)

    @pytest.mark.parametrize(("first", "second"), [("commit", "give_back"), ("give_back", "commit")])
    def test_the_other_end_is_refused_and_changes_nothing(
        self, access: Any, acme: str, first: str, second: str
    ) -> None:
        """
        It ran, or it did not.
        """
        reserved = access.charge(acme, UNIT)
        getattr(access, first)(reserved)
        before = balance(access)

        with pytest.raises(IllegalMove):
            getattr(access, second)(reserved)
        assert before == balance(access)


class TestLapsing:
    """What a dead holder reserved comes back."""

    def test_a_lapsed_reservation_is_free_for_the_next_charge(self, access: Any, acme: str, world: World) -> None:
        """
        At its time and not before; nobody has to sweep.
        """
        access.charge(acme, 10 * UNIT)
        world.pass_time(LAPSE_SECONDS - 1)
        with pytest.raises(BalanceExhausted):
            access.charge(acme, UNIT)
        world.pass_time(1)

        access.charge(acme, UNIT)

        assert balance(access) == (9 * UNIT, UNIT)

    def test_a_sweep_gives_back_what_lapsed(self, access: Any, acme: str, world: World) -> None:
        """
        Of every tenant, once; what is alive stays.
        """
        other = _paid(access, name="other")
        access.charge(acme, UNIT, lapse=10)
        access.charge(other, 2 * UNIT, lapse=10)
        access.charge(other, 4 * UNIT, lapse=1000)
        world.pass_time(10)

        assert access.sweep() == (3 * UNIT, 0, 0)
        assert access.sweep() == (0, 0, 0)
        assert [balance(access, name) for name in (acme, other)] == [(10 * UNIT, 0), (6 * UNIT, 4 * UNIT)]

    def test_what_ran_after_all_is_taken_again(self, access: Any, acme: str, world: World) -> None:
        """
        Below zero if need be: it ran. The next call is refused.
        """
        late = access.charge(acme, 10 * UNIT, lapse=10)
        world.pass_time(10)
        access.commit(access.charge(acme, 10 * UNIT))

        access.sweep()
        access.commit(late)
        access.commit(late)

        assert balance(access) == (-10 * UNIT, 0)
        with pytest.raises(BalanceExhausted, match=r"has -10\.00 left"):
            access.charge(acme, 1)

    def test_giving_back_what_lapsed_gives_it_back_once(self, access: Any, acme: str, world: World) -> None:
        """
        Late, and harmless.
        """
        late = access.charge(acme, UNIT, lapse=10)
        world.pass_time(10)
        access.sweep()

        access.give_back(late)

        assert balance(access) == (10 * UNIT, 0)

    @pytest.mark.fault("money-a-dead-holder-ran-for-free")
    def test_what_a_dead_holder_ran_is_spent_by_the_sweep(self, world: World, colour: str) -> None:
        """
        The operation's record says that it ran since the money was reserved, so it is paid. A record from before says
        nothing: that was another run.
        """
        with closing(world.open(colour, ran=lambda operations: {"ran": 400.0, "before": 900.0})) as access:
            _paid(access)
            for operation in ("ran", "before", "never", None):
                access.charge("acme", UNIT, operation=operation)
            world.pass_time(800)

            assert access.sweep() == (3 * UNIT, 0, UNIT)
            assert balance(access) == (9 * UNIT, 0)

    @pytest.mark.fault("money-an-operation-pays-twice")
    def test_an_operation_whose_other_attempt_paid_does_not_pay_twice(self, world: World, colour: str) -> None:
        """
        Three attempts, two holders died, one ran: one pays. With no other attempt left, still only one.
        """
        with closing(world.open(colour, ran=lambda operations: dict.fromkeys(operations, 400.0))) as access:
            _paid(access)
            access.charge("acme", UNIT, operation="one")
            access.commit(access.charge("acme", UNIT, operation="one"))
            access.charge("acme", UNIT, operation="two")
            access.charge("acme", UNIT, operation="two")
            world.pass_time(800)

            assert access.sweep() == (2 * UNIT, 0, UNIT)
            assert balance(access) == (8 * UNIT, 0)

    @pytest.mark.fault("money-a-slow-look-gives-it-back", "money-a-slow-look-is-paid-for-twice")
    def test_how_long_it_takes_to_look_changes_nothing(self, world: World, colour: str) -> None:
        """
        Looking takes five seconds. What ran a second after its money was reserved is paid all the same; what was paid
        a second before somebody's replay died is not paid again.
        """

        def slow(operations: Sequence[str]) -> dict[str, float]:
            world.pass_time(5)
            return {"ran": 800 + 5 - 1, "paid": 800 + 1}

        with closing(world.open(colour, ran=slow)) as access:
            _paid(access)
            access.commit(access.charge("acme", UNIT, operation="paid"))
            world.pass_time(1)
            access.charge("acme", UNIT, operation="ran")
            access.charge("acme", UNIT, operation="paid")
            world.pass_time(800)

            assert access.sweep() == (UNIT, 0, UNIT)
            assert balance(access) == (8 * UNIT, 0)

    def test_what_nobody_can_tell_for_a_day_is_given_back(self, world: World, colour: str) -> None:
        """
        A file that cannot be read says that it may have run just now: it is asked about again, and not for ever.
        """
        with closing(world.open(colour, ran=lambda operations: dict.fromkeys(operations, 0.0))) as access:
            _paid(access)
            access.charge("acme", UNIT, operation="one")
            world.pass_time(80_000)
            assert access.sweep() == (0, 0, 0)
            world.pass_time(10_000)
            assert access.sweep() == (UNIT, 0, 0)

    def test_what_ran_just_now_is_left_to_whoever_ran_it(self, world: World, colour: str) -> None:
        """
        Another attempt may be about to pay; a minute later nobody is.
        """
        ago = [10.0]
        with closing(world.open(colour, ran=lambda operations: dict.fromkeys(operations, ago[0]))) as access:
            _paid(access)
            access.charge("acme", UNIT, operation="one")
            world.pass_time(800)

            assert access.sweep() == (0, 0, 0)
            assert balance(access) == (9 * UNIT, UNIT)
            ago[0] = 70.0
            assert access.sweep() == (0, 0, UNIT)

    @pytest.mark.fault("a-service-without-sql-gives-money-back")
    def test_who_cannot_look_leaves_what_lapsed_to_who_can(self, world: World, colour: str) -> None:
        """
        A service without SQL does not see the records of statements: it neither spends nor gives back.
        """
        with closing(world.open(colour, ran=others_know)) as access:
            _paid(access)
            access.charge("acme", UNIT, operation="one")
            world.pass_time(800)

            assert access.sweep() == (0, 0, 0)
            assert balance(access) == (9 * UNIT, UNIT)
        with closing(world.open(colour, ran=lambda operations: dict.fromkeys(operations, 400.0))) as access:
            assert access.sweep() == (0, 0, UNIT)

    @pytest.mark.fault("money-a-failed-settlement-is-an-error")
    @pytest.mark.parametrize("used", [UNIT, 0])
    def test_what_cannot_be_settled_now_is_settled_by_the_next_sweep(
        self, blocking: Any, world: World, used: int
    ) -> None:
        """
        The database fails right after the work: nobody is told an error, and the money is where it belongs later.
        """
        _paid(blocking)
        reserved = blocking.charge("acme", UNIT)

        def fail() -> None:
            raise StoreUnavailable

        for at in ("access.commit.before", "access.give_back.before"):
            failpoints.arm(at, fail)
        try:
            assert blocking.settle(reserved, used) == 9 * UNIT
            assert blocking.sweep() == (0, 0, 0)
        finally:
            failpoints.disarm()
        assert balance(blocking) == (9 * UNIT, UNIT)

        blocking.sweep()

        assert balance(blocking) == (10 * UNIT - used, 0)

    def test_ended_reservations_are_forgotten_after_a_day(self, access: Any, acme: str, world: World) -> None:
        """
        Open ones are not.
        """
        access.commit(access.charge(acme, UNIT))
        access.charge(acme, UNIT, lapse=2 * KEPT_US / 1_000_000)
        world.pass_time(KEPT_US / 1_000_000 - 1)
        assert access.sweep() == (0, 0, 0)
        world.pass_time(1)

        assert access.sweep() == (0, 1, 0)
        assert world.rows("SELECT state FROM onceward_reservations") == [("open",)]

    def test_the_table_stays_bounded_though_nobody_sweeps(
        self, blocking: Any, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Every so many charges forget more than were made since.
        """
        monkeypatch.setattr(flows, "FORGET_EVERY", 5)
        _paid(blocking)
        counts = []
        for _ in range(4):
            for _ in range(5):
                blocking.commit(blocking.charge("acme", 1))
            counts.append(world.rows("SELECT count(*) FROM onceward_reservations")[0][0])
            world.pass_time(KEPT_US / 1_000_000)

        assert counts == [5] * 4
        assert SWEEP_BATCH > 200


class TestToppingUp:
    """More money, once for each key."""

    def test_a_retried_top_up_counts_once(self, blocking: Any, world: World) -> None:
        """
        Through the gate: the same key gives the same answer, another amount under it is refused.
        """
        blocking.create_tenant("acme", prepaid=True)

        def top_up(amount: int, key: str = "invoice-1") -> Any:
            outcome = top_up_once(blocking, world.url, "acme", amount, key)
            return outcome.value["balanceMicro"], outcome.replayed

        assert [top_up(5), top_up(5), top_up(3, "invoice-2")] == [(5, False), (5, True), (8, False)]
        with pytest.raises(KeyReused):
            top_up(6)
        assert balance(blocking) == (8, 0)

    def test_it_counts_once_also_when_the_gate_has_forgotten(self, access: Any, acme: str) -> None:
        """
        The row beside the balance is kept for ever; another amount under its reference is refused.
        """
        assert access.top_up(acme, 10 * UNIT, reference="first") == 10 * UNIT
        with pytest.raises(KeyReused):
            access.top_up(acme, UNIT, reference="first")
        assert balance(access) == (10 * UNIT, 0)

    def test_a_balance_is_a_limit_and_has_to_be_asked_for(self, blocking: Any, world: World) -> None:
        """
        Who does not pay in advance is not made to by a top-up; nor is a tenant made by one.
        """
        blocking.create_tenant("free")

        with pytest.raises(IllegalMove, match="--prepaid"):
            top_up_once(blocking, world.url, "free", 5, "k")
        with pytest.raises(IllegalMove):
            blocking.top_up("free", 5, reference="k")
        assert None is top_up_once(blocking, world.url, "nobody", 5, "k")
        assert balance(blocking, "free") == (None, 0)
        assert top_up_once(blocking, world.url, "free", 5, "k", begin_prepaid=True).value["balanceMicro"] == 5

    @pytest.mark.parametrize(
        ("micro", "text"),
        [(0, "0.00"), (1, "0.000001"), (2_500_000, "2.50"), (-10_000_000, "-10.00"), (-1, "-0.000001")],
    )
    def test_micro_units_read_as_money(self, micro: int, text: str) -> None:
        """
        Exact, with at least two decimals.
        """
        assert text == format_units(micro)


KILLED = """
import os, sys
from onceward.runtime import failpoints
from onceward.service.access import Access

# One process for each boundary, forked before anything is opened: Python need not start anew for each.
for at in sys.argv[2:]:
    child = os.fork()
    if not child:
        access, verb, tenant = Access.open(sys.argv[1]), at.split(".")[1], at.replace("_", "-")
        reserved = None if verb == "charge" else access.charge(tenant, 4_000_000, operation="op", lapse=600)
        failpoints.arm(at, "kill")
        if reserved is None:
            access.charge(tenant, 4_000_000, operation="op", lapse=600)
        else:
            getattr(access, verb)(reserved)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""
HELD, FREE, SPENT = (6, 4), (10, 0), (6, 0)


BOUNDARIES = {
    "access.charge.before": FREE,
    "access.charge.written": FREE,
    "access.charge.after": HELD,
    "access.commit.before": HELD,
    "access.commit.written": HELD,
    "access.commit.after": SPENT,
    "access.give_back.before": HELD,
    "access.give_back.written": HELD,
    "access.give_back.after": FREE,
}


def killed(world: World, *boundaries: str) -> list[str]:
    """Let one process die at each of these boundaries, each on a tenant of its own; how they ended."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, world.url, *boundaries], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
def test_a_kill_at_any_boundary_loses_no_money(world: World) -> None:
    """
    `kill -9` before, inside and after each transaction: the money is where the last commit put it. What was held
    lapses, and a retry pays for itself.
    """
    access = world.open()
    tenants = {at: _paid(access, name=at.replace("_", "-")) for at in BOUNDARIES}

    assert ["9"] * len(tenants) == killed(world, *tenants)

    then = {at: balance(access, name) for at, name in tenants.items()}
    assert {at: (left * UNIT, held * UNIT) for at, (left, held) in BOUNDARIES.items()} == then
    # A retry of it pays for itself, and what the dead one had reserved comes back when it lapses.
    for at, name in tenants.items():
        access.commit(access.charge(name, 4 * UNIT, operation="op"))
        held, paid = (BOUNDARIES[at] == HELD) * 4, (BOUNDARIES[at] == SPENT) * 4
        assert balance(access, name) == ((6 - held - paid) * UNIT, held * UNIT)
    if world.kind == "sqlite":  # The killed process had the real time.
        world.environment.jump(2**31)
    world.pass_time(600)
    access.sweep()
    for at, name in tenants.items():
        assert balance(access, name) == ((6 - (BOUNDARIES[at] == SPENT) * 4) * UNIT, 0)
    access.close()


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("sound", [True, False])
def test_the_check_itself(world: World, monkeypatch: pytest.MonkeyPatch, sound: bool) -> None:
    """
    A driver that commits every statement by itself loses money at the same boundary, and this would be seen.
    """
    access = world.open()
    _paid(access)
    if not sound:
        driver = access._database.driver
        monkeypatch.setattr(
            driver, "transact", lambda at, steps: (driver.look(steps), failpoints.hit(f"{at}.written"))[0]
        )

    def die() -> None:
        raise KeyboardInterrupt

    failpoints.arm("access.charge.written", die)
    try:
        with pytest.raises(KeyboardInterrupt):
            access.charge("acme", UNIT)
    finally:
        failpoints.disarm()

    assert sound is (balance(access) == (10 * UNIT, 0))
    access.close()


@pytest.mark.slow
def test_what_a_killed_holder_reserved_lapses(world: World) -> None:
    """
    And is free again at its time.
    """
    access = world.open()
    name = _paid(access, name="access.commit.before")
    killed(world, name)
    assert balance(access, name) == (6 * UNIT, 4 * UNIT)

    if world.kind == "sqlite":  # The killed process had the real time.
        world.environment.jump(2**31)
    world.pass_time(600)

    assert access.sweep() == (4 * UNIT, 0, 0)
    assert balance(access, name) == (10 * UNIT, 0)
    access.close()
