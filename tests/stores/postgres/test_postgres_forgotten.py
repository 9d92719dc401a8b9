"""
Failovers that lose something: a standby that lags, and a commit whose wait for it was cancelled. Nothing happens twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from postgres_support import COLOURS

from onceward import AsyncGate, Gate, StoreUnavailable
from servers.postgres import PostgresServer, needed
from servers.postgres_pair import SECONDS_MAX, Pair, at, primary, until
from servers.proxy import Proxy

needed()

__all__ = ["primary"]

OPERATIONS = 6
OPTIONS = "connect_timeout=2&onceward_pool=4"


class Linked(NamedTuple):
    """A primary, its standby, and the line between them."""

    pair: Pair
    link: Proxy


@pytest.fixture
def linked(primary: PostgresServer, tmp_path: Path) -> Iterator[Linked]:
    """The standby follows through a line that can be held; it has the tables."""
    with Proxy(primary.port) as link:
        standby = at(tmp_path / "standby", standby_of=link.port)
        standby.start()
        with Gate(primary.url(), scope="test:forgotten") as gate:
            gate.records.get("ready")
        end = primary.execute("SELECT pg_current_wal_lsn()::text")[0][0]
        until(lambda: standby.execute(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [(True,)])
        yield Linked(Pair(primary, standby), link)
        standby.stop()


class Work:
    """Operations whose functions wait until they may go on, and count how often they ran."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.heard: list[str] = []

    def effect(self, key: str) -> str:
        """What must happen once."""
        self.effects[key] += 1
        self.begun.release()
        assert self.may_end.wait(SECONDS_MAX)
        return f"done {key}"

    def listen(self, event: Any) -> None:
        """Hear what a gate tells."""
        self.heard.append(event.type.value)


def run_all(url: str, colour: str, work: Work, keys: list[str], then: Callable[[], None] = lambda: None) -> list[Any]:
    """Run each key at the same time; answers and errors. `then` is called once every function has begun."""
    return asyncio.run(_await_all(url, work, keys, then)) if colour == "awaiting" else _block(url, work, keys, then)


def _block(url: str, work: Work, keys: list[str], then: Callable[[], None]) -> list[Any]:
    with Gate(url, scope="test:forgotten", listeners=[work.listen]) as gate, ThreadPoolExecutor(len(keys)) as pool:
        running = [pool.submit(gate.run, key, lambda key=key: work.effect(key)) for key in keys]
        then()
        return [one.exception(SECONDS_MAX) or one.result() for one in running]


async def _await_all(url: str, work: Work, keys: list[str], then: Callable[[], None]) -> list[Any]:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(keys) + 1))
    async with AsyncGate(url, scope="test:forgotten", listeners=[work.listen]) as gate:

        async def fn(key: str) -> str:
            return await asyncio.to_thread(work.effect, key)

        running = [asyncio.ensure_future(gate.run(key, lambda key=key: fn(key))) for key in keys]
        await asyncio.to_thread(then)
        return list(await asyncio.gather(*running, return_exceptions=True))


@pytest.mark.slow
@pytest.mark.fault("what-the-store-forgot-was-taken-over")
@pytest.mark.parametrize("colour", COLOURS)
def test_operations_that_run_through_a_lossy_failover_happen_once(linked: Linked, colour: str) -> None:
    """
    An asynchronous standby never heard of the claims, and takes over while their functions run: each ending is put
    back, each caller has its answer, and each retry is given the same one.
    """
    pair, link = linked
    work, keys = Work(), [f"k{number}" for number in range(OPERATIONS)]

    def fail_over() -> None:
        for _ in keys:
            assert work.begun.acquire(timeout=SECONDS_MAX)
        pair.fail_over()
        work.may_end.set()

    link.hold()
    answers = run_all(pair.url(OPTIONS), colour, work, keys, fail_over)
    again = run_all(pair.url(OPTIONS), colour, work, keys)
    print(f"lossy failover, {colour}: {len(keys)} operations, doubled {sum(n > 1 for n in work.effects.values())}")

    assert dict(work.effects) == dict.fromkeys(keys, 1)
    assert answers == again == [f"done {key}" for key in keys]
    assert work.heard.count("store_forgot") == OPERATIONS


@pytest.mark.slow
@pytest.mark.fault("a-cancelled-wait-is-success")
@pytest.mark.parametrize("colour", COLOURS)
def test_a_cancelled_wait_and_a_failover_do_not_run_it_twice(linked: Linked, colour: str) -> None:
    """
    The standby is synchronous and does not hear of the claim; an administrator cancels the wait; the standby takes
    over; the operation is sent again. It happens once.
    """
    pair, link = linked
    work = Work()
    work.may_end.set()
    pair.primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    pair.primary.execute("SELECT pg_reload_conf()")
    until(lambda: pair.primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
    link.hold()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_all, pair.url(OPTIONS), colour, work, ["k"])
        until(lambda: _cancel(pair.primary) or running.done())
        [first] = running.result(SECONDS_MAX)
    pair.fail_over()
    [second] = run_all(pair.url(OPTIONS), colour, work, ["k"])

    assert (dict(work.effects), second) == ({"k": 1}, "done k")
    assert type(first) is StoreUnavailable


def _cancel(server: PostgresServer) -> bool:
    """Cancel whoever waits for the standby; False, so that somebody else says when it is enough."""
    server.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    return False
