"""
Django's views settle inside their own transactions: ATOMIC_REQUESTS, and savepoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django_desk
import pytest
from counters import OPTIONS
from desks import Kind
from django.db import connections, transaction
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path
from django_desk import DjangoDesk

from onceward import InDoubt, current_operation
from onceward.errors import NothingHappened
from servers.postgres import wanted

ALIAS = "inside"


@pytest.fixture(params=["sqlite", "postgresql"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DjangoDesk]:
    """A gate and an alias on one database, whose views are transactions."""
    if request.param == "postgresql" and not wanted():
        pytest.skip("STORES leaves postgres out")
    desk = DjangoDesk(Kind("django", request.param), tmp_path)
    desk.point_at(ALIAS, ATOMIC_REQUESTS=True)
    yield desk
    django_desk.urlpatterns.clear()
    for alias in (ALIAS, *django_desk.ALIASES):
        django_desk.forget(alias)
    desk.gate.close()


def _charge(answer: Any) -> None:
    operation = current_operation()
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("INSERT INTO charges VALUES (1, '1')")
    operation.settle_inside(connections[ALIAS], answer)


def test_atomic_requests_commit_before_the_gate_looks(desk: DjangoDesk) -> None:
    """
    The view is the transaction: one that fails undoes its settle, too, and the next one is the first that counts.
    """
    fails = [True, False]

    def view(request: HttpRequest) -> JsonResponse:
        _charge({"id": 7})
        if fails.pop(0):
            raise ZeroDivisionError
        return JsonResponse({"id": 7})

    django_desk.urlpatterns.append(path("charge", view))

    def serve() -> None:
        if Client(raise_request_exception=False).post("/charge").status_code == 500:
            raise NothingHappened

    with pytest.raises(NothingHappened):
        desk.gate.run("order:1", serve, **OPTIONS)

    assert (desk.place.rows(), desk.place.states()) == (0, {"order:1": "released"})
    assert [desk.gate.run("order:1", serve, **OPTIONS) for _ in range(2)] == [{"id": 7}, {"id": 7}]
    assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled"})


def test_a_settle_that_went_with_a_savepoint_is_in_doubt(desk: DjangoDesk) -> None:
    """
    An inner atomic() is undone, and the rows around it are committed: nobody takes that for nothing.
    """

    def swallows() -> None:
        with transaction.atomic(using=ALIAS):
            with connections[ALIAS].cursor() as cursor:
                cursor.execute("INSERT INTO charges VALUES (1, 'outer')")
            with pytest.raises(ZeroDivisionError), transaction.atomic(using=ALIAS):
                _charge("charged")
                raise ZeroDivisionError

    with pytest.raises(InDoubt, match="savepoint that is rolled back"):
        desk.gate.run("order:1", swallows, **OPTIONS)

    assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "in_doubt"})
