"""
Callers in SQL and callers in Python race through the explorer's schedules, on PostgreSQL and in the model at once.

SCHEDULES=3000 plays more of them; SEED chooses others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from mixed_lockstep import Parted, mixed_scenarios, play_mixed

from onceward.stores import _postgres_function_installer as installer
from onceward.stores import open_store
from servers import postgres

postgres.needed()

SCHEDULES = int(os.environ.get("SCHEDULES", "40"))
SEED = int(os.environ.get("SEED", "17"))
DATABASE = "mixed_schedules"
VERDICTS = {"fresh", "replay", "failed", "key_reused", "in_flight", "in_doubt"}


class Place:
    """A database with the functions, a store on it, and an administrator's connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = open_store(url)
        self.store.load(bytes(32))
        installer.install(url)
        self.admin = psycopg.connect(url, autocommit=True)
        self.admin.execute("CREATE TABLE charges (key text NOT NULL, who text NOT NULL)")

    def play(self, schedules: int, **options: Any) -> Any:
        """Play schedules in it."""
        return play_mixed(self.url, self.store, self.admin, schedules, seed=SEED, **options)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A database of its own."""
    server = postgres.running()
    server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    server.execute(f"CREATE DATABASE {DATABASE}")
    here = Place(server.url(DATABASE))
    yield here
    here.admin.close()
    here.store.close()
    server.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.mark.slow
@pytest.mark.fault("functions-released-stays")
def test_sql_and_python_race_as_the_model_says_and_no_invariant_breaks(place: Place) -> None:
    """
    Crashes, lost answers, interrupts and lapsed leases, with claims first and last: verdicts, records and rows agree.
    """
    played, verdicts = place.play(SCHEDULES)
    print(f"mixed: {played._asdict()}, {sorted(verdicts)}")

    assert played.schedules == SCHEDULES
    assert played.comparisons > SCHEDULES
    assert played.judged > 10 * SCHEDULES
    assert verdicts == VERDICTS


def test_every_mixed_scenario_has_its_turn() -> None:
    """
    The sample goes round: none is left out.
    """
    assert 30 < len(mixed_scenarios()) <= SCHEDULES


CARELESS = {
    "a claim that is always fresh": "verdict := 'fresh'; claim := coalesce(claim, '\\x'::bytea);",
    "a replay of everything": "verdict := 'replay'; claim := NULL;",
    "a lower fence": "fence := 1;",
    "another attempt": "attempt := attempt + 1;",
}


@pytest.mark.parametrize("mistake", CARELESS)
def test_a_careless_function_is_found(place: Place, mistake: str) -> None:
    """
    The check itself: a function that answers otherwise parts from the model, with the schedule that leads there.
    """
    place.admin.execute("DROP FUNCTION IF EXISTS careless")
    place.admin.execute(
        f"""CREATE FUNCTION careless(a text, b text, c bytea, d text, OUT verdict text, OUT claim bytea, OUT value json,
            OUT codec text, OUT result bytea, OUT error json, OUT first_at timestamptz, OUT attempt bigint,
            OUT fence bigint, OUT retry_after double precision, OUT detail text) LANGUAGE plpgsql AS $$
        BEGIN
            SELECT one.* INTO verdict, claim, value, codec, result, error, first_at, attempt, fence, retry_after, detail
            FROM onceward_claim(a, b, c, d) AS one;
            {CARELESS[mistake]}
        END $$""".encode()
    )
    with pytest.raises(Parted, match="the model says") as found:
        place.play(SCHEDULES, claims="careless")

    assert "\n  " in str(found.value)
