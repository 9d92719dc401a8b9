"""One account for each tenant: what it holds, what it has spent, and what is left for everybody else."""

from __future__ import annotations

import pytest

from onceward import ConfigurationError
from onceward.errors import RateLimitError
from onceward.service.access import Account, Accounts, Allowance, Hold, Resource, Totals


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def fill(account: Account, resource: Resource) -> list[Hold]:
    """Hold as much as it is given, one by one."""
    held = []
    while True:
        try:
            held.append(account.hold(resource))
        except RateLimitError:
            return held


@pytest.fixture
def clock() -> Clock:
    """The clock of the accounts."""
    return Clock()


@pytest.fixture
def accounts(clock: Clock) -> Accounts:
    """Accounts of which all together may have ninety waiting."""
    return Accounts(clock, Allowance(waiting=1_000, cpu_per_second=0.5, cpu_burst=10.0), Totals(waiting=90))


class TestHeld:
    """What is given back when the work is over."""

    @pytest.mark.fault("accounts-a-greedy-tenant-takes-the-total")
    def test_greedy_tenants_leave_room_for_a_modest_one(self, accounts: Accounts) -> None:
        """
        Eight that take all they are given: a ninth of the total stays free.
        """
        greedy = [accounts.of_tenant(f"greedy-{number}") for number in range(8)]
        taken: dict[str, int] = dict.fromkeys((one.owner for one in greedy), 0)
        while True:
            before = sum(taken.values())
            for one in greedy:
                try:
                    one.hold(Resource.WAITING)
                    taken[one.owner] += 1
                except RateLimitError:
                    continue
            if sum(taken.values()) == before:
                break

        assert accounts.free(Resource.WAITING) == 10
        assert len(fill(accounts.of_tenant("modest"), Resource.WAITING)) == 5

    def test_an_account_has_a_limit_of_its_own(self, clock: Clock) -> None:
        """
        However much is free.
        """
        accounts = Accounts(clock, Allowance(running=3), Totals(running=64))

        assert len(fill(accounts.of_tenant("acme"), Resource.RUNNING)) == 3

    @pytest.mark.fault("accounts-given-back-twice")
    def test_a_hold_is_given_back_once(self, accounts: Accounts) -> None:
        """
        Saying it twice frees nothing of anybody else's.
        """
        account = accounts.of_tenant("acme")
        with account.hold(Resource.WAITING, 20) as first:
            account.hold(Resource.WAITING, 5)
            first.give_back()
            first.give_back()

        assert account.usage().held[Resource.WAITING] == 5
        assert accounts.free(Resource.WAITING) == 85

    def test_a_refusal_holds_nothing_and_says_when_to_come_back(self, accounts: Accounts) -> None:
        """
        And it is counted.
        """
        account = accounts.of_tenant("acme")

        with pytest.raises(RateLimitError, match="requests waiting") as refused:
            account.hold(Resource.WAITING, 91)

        assert refused.value.retry_after_seconds == 1.0
        assert account.usage().held[Resource.WAITING] == 0
        assert account.usage().refused == 1

    def test_an_address_of_ipv6_is_its_network(self, accounts: Accounts) -> None:
        """
        Whoever has one such address has 2^64 of them.
        """
        assert accounts.of_address("2001:db8::1") is accounts.of_address("2001:db8::ffff")
        assert accounts.of_address("2001:db8::1") is not accounts.of_address("2001:db8:0:1::1")
        assert accounts.of_address("192.0.2.1") is not accounts.of_tenant("192.0.2.1")


class TestSpent:
    """What comes back with time."""

    @pytest.mark.fault("accounts-settled-for-nothing")
    def test_what_was_used_is_gone_and_the_rest_is_back(self, accounts: Accounts) -> None:
        """
        Reserved before, settled after; settling again does nothing.
        """
        account = accounts.of_tenant("acme")
        reserved = account.reserve_cpu(5.0)
        assert reserved is not None
        assert account.cpu_left() == 5.0

        reserved.settle(1.5)
        reserved.settle(1.5)

        assert account.cpu_left() == 8.5
        assert account.usage().cpu_seconds == 1.5

    def test_a_debt_is_waited_for(self, accounts: Accounts, clock: Clock) -> None:
        """
        Work that took longer than was reserved: nothing more is reserved until that has come back.
        """
        account = accounts.of_tenant("acme")
        reserved = account.reserve_cpu(5.0)
        assert reserved is not None
        reserved.settle(12.0)

        assert account.reserve_cpu(5.0) is None
        assert account.cpu_wait(5.0) == 14.0
        clock.now += 14.0
        assert account.reserve_cpu(5.0) is not None
        assert account.reserve_cpu(0.1) is None

    def test_more_than_a_burst_can_be_reserved_from_a_full_bucket(self, accounts: Accounts) -> None:
        """
        Otherwise it would wait for ever.
        """
        assert accounts.of_tenant("acme").reserve_cpu(60.0) is not None


class TestMemory:
    """Strangers cannot make the accounts grow, and cannot lose a debt."""

    @pytest.mark.fault("accounts-a-debt-is-forgotten")
    def test_idle_accounts_are_forgotten_and_debts_are_not(self, clock: Clock) -> None:
        """
        A thousand addresses come by; ten are remembered, and the one that owes.
        """
        accounts = Accounts(clock, accounts_max=10)
        accounts.of_address("192.0.2.1").spend_cpu(50.0)
        for number in range(1_000):
            accounts.of_address(f"198.51.100.{number % 250}.{number}")

        assert len(accounts) <= 12
        assert accounts.of_address("192.0.2.1").usage().cpu_seconds == 50.0

    def test_an_allowance_of_nothing_is_refused(self) -> None:
        """
        Nothing could ever be done.
        """
        for value in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ConfigurationError, match="cpu_burst"):
                Allowance(cpu_burst=value)
