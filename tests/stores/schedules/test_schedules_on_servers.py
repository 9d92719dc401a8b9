"""
The explorer's scenarios on PostgreSQL and Redis: sampled schedules, the same flows, the same invariants.

SCHEDULES=10000 plays more of them; SEED chooses others. Each store and colour plays its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import redis
from lockstep import Parted, Theatre, play, playable

from onceward._core.record import PutResult, Write
from onceward.testing.explorer import FAULTS, INVARIANTS
from onceward.testing.explorer.faults import plant
from servers import postgres as postgres_servers
from servers import redis as redis_servers
from servers.handles import COLOURS, Handle, handle
from servers.redis_rows import changed

pytestmark = pytest.mark.dose(1, of="colour")

SCHEDULES = int(os.environ.get("SCHEDULES", "100"))
"""Of each store in each colour."""
SEED = int(os.environ.get("SEED", "17"))

ENGINE_FAULTS = ("dropped-fingerprint", "lease-ignored", "release-on-unknown", "doubt-not-sticky")
_BROKEN = rf"^[\w-]+: ({'|'.join(one.name for one in INVARIANTS)}): "
_INSTANTS = ("first_at", "settled_at", "lease_until", "replay_until", "forget_at")


class OnPostgres:
    """Records in a table of a database of its own."""

    def __init__(self, one: Handle, connection: psycopg.Connection[Any]) -> None:
        self.put = one.put
        self.call = one.call
        self._connection = connection
        connection.execute("TRUNCATE onceward_records")
        connection.execute("UPDATE onceward_meta SET value = 0 WHERE name = 'fence_floor'")

    def age(self, microseconds: int) -> None:
        """See `Theatre.age`."""
        older = ", ".join(f"{name} = {name} - {microseconds}" for name in _INSTANTS)
        self._connection.execute(f"UPDATE onceward_records SET {older}".encode())


class OnRedis:
    """Records under a prefix of its own."""

    def __init__(self, one: Handle, client: Any, prefix: str) -> None:
        self.put = one.put
        self.call = one.call
        self._client, self._prefix = client, prefix
        if keys := list(client.scan_iter(f"{{{prefix}:*", count=1_000)):
            client.delete(*keys)

    def age(self, microseconds: int) -> None:
        """See `Theatre.age`."""
        for key in self._client.scan_iter(f"{{{self._prefix}:*", count=1_000):
            name = key.partition(b"}:")[2]
            if name in (b"forget", b"replay"):
                for member in self._client.zrange(key, 0, -1):
                    self._client.zincrby(key, -microseconds, member)
            elif len(name) == 32:
                self._client.set(key, changed(name, self._client.get(key), aged=microseconds))


@contextmanager
def _postgres(colour: str) -> Iterator[Callable[[], Theatre]]:
    server, database = postgres_servers.running(), "schedules"
    if not server.execute(f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
        server.execute(f"CREATE DATABASE {database}")
    url = server.url(database)
    with handle(url, colour) as one, psycopg.connect(url, autocommit=True) as connection:
        one.call("load", bytes(32))
        yield lambda: OnPostgres(one, connection)


@contextmanager
def _redis(colour: str) -> Iterator[Callable[[], Theatre]]:
    server, prefix = redis_servers.running(), f"schedules{os.urandom(4).hex()}"
    with handle(server.url(prefix=prefix), colour) as one, redis.Redis(port=server.port) as client:
        yield lambda: OnRedis(one, client, prefix)


SERVERS = [
    *([_postgres] if postgres_servers.wanted() else []),
    *([_redis] if redis_servers.wanted() else []),
]


@pytest.fixture(params=SERVERS, ids=lambda one: one.__name__.strip("_"))
def on(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("colour", COLOURS)
def test_the_store_answers_as_the_model_does_and_no_invariant_breaks(on: Any, colour: str) -> None:
    """
    Crashes, lost answers, interrupts, lapsed leases, purges, in orders chosen by chance (and the same each time).
    """
    with on(colour) as theatre:
        played = play(theatre, SCHEDULES, seed=SEED + 2 * SERVERS.index(on) + COLOURS.index(colour))
    print(f"{on.__name__.strip('_')}, {colour}: {played._asdict()}")

    assert played.schedules == SCHEDULES
    assert played.comparisons > 3 * SCHEDULES
    assert played.judged > 10 * SCHEDULES


def test_every_scenario_has_its_turn() -> None:
    """
    The sample goes round: none that a store can play is left out.
    """
    assert 30 < len(playable()) <= SCHEDULES


class Careless:
    """A theatre whose store puts over whatever stands there, if it is told to."""

    def __init__(self, theatre: Theatre, careless: Callable[[Write, bytes | None], bool]) -> None:
        self.call, self.age = theatre.call, theatre.age
        self._theatre, self._careless = theatre, careless

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """See `Theatre.put`."""
        standing = self._theatre.put(write, expect)
        if not standing.landed and standing.record is not None and self._careless(write, expect):
            return self._theatre.put(write, standing.record.version)
        return standing


class TestTheCheckItself:
    """Planted faults are found, with the schedule that leads there."""

    @pytest.mark.parametrize(
        "careless",
        [lambda _, expect: expect is None, lambda write, expect: expect is not None and not write.rise],
        ids=["a claim overwrites", "a settle is not fenced"],
    )
    def test_a_careless_store_is_found(self, on: Any, careless: Callable[[Write, bytes | None], bool]) -> None:
        """
        A mistake of the store: it parts from the model.
        """
        with on("blocking") as theatre, pytest.raises(Parted, match="landed: the model says False") as found:
            play(lambda: Careless(theatre(), careless), SCHEDULES, seed=SEED)

        assert "\n  " in str(found.value)

    @pytest.mark.parametrize("fault", [FAULTS[name] for name in ENGINE_FAULTS], ids=ENGINE_FAULTS)
    def test_a_careless_engine_is_found(self, on: Any, fault: Any) -> None:
        """
        A mistake of the rules: the store does as it is told, and an invariant breaks.
        """
        some = [one for one in playable() if one.name in fault.scenarios]
        with on("blocking") as theatre, plant(fault), pytest.raises(Parted, match=_BROKEN):
            play(theatre, 500, seed=SEED, scenarios=some)
