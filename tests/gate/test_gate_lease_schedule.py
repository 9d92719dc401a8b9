"""When leases are renewed and looked at again, without a clock, a thread or an event loop."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from onceward import OwnershipLost, StoreUnavailable
from onceward.errors import IllegalMove, StoreForgot
from onceward.gate.leases import CHECKS_PER_LEASE, NEVER, Leases, RunningLease

LEASE = 60
CEILING = 180


def an_operation() -> Any:
    """What is known of a running operation."""
    return SimpleNamespace(inside=None, lost=False, held_until=0.0, digest="0123456789ab")


def asked(lease: float = LEASE) -> Any:
    """On which terms it runs."""
    claimant, terms = SimpleNamespace(lease=lease * 1e6), SimpleNamespace(lease_max=CEILING * 1e6)
    return SimpleNamespace(claimant=claimant, terms=terms)


def running(books: Leases, lease: float = LEASE, now: float = 0.0) -> RunningLease:
    """An operation that has begun."""
    operation = an_operation()
    books.begin(asked(lease), operation, None, now)  # type: ignore[arg-type]
    return books.watched[id(operation)]


class TestWhatIsDue:
    """A third of the lease after it began, or was last renewed."""

    @pytest.mark.fault("a-renewal-comes-too-late")
    @pytest.mark.parametrize(("now", "due"), [(0.0, False), (19.9, False), (20.0, True), (59.0, True), (120.0, True)])
    def test_after_a_third_of_the_lease(self, now: float, due: bool) -> None:
        """
        Not earlier, because a renewal is a write; and at every look from then on, until one lands.
        """
        books = Leases()
        one = running(books)

        assert books.due(now) == ([one] if due else [])

    def test_up_to_the_ceiling(self) -> None:
        """
        A renewal whose lease would end after it is not made.
        """
        books = Leases()
        one = running(books)

        assert books.due(float(CEILING - LEASE)) == [one]
        assert books.due(CEILING - LEASE + 0.1) == []

    def test_not_while_one_is_under_way_nor_when_it_is_lost(self) -> None:
        """
        Two renewals of one claim would take each other for somebody else's; what is lost has nothing to renew.
        """
        books = Leases()
        running(books).trying = True
        running(books).operation.lost = True

        assert books.due(30.0) == []

    def test_later_once_its_function_has_settled_it(self) -> None:
        """
        Its transaction holds the record, and usually commits at once: two thirds of the lease.
        """
        books = Leases()
        one = running(books)
        one.operation.inside = SimpleNamespace(called=True)  # type: ignore[assignment]

        assert books.due(39.0) == []
        assert books.due(40.0) == [one]

    def test_from_the_last_renewal_on(self) -> None:
        """
        One that landed moves everything: what is due, and until when the claim holds.
        """
        books, confirmed = Leases(), []
        one = running(books)
        one.operation.confirm = lambda sent, lease: confirmed.append((sent, lease))  # type: ignore[method-assign]
        held: Any = object()
        one.done(held, 30.0, 7.0)

        assert books.due(49.0) == []
        assert books.due(50.0) == [one]
        assert (one.held, one.operation.record, one.operation.held_until) == (held, held, 90.0)
        assert confirmed == [(7.0, LEASE * 1e6)]

    @pytest.mark.parametrize(
        ("error", "ended", "lost", "logged"),
        [
            (OwnershipLost(), False, True, False),
            (StoreForgot(), False, True, False),
            (StoreUnavailable(), False, False, False),
            (IllegalMove(), True, False, False),
            (ZeroDivisionError(), False, False, True),
        ],
    )
    def test_when_to_give_up(
        self, error: Exception, ended: bool, lost: bool, logged: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        What is settled has ended, what is somebody else's is lost; anything else is tried again.
        """
        one = running(Leases())
        with caplog.at_level(logging.ERROR, "onceward"):
            given_up = one.failed(error)

        assert (given_up, one.operation.lost, bool(caplog.records)) == (ended, lost, logged)


class TestWhenToLook:
    """At every sixth of the shortest lease that runs."""

    def test_by_the_shortest_lease(self) -> None:
        """
        And by the one that is left, when that has ended.
        """
        books = Leases()
        running(books, 60)
        short = running(books, 6)
        first = books.seconds_to_next_check()
        del books.watched[id(short.operation)]

        assert (first, books.seconds_to_next_check()) == (6 / CHECKS_PER_LEASE, 60 / CHECKS_PER_LEASE)

    def test_never_while_nothing_runs(self) -> None:
        """
        Then nobody looks, and the next operation has to say so.
        """
        books = Leases()

        assert (books.seconds_to_next_check(), books.shortest) == (NEVER, NEVER)

    def test_once_more_after_having_been_woken_for_nothing(self) -> None:
        """
        By the lease that woke it; then it rests.
        """
        books = Leases()
        books.shortest = 60

        assert books.seconds_to_next_check(woken=True) == 60 / CHECKS_PER_LEASE
        assert books.seconds_to_next_check() == NEVER

    def test_who_begins_says_whether_to_look_sooner(self) -> None:
        """
        A lease that is shorter than the one by which somebody looks.
        """
        books, operation = Leases(), an_operation()
        running(books, 60)
        books.seconds_to_next_check()
        lease = books.begin(asked(6), operation, None, 100.0)  # type: ignore[arg-type]

        assert lease < books.shortest
        assert (lease, operation.held_until) == (6, 106.0)
