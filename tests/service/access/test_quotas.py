"""Quotas: what a tenant may hold, refused before anything runs, counted now and then and never for a call."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from access_support import World

from onceward import ConfigurationError, Gate
from onceward.errors import QuotaExceeded
from onceward.service.access import quotas, scope_of, tenant_of

pytestmark = pytest.mark.dose(1, of=("kind", "colour"))


def hold(world: World, scope: str, number: int, size: int = 0) -> None:
    """Make records in a scope."""
    with Gate(world.url, scope=scope) as gate:
        for one in range(number):
            gate.run(f"op-{one}", lambda: "x" * size)


class TestQuotas:
    """How many records, how many bytes."""

    def test_a_full_quota_refuses(self, access: Any, world: World) -> None:
        """
        What is there counts, in every scope of the tenant; another tenant's does not.
        """
        access.create_tenant("acme", quota_records=5)
        hold(world, "live:acme", 2)
        hold(world, "test:acme", 1)
        hold(world, "live:acme:db:shop", 1)
        hold(world, "live:acme2", 3)

        access.admit("acme")

        with pytest.raises(QuotaExceeded, match="5 of the 5 records") as refused:
            access.admit("acme")
        assert (refused.value.limit, refused.value.held) == (5, 5)

    def test_bytes_count_too(self, access: Any, world: World) -> None:
        """
        Of the answers that are kept.
        """
        access.create_tenant("acme", quota_bytes=1000)
        hold(world, "live:acme", 1, size=700)

        access.admit("acme", bytes=200)

        with pytest.raises(QuotaExceeded, match="bytes"):
            access.admit("acme", bytes=200)
        access.admit("acme", bytes=50)

    def test_without_a_quota_everything_passes_uncounted(self, access: Any, world: World) -> None:
        """
        And nothing is ever counted.
        """
        access.create_tenant("acme")
        hold(world, "live:acme", 3)
        for _ in range(100):
            access.admit("acme")

        assert world.rows("SELECT value FROM onceward_access WHERE name = 'counted_at'") == [(0,)]

    def test_records_are_not_counted_for_a_call(self, blocking: Any, world: World) -> None:
        """
        A thousand calls count once and ask five times in half a minute; after a minute they count again.
        """
        blocking.create_tenant("acme", quota_records=10_000)
        counted: list[Any] = []
        asked: list[Any] = []
        for driver in {blocking._database.driver, blocking._database.records.driver}:
            # On PostgreSQL it is the same one.
            driver.look = _noting(driver.look, counted, asked)

        for _ in range(1000):
            blocking.admit("acme")
            world.environment.advance(0.02)
        assert (len(counted), len(asked) <= 8) == (1, True)
        world.pass_time(60)
        blocking.admit("acme")
        assert len(counted) == 2

    def test_one_process_at_a_time_counts(self, world: World) -> None:
        """
        The others go by the last count, and by what they let through themselves.
        """
        one, two = world.open(), world.open()
        one.create_tenant("acme", quota_records=4)
        hold(world, "live:acme", 2)

        assert [one.count(), two.count()] == [True, False]
        for shell in (one, two):
            shell.admit("acme")
            shell.admit("acme")
            with pytest.raises(QuotaExceeded):
                shell.admit("acme")
            shell.close()

    def test_a_new_count_takes_in_what_was_let_through(self, access: Any, world: World) -> None:
        """
        What was let through and never made is free again; what was forgotten, too.
        """
        access.create_tenant("acme", quota_records=2)
        access.admit("acme", records=2)
        with pytest.raises(QuotaExceeded):
            access.admit("acme")

        world.pass_time(quotas.STALE_US / 1_000_000)

        access.admit("acme", records=2)

    @pytest.mark.fault("quota-a-count-forgets-what-was-made-meanwhile")
    def test_what_is_let_through_while_a_count_runs_is_not_lost(self, world: World) -> None:
        """
        The count did not see it, so it still counts afterwards.
        """
        during: list[Any] = []

        def elsewhere(tenants: Any) -> list[Any]:
            if not during:
                during.append(access.admit("acme"))
            return []

        with closing(world.open(elsewhere=elsewhere)) as access:
            access.create_tenant("acme", quota_records=5)
            assert access.count()
            access.set_quota("acme", records=1, bytes=None)  # What the count found is looked up anew.

            with pytest.raises(QuotaExceeded):
                access.admit("acme")
        assert len(during) == 1

    @pytest.mark.fault("a-service-without-sql-counts-without-databases")
    def test_who_does_not_see_everything_leaves_the_count_to_who_does(self, world: World, colour: str) -> None:
        """
        Otherwise what a tenant holds in databases would be forgotten every other minute.
        """
        sees = world.open(colour, elsewhere=lambda tenants: [("live:acme", 3, 0)])
        other = world.open(colour)
        other.leave_counting(True)
        with closing(sees), closing(other):
            sees.create_tenant("acme", quota_records=3)
            assert sees.count()
            world.pass_time(quotas.STALE_US / 1_000_000 + 1)
            assert not other.count()
            with pytest.raises(QuotaExceeded):
                other.admit("acme")
            assert sees.count()
            other.leave_counting(False)
            world.pass_time(quotas.STALE_US / 1_000_000 + 1)
            assert other.count()

    def test_a_changed_quota_is_heeded(self, world: World) -> None:
        """
        At once where it was changed, elsewhere after five seconds.
        """
        here, there = world.open(), world.open()
        here.create_tenant("acme", quota_records=0)
        for shell in (here, there):
            with pytest.raises(QuotaExceeded):
                shell.admit("acme")

        assert here.set_quota("acme", records=None, bytes=None)

        here.admit("acme")
        with pytest.raises(QuotaExceeded):
            there.admit("acme")
        world.environment.advance(quotas.RELOAD_SECONDS)
        there.admit("acme")
        here.close()
        there.close()

    def test_counting_never_takes_more_than_a_twentieth_of_the_time(self) -> None:
        """
        A count that takes long is made less often.
        """
        assert [quotas.stale_after(took) for took in (0, 3_000_000, 5_000_000)] == [60_000_000, 60_000_000, 100_000_000]

    @pytest.mark.parametrize("quota", [-1, 1.5, True, "many", 2**53 + 1])
    def test_a_quota_is_a_whole_number(self, blocking: Any, quota: Any) -> None:
        """
        Or none.
        """
        with pytest.raises(ConfigurationError):
            blocking.create_tenant("acme", quota_records=quota)
        assert None is blocking.tenant("acme")

    @pytest.mark.parametrize("more", [{"records": -1}, {"records": None}, {"bytes": 1.5}, {"bytes": True}])
    def test_what_is_asked_for_is_a_whole_number(self, blocking: Any, more: dict[str, Any]) -> None:
        """
        A negative one would make room.
        """
        blocking.create_tenant("acme")

        with pytest.raises(ConfigurationError):
            blocking.admit("acme", **more)

    def test_nobody_holds_what_is_not_there(self, access: Any) -> None:
        """
        A mistake of the service, told as one.
        """
        with pytest.raises(ConfigurationError):
            access.admit("nobody")


class TestRoom:
    """What a request may grow by."""

    @pytest.mark.fault("quota-rooms-are-not-set-aside")
    def test_requests_that_run_at_once_have_what_is_left_together(self, access: Any, world: World) -> None:
        """
        Each gets half of what is left by then, and all of them together no more than all of it; what is not used is
        free again, and what was grown is gone.
        """
        access.create_tenant("acme", quota_bytes=1_000_000)
        rooms = [access.reserve("acme") for _ in range(40)]

        assert [one.bytes for one in rooms[:3]] == [500_000, 250_000, 125_000]
        assert sum(one.bytes for one in rooms) == 1_000_000
        for room in rooms:
            access.settle_room(room, bytes=1_000)
        assert access.reserve("acme", all_of_it=True).bytes == 960_000

    def test_without_a_quota_there_is_no_limit(self, access: Any) -> None:
        """
        And nothing is set aside.
        """
        access.create_tenant("acme", quota_records=1)

        assert access.reserve("acme", records=1).bytes is None
        with pytest.raises(QuotaExceeded):
            access.reserve("acme", records=1)

    def test_pages_that_were_freed_make_no_room_elsewhere(self, access: Any) -> None:
        """
        They stay in their file: the quota is of files.
        """
        access.create_tenant("acme", quota_bytes=1_000_000)
        access.settle_room(access.reserve("acme"), bytes=400_000)
        access.settle_room(access.reserve("acme"), bytes=-400_000)

        assert access.reserve("acme", all_of_it=True).bytes == 600_000


def _noting(look: Any, counted: list[Any], asked: list[Any]) -> Any:
    def noting(steps: Any) -> Any:
        (counted if getattr(steps, "__name__", "") == "_counted" else asked).append(1)
        return look(steps)

    return noting


class TestScopes:
    """Whose records they are."""

    @pytest.mark.parametrize(
        ("scope", "tenant"),
        [
            ("live:acme", "acme"),
            ("test:acme:db:a:b/c", "acme"),
            ("operator:acme", "acme"),
            ("live:acme2", "acme2"),
            ("live:acme-2:db:acme", "acme-2"),
            ("live", None),
            ("acme", None),
            ("prod:acme", None),
            ("live:", None),
            ("live:Acme", None),
        ],
    )
    def test_a_scope_says_whose_it_is(self, scope: str, tenant: str | None) -> None:
        """
        By the whole name, never by its beginning.
        """
        assert tenant == tenant_of(scope)

    def test_no_two_callers_share_a_scope(self) -> None:
        """
        Whatever a database is called, it is not taken for a token, nor for another tenant.
        """
        spelled = [
            scope_of("live", "acme"),
            scope_of("test", "acme"),
            scope_of("live", "acme", database="token:x"),
            scope_of("live", "acme", family="x"),
            scope_of("live", "acme", family="x", database="d"),
            scope_of("live", "acme", database="token:x:db:d"),
        ]

        assert len(set(spelled)) == 6
        assert {tenant_of(scope) for scope in spelled} == {"acme"}

    @pytest.mark.parametrize("name", ["", "a b", "Acme", "a:b", "-a", "a-", "a" * 64, "ä", None, 7, "a/b", "a\n"])
    def test_a_tenant_has_a_plain_name(self, blocking: Any, name: Any) -> None:
        """
        One that can stand in a scope, a host's name and a folder's.
        """
        with pytest.raises(ConfigurationError):
            blocking.create_tenant(name)
