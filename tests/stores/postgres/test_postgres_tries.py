"""What is tried again on PostgreSQL, for records and for tables alike. There is no server: flows are walked by hand."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from onceward import StoreUnavailable
from onceward.runtime.flow_driver import drive_steps
from onceward.stores._postgres_errors import NotConnected, ServerSilent
from onceward.stores._postgres_flow import STATEMENT_TRIES, ConnectionEffect, SleepEffect, with_retries
from onceward.stores._postgres_url import PostgresTarget

TARGET = PostgresTarget({}, "PostgreSQL somewhere")
LOST = psycopg.OperationalError("the connection is closed")


def tried(*errors: BaseException, landed: bool | None = None) -> tuple[int, list[bool], Any]:
    """How often something was done that failed with these, whether idle connections were dropped, and what came."""
    done, dropped, left = [], [], list(errors)

    def perform(effect: Any) -> Any:
        if isinstance(effect, SleepEffect):
            return dropped.append(effect.lost)
        done.append(effect)
        if left:
            raise left.pop(0)
        return "done"

    try:
        came = drive_steps(
            with_retries(TARGET, ConnectionEffect(id), None if landed is None else lambda: landed), perform
        )
    except StoreUnavailable as error:
        came = type(error)
    return len(done), dropped, came


@pytest.mark.fault("a-dead-connection-of-the-tables-is-not-replaced")
@pytest.mark.parametrize("landed", [None, False])
def test_a_connection_that_was_lost_is_replaced_if_nothing_can_have_landed(landed: bool | None) -> None:
    """
    What befell one has befallen all that were idle: they are dropped, and another is opened.
    """
    assert tried(LOST, landed=landed) == (2, [True], "done")


@pytest.mark.fault("what-may-have-landed-is-sent-again")
def test_what_may_have_landed_is_not_sent_again() -> None:
    """
    Nobody knows whether it was carried out: its caller hears so, at once.
    """
    assert tried(LOST, landed=True) == (1, [], StoreUnavailable)


def test_a_deadlock_is_tried_again_also_where_something_may_have_landed() -> None:
    """
    The server has undone all of it.
    """
    assert tried(errors.DeadlockDetected("deadlock"), landed=True) == (2, [False], "done")


def test_patience_ends() -> None:
    """
    After so many tries the error is told in our words.
    """
    assert tried(*[LOST] * 9) == (STATEMENT_TRIES, [True] * (STATEMENT_TRIES - 1), StoreUnavailable)


def test_a_server_that_was_silent_is_asked_once_more_and_no_more() -> None:
    """
    Another line may do better; a second long silence is enough.
    """
    assert tried(*[ServerSilent("was silent")] * 9) == (2, [True], StoreUnavailable)


def test_where_nothing_was_sent_nobody_waits_for_a_server_that_is_away() -> None:
    """
    No connection could be opened: its caller hears so at once.
    """
    away = NotConnected(StoreUnavailable("cannot be reached"))

    assert tried(away, away) == (1, [], StoreUnavailable)
    assert tried(LOST, away) == (3, [True, True], "done")
