"""How often atomic mode waits for the server: counted in what libpq itself writes down."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import IO, Any

import psycopg
import pytest

from onceward.adapters import _psycopg_pipeline
from servers.postgres import needed
from stores.postgres.atomic_support import COLOURS, Bank, Caller, told

needed()

EXPECTED = {
    "first": {"fresh": 3, "replay": 2, "joined": 3, "joined replay": 2},
    "last": {"fresh": 3, "replay": 2, "joined": 3, "joined replay": 2},
}
"""The function's own statement included. docs/how-to/share-a-transaction.md says the same."""


class Spoiled(Exception):
    """The caller's own work went wrong."""


@pytest.fixture(params=COLOURS)
def bank(request: pytest.FixtureRequest, url: str, admin: psycopg.Connection[Any]) -> Bank:
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    return Bank(url, request.param, wait=0)


class Trips:
    """A count of answers that the client had to wait for: each ends with the server's ReadyForQuery."""

    def __init__(self, written: IO[str]) -> None:
        self._written = written
        self.count = self.turns = -1
        """`turns`: how often something was sent, and then something was read before the next was sent."""

    def end(self) -> None:
        self._written.seek(0)
        lines = [line.split("\t") for line in self._written]
        self.count = sum("ReadyForQuery" in line for fields in lines for line in fields)
        ways = [fields[1] for fields in lines if fields[1:2] in (["F"], ["B"])]
        self.turns = sum(pair == ("F", "B") for pair in pairwise(ways))


@contextmanager
def counted(caller: Caller) -> Iterator[Trips]:
    """How many round trips the block takes on that connection."""
    with tempfile.TemporaryFile("w+") as written:
        trips = Trips(written)
        caller.connection.pgconn.trace(written.fileno())
        try:
            yield trips
        finally:
            caller.connection.pgconn.untrace()
            trips.end()


async def _warmed(bank: Bank, claim: str) -> Caller:
    """A connection that has been looked at once, with its statements prepared."""
    caller = await bank.caller()
    for number in range(6):
        await caller.atomic(f"warm:{number}", claim=claim)
    async with caller.transaction():
        await caller.atomic("warm", claim=claim)
    return caller


@pytest.mark.parametrize("claim", ["first", "last"])
@told
async def test_atomic_mode_adds_no_round_trip_to_the_callers_own(bank: Bank, claim: str) -> None:
    """
    Begin, insert, commit by hand are three; with the record they are three: begin and claim, insert, settle and commit.
    """
    caller = await _warmed(bank, claim)
    found: dict[str, int] = {}
    turns: dict[str, int] = {}
    with counted(caller) as by_hand:
        await caller.book()
        await caller.commit()
    for name in ("fresh", "replay"):
        with counted(caller) as trips:
            await caller.atomic("k", claim=claim)
        found[name] = trips.count
        turns[name] = trips.turns
    async with caller.transaction():
        await caller.book()
        for name in ("joined", "joined replay"):
            with counted(caller) as trips:
                await caller.atomic("k2", claim=claim)
            found[name] = trips.count
            turns[name] = trips.turns

    assert by_hand.count == 3
    assert EXPECTED[claim] == found == turns


@pytest.mark.parametrize("claim", ["first", "last"])
@told
async def test_the_first_call_on_a_connection_looks_once_where_it_is(bank: Bank, claim: str) -> None:
    """
    One round trip more, once for each connection.
    """
    caller = await bank.caller()
    await caller.atomic("before", claim=claim)  # So that the gate itself is open.
    new = await bank.caller()
    with counted(new) as trips:
        await new.atomic("k", claim=claim)

    assert EXPECTED[claim]["fresh"] + 1 == trips.count


@told
async def test_without_pipeline_mode_it_takes_what_the_statements_take(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The count can be another: sent one by one, begin, claim, insert, settle and commit are five.
    """
    caller = await _warmed(bank, "first")
    monkeypatch.setattr(_psycopg_pipeline, "_HAS_PIPELINES", False)
    with counted(caller) as trips:
        await caller.atomic("k")

    assert (trips.count, trips.turns) == (5, 5)


@pytest.mark.parametrize("claim", ["first", "last"])
@told
async def test_remembering_failures_takes_two_more(bank: Bank, claim: str) -> None:
    """
    A savepoint around the function, and its release.
    """
    caller = await _warmed(bank, claim)
    with counted(caller) as trips:
        await caller.atomic("k", claim=claim, remember="all")

    assert EXPECTED[claim]["fresh"] + 2 == trips.count


@pytest.mark.parametrize("claim", ["first", "last"])
@told
async def test_nothing_is_prepared_where_the_caller_prepares_nothing(bank: Bank, claim: str) -> None:
    """
    prepare_threshold=None, as poolers between transactions want it; otherwise our statements are prepared.
    """
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%onceward_records%'"
    plain, other = await bank.caller(prepare_threshold=None), await bank.caller()
    for caller in (plain, other):
        await caller.atomic("k", claim=claim)
        await caller.atomic(f"k{id(caller)}", claim=claim)

    assert await plain.execute(prepared) == [(0,)]
    assert await other.execute(prepared) > [(0,)]
