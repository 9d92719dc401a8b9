"""What a failover of Redis can lose: the limit that the documentation states, shown."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis_support import SCOPE, looking, opened

from onceward import AsyncGate, Gate, StoreUnavailable
from servers.proxy import Proxy
from servers.redis import RedisServer, needed, started

needed()

SECONDS_MAX = 20


def _follows(replica: RedisServer, port: int) -> None:
    """Make it a replica of the server behind that port, and wait until it has everything."""
    with looking(replica) as client:
        client.replicaof("127.0.0.1", str(port))
        give_up = time.monotonic() + SECONDS_MAX
        while client.info("replication").get("master_link_status") != "up":
            assert time.monotonic() < give_up
            time.sleep(0.02)


@pytest.mark.parametrize("lags", [True, False])
def test_a_replica_that_takes_over_has_what_it_was_sent_and_no_more(lags: bool) -> None:
    """
    The primary answers before its replica has heard: if it dies then, an acknowledged operation runs again. If the
    replica had heard, it replays.
    """
    effects: list[str] = []

    def charge() -> str:
        effects.append("one")
        return "charged"

    with started() as primary, started() as replica, Proxy(primary.port) as proxy:
        _follows(replica, proxy.port)
        if lags:
            proxy.hold()
        with Gate(primary.url(prefix="shop"), scope=SCOPE) as gate:
            assert gate.run("k", charge) == "charged"
        if not lags:
            _until_there(replica)
        primary.kill()
        with looking(replica) as client:
            client.replicaof("no", "one")
        with Gate(replica.url(prefix="shop"), scope=SCOPE) as gate:
            gate.run("k", charge)
    print(f"failover, replica {'lags' if lags else 'is up to date'}: acknowledged 1, effects {len(effects)}")

    assert (2 if lags else 1) == len(effects)


OPERATIONS = 6


@pytest.mark.fault("what-the-store-forgot-was-taken-over")
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_operations_that_run_while_a_replica_takes_over_happen_once(colour: str) -> None:
    """
    The replica's line is cut, so that it never heard of the claims, and it takes over while their functions run: each
    ending is put back, and each retry is given the first answer.
    """
    effects: Counter[str] = Counter()
    begun, may_end = threading.Semaphore(0), threading.Event()
    heard: list[str] = []
    keys = [f"k{number}" for number in range(OPERATIONS)]

    def charge(key: str) -> str:
        effects[key] += 1
        begun.release()
        assert may_end.wait(SECONDS_MAX)
        return f"charged {key}"

    with started() as primary, started() as replica, Proxy(primary.port) as link, Proxy(primary.port) as front:
        _follows(replica, link.port)
        link.hold()
        url = f"redis://127.0.0.1:{front.port}/0?prefix=shop"

        def fail_over() -> None:
            for _ in keys:
                assert begun.acquire(timeout=SECONDS_MAX)
            primary.kill()
            with looking(replica) as client:
                client.replicaof("no", "one")
            front.lead_to(replica.port)
            may_end.set()

        listeners = [lambda event: heard.append(event.type.value)]
        answers = _run_all(url, colour, charge, keys, listeners, fail_over)
        again = _run_all(url, colour, charge, keys, [], lambda: None)

    assert dict(effects) == dict.fromkeys(keys, 1)
    assert answers == again == [f"charged {key}" for key in keys]
    assert heard.count("store_forgot") == OPERATIONS


def _run_all(
    url: str, colour: str, charge: Any, keys: list[str], listeners: list[Any], then: Callable[[], None]
) -> list[Any]:
    """Run each key at the same time; `then` happens meanwhile."""
    with ThreadPoolExecutor(len(keys) + 1) as pool:
        if colour == "blocking":
            with Gate(url, scope=SCOPE, listeners=listeners) as gate:
                running = [pool.submit(gate.run, key, lambda key=key: charge(key)) for key in keys]
                then()
                return [one.exception(SECONDS_MAX) or one.result() for one in running]

        async def work() -> list[Any]:
            loop = asyncio.get_running_loop()

            async def fn(key: str) -> str:
                return await loop.run_in_executor(pool, charge, key)

            async with AsyncGate(url, scope=SCOPE, listeners=listeners) as gate:
                running = [asyncio.ensure_future(gate.run(key, lambda key=key: fn(key))) for key in keys]
                await loop.run_in_executor(pool, then)
                return list(await asyncio.gather(*running, return_exceptions=True))

        return asyncio.run(work())


def test_a_replica_is_refused_with_the_way_to_the_primary() -> None:
    """
    Read-only: nothing is started there.
    """
    with started() as primary, started() as replica:
        _follows(replica, primary.port)
        with opened(replica.url()) as store, Gate(store, scope=SCOPE) as gate:
            with pytest.raises(StoreUnavailable, match="connect to the primary") as told:
                gate.run("k", lambda: pytest.fail("it ran"))

            assert told.value.retry_after_seconds is not None


def _until_there(replica: RedisServer) -> None:
    give_up = time.monotonic() + SECONDS_MAX
    with looking(replica) as client:
        while not _settled(client):
            assert time.monotonic() < give_up
            time.sleep(0.02)


def _settled(client: Any) -> bool:
    records = [key for key in client.scan_iter("{shop:*") if key.startswith(b"{shop:") and len(key) == 9 + 32]
    return bool(records) and client.get(records[0])[:1] == b"S"
