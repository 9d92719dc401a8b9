"""The four disciplines behind the promise: same transaction, constraint as arbiter, violation handled, retention."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward._core.errors import ConfigurationError, Expired
from onceward.runtime.environment import REAL
from onceward.stores import OwnTables, capabilities_of
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore
from onceward.testing.store_suite.candidates import Candidate
from onceward.testing.store_suite.fixtures import Do, Steps, Together
from onceward.testing.store_suite.store_clock import StoreClock
from onceward.testing.store_suite.store_under_test import StoreUnderTest

WAIT = 10
"""Seconds that a loser waits for the winner: real ones, because the callers really run at the same time."""


class Spoiled(Exception):
    """The caller's own work went wrong."""


@pytest.fixture
def connection(place: StoreUnderTest, store: Any, do: Do) -> Iterator[Any]:
    """The caller's own connection to the store's database, for stores that can share a transaction."""
    do(store.load(bytes(32)))  # A file is there once the store has been used.
    ours = _connected(place, store if place.colour == "blocking" else store.handle)
    if ours is None:
        yield None
        return
    _check_is_taken(place, store)
    cursor = ours.cursor()
    cursor.execute("CREATE TABLE effects (name VARCHAR(10))")
    ours.commit()
    yield ours
    ours.close()


def _check_is_taken(place: StoreUnderTest, store: Any) -> None:
    """Leave a test out where an awaiting store takes connections only that are awaited: those differ too much."""
    joins = capabilities_of(store if place.colour == "blocking" else store.handle).joins
    if place.colour == "blocking" or joins is None or isinstance(joins, OwnTables):
        return
    ours = _connected(place, store.handle)
    try:
        joins.join_async(ours)
    except ConfigurationError as error:
        pytest.skip(f"{place.name} does not take a blocking connection under an event loop: {error}")
    finally:
        ours.close()


def _connected(place: StoreUnderTest, handle: Any) -> Any:
    joins = capabilities_of(handle).joins
    candidate = place.candidate if isinstance(place.source, str | Candidate) else None
    if candidate is not None and candidate.connect is not None:
        return candidate.connect(candidate.url)
    if isinstance(handle, SqliteStore | AsyncSqliteStore):
        return sqlite3.connect(handle.path)
    if joins is not None and not isinstance(joins, OwnTables):
        pytest.fail(
            f"{place.name} says that it joins callers' transactions: give the suite a connection to join, with "
            "Candidate(connect=...)"
        )
    return None


class TestDisciplines:
    """Each one left out lets something happen twice."""

    def test_the_record_commits_with_the_effect_or_the_store_says_that_it_cannot(
        self, do: Do, gate: Callable[..., Any], connection: Any
    ) -> None:
        """
        Same transaction: rolled back, neither stands; committed, both do. A store apart from the rows refuses.
        """
        ours = gate()
        if connection is None:
            with pytest.raises(ConfigurationError):
                do(ours.atomic(object(), "k", lambda: "never"))
            return

        def work(fails: bool) -> str:
            connection.cursor().execute("INSERT INTO effects VALUES ('one')")
            if fails:
                raise Spoiled
            return "done"

        with pytest.raises(Spoiled):
            do(ours.atomic(connection, "k", lambda: work(True)))
        undone = (counted(connection), do(ours.records.get("k")))
        connection.rollback()  # Counting may have begun a transaction.
        answers = [do(ours.atomic(connection, "k", lambda: work(False))) for _ in range(2)]

        assert undone == (0, None)
        assert (answers, counted(connection)) == (["done", "done"], 1)
        assert do(ours.records.get("k")).state == "settled"

    def test_the_constraint_is_the_arbiter(
        self, do: Do, gate: Callable[..., Any], together: Together, place: StoreUnderTest
    ) -> None:
        """
        Many callers start the same operation at the same time, none of them having looked: it happens once.
        """
        effects, ours = [], gate(environment=REAL, wait=WAIT)
        crowd = 16 if place.colour == "blocking" else 50

        def call() -> Steps:
            return (yield ours.run("k", lambda: effects.append("one")))

        together(*(call() for _ in range(crowd)))

        assert effects == ["one"]
        assert len(do(ours.records.list())) == 1

    def test_a_violation_is_handled(self, gate: Callable[..., Any], together: Together, place: StoreUnderTest) -> None:
        """
        Whoever loses the race hears no error of a database: all get the winner's answer, one of them first-hand.
        """
        gates = [gate(environment=REAL, wait=WAIT) for _ in range(16 if place.colour == "blocking" else 50)]

        def call(ours: Any, number: int) -> Steps:
            return (yield ours.call("k", lambda: f"by {number}"))

        outcomes = together(*(call(ours, number) for number, ours in enumerate(gates)))

        assert len({(outcome.value, outcome.fence, outcome.first_at) for outcome in outcomes}) == 1
        assert [outcome.replayed for outcome in outcomes if not outcome.replayed] == [False]

    def test_retention_is_agreed_and_kept(self, do: Do, gate: Callable[..., Any], clock: StoreClock) -> None:
        """
        Until the agreed time is over the answer replays; from then on, as agreed, it is refused or runs again.
        """
        refusing = gate(retain=clock.seconds(10))
        running = gate(retain=clock.seconds(10), after_expiry="run")
        for ours, key in ((refusing, "refused"), (running, "run-again")):
            do(ours.run(key, lambda: "first"))
        clock.advance(5)
        within = [do(ours.run(key, lambda: "second")) for ours, key in ((refusing, "refused"), (running, "run-again"))]
        clock.advance(6)

        assert within == ["first", "first"]
        assert do(running.run("run-again", lambda: "third")) == "third"
        with pytest.raises(Expired):
            do(refusing.run("refused", lambda: "third"))


def counted(connection: Any) -> int:
    """How many effects there are."""
    cursor = connection.cursor()
    cursor.execute("SELECT count(*) FROM effects")
    [(count,)] = cursor.fetchall()
    return int(count)
