"""A result that is too large, for our limit (it is not even sent) or for the server's own: the record stays honest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward import Gate, NotReplayable
from servers import postgres, redis

MEGABYTE = 1_000_000
REFUSE = """
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(NEW.result) > 1000000 THEN
        RAISE EXCEPTION 'invalid memory alloc request size' USING ERRCODE = '54000';
    END IF;
    RETURN NEW;
END $$
"""


@pytest.fixture
def narrow_postgres() -> Iterator[str]:
    """A server that refuses fields of more than a megabyte, as PostgreSQL refuses those of a gigabyte."""
    server, database = postgres.running(), "narrow"
    server.execute(f"DROP DATABASE IF EXISTS {database}")
    server.execute(f"CREATE DATABASE {database}")
    with Gate(server.url(database), scope="test:large") as gate:
        gate.records.get("nothing")
    server.execute(REFUSE, database)
    server.execute(
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON onceward_records FOR EACH ROW EXECUTE FUNCTION refuse()",
        database,
    )
    yield server.url(database)


@pytest.fixture
def narrow_redis() -> Iterator[str]:
    """A server that hangs up on values of more than a megabyte, as Redis does on those of 512."""
    with redis.started(*redis.DURABLE, "--proto-max-bulk-len", "1mb") as server:
        yield server.url()


_STORES = [
    *(["narrow_postgres"] if postgres.wanted() else []),
    *(["narrow_redis"] if redis.wanted() else []),
]


@pytest.fixture(params=_STORES)
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def _large(effects: list[str]) -> Callable[[], str]:
    return lambda: effects.append("one") or "x" * (2 * MEGABYTE)  # type: ignore[func-returns-value]


def test_our_limit_refuses_it_before_it_is_sent(url: str) -> None:
    """
    The caller has its answer; the record says that it ran, and a retry hears that the answer could not be kept.
    """
    effects: list[str] = []
    with Gate(url, scope="test:large") as gate:
        first = gate.run("k", _large(effects))
        with pytest.raises(NotReplayable):
            gate.run("k", _large(effects))
        view: Any = gate.records.get("k")

    assert (len(first), effects, view.state) == (2 * MEGABYTE, ["one"], "settled")


def test_the_servers_own_limit_leaves_an_honest_record(url: str) -> None:
    """
    With our limit raised, the server refuses it: the caller has its answer all the same, the record says that it ran,
    and nobody runs it again.
    """
    effects: list[str] = []
    with Gate(url, scope="test:large", result_bytes_max=100 * MEGABYTE) as gate:
        first = gate.call("k", _large(effects))
        with pytest.raises(NotReplayable):
            gate.run("k", _large(effects))
        view: Any = gate.records.get("k")
        alive = gate.run("another", lambda: "the store works")

    assert (len(first.value), first.replayable) == (2 * MEGABYTE, False)
    assert (effects, view.state, alive) == (["one"], "settled", "the store works")
