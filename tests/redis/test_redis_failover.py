"""What a failover of Redis can lose: the limit that the documentation states, shown."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis_support import SCOPE, looking, opened

from onceward import Gate, StoreUnavailable
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
            assert "charged" == gate.run("k", charge)
        if not lags:
            _until_there(replica)
        primary.kill()
        with looking(replica) as client:
            client.replicaof("no", "one")
        with Gate(replica.url(prefix="shop"), scope=SCOPE) as gate:
            gate.run("k", charge)
    print(f"failover, replica {'lags' if lags else 'is up to date'}: acknowledged 1, effects {len(effects)}")

    assert (2 if lags else 1) == len(effects)


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
    records = [key for key in client.scan_iter("{shop:*") if len(key.rpartition(b":")[2]) == 64]
    return bool(records) and client.hget(records[0], "state") == b"settled"
