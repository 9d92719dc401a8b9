"""A server that is there and says nothing: no call hangs, and an answer that comes late is nobody's."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest
from redis_support import SCOPE

from onceward import Gate, StoreUnavailable
from onceward.testing.store_suite.rows import row, settled
from servers.handles import COLOURS, Handle, handle
from servers.proxy import Proxy
from servers.redis import needed, running, started

needed()

SLACK_SECONDS = 10.0
"""For a busy machine: without a limit, a call would not end at all."""


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(running().port) as one:
        yield one


@pytest.fixture
def far(proxy: Proxy, colour: str) -> Iterator[Handle]:
    """A store on the other side of the proxy, opened and warm."""
    with handle(_through(proxy), colour) as one:
        one.put(row(SCOPE, "warm"))
        yield one
        proxy.let_go()


def _through(proxy: Proxy, **options: object) -> str:
    return running().url(timeout=0.5, **options).replace(f":{running().port}/", f":{proxy.port}/")


def test_every_call_ends_in_time_and_says_what_it_may_be(colour: str) -> None:
    """
    Calls of all kinds, side by side, on a server that was stopped: each is told that the store is away, and when the
    server wakes up the store goes on by itself.
    """
    with started() as server, handle(server.url(timeout=0.5), colour) as store:
        held = store.put(row(SCOPE, "held")).record
        server.signal(signal.SIGSTOP)
        begun = time.monotonic()
        try:
            calls = [
                store.start("put", row(SCOPE, "new"), None),
                store.start("put", settled(held), held.version),
                store.start("load", held.id),
                store.start("purge", 10),
                store.start("extend", bytes(32), 1, 1),
            ]
            told = [one.exception(60) for one in calls]
            lasted = time.monotonic() - begun
        finally:
            server.signal(signal.SIGCONT)
        landed = [store.put(row(SCOPE, f"k{n}")).landed for n in range(3)]

    print(f"frozen server, {colour}: {len(told)} calls ended after {lasted:.1f} s")
    assert [StoreUnavailable] * 5 == [type(one) for one in told]
    assert all("retry with the same key" in str(one).lower() for one in told)
    # One batch is silent for the timeout; those who came meanwhile are the next, and try to connect.
    assert lasted < 4 * 0.5 + SLACK_SECONDS
    assert landed == [True] * 3


def test_a_late_answer_is_never_taken_for_the_answer_to_another_call(far: Handle, proxy: Proxy) -> None:
    """
    The line it comes on was thrown away: the next calls hear about their own records.
    """
    for n in range(4):
        far.put(row(SCOPE, f"k{n}"))
    proxy.hold()
    with pytest.raises(StoreUnavailable, match=r"silent for timeout=0\.5 s"):
        far.call("load", row(SCOPE, "k0").id)
    proxy.let_go()
    heard = [far.call("load", row(SCOPE, f"k{n}").id).key for n in (1, 2, 3)]
    crowd = far.together([(row(SCOPE, f"k{n}"), None) for n in range(4)])

    assert heard == ["k1", "k2", "k3"]
    assert [one.record.key for one in crowd] == ["k0", "k1", "k2", "k3"]


def test_a_claim_that_landed_late_is_known_by_its_sender_and_seen_by_others(far: Handle, proxy: Proxy) -> None:
    """
    Sent again, it finds itself; another caller finds it standing.
    """
    write = row(SCOPE, operation="late")
    proxy.hold()
    with pytest.raises(StoreUnavailable, match="may have landed"):
        far.put(write)
    proxy.let_go()
    standing = far.put(write)
    seen = far.put(row(SCOPE))

    assert write.version == standing.record.version
    assert (seen.landed, seen.record.operation) == (False, "late")


def test_an_effect_whose_settle_met_a_frozen_server_is_not_repeated(proxy: Proxy) -> None:
    """
    The server freezes while the function runs, and comes back within the lease: the effect took place once, and
    everybody learns the same.
    """
    effects: list[str] = []

    def effect() -> str:
        effects.append("one")
        proxy.hold()
        threading.Timer(1.0, proxy.let_go).start()
        return "done"

    with Gate(_through(proxy), scope=SCOPE) as gate:
        told = [gate.run("k", effect) for _ in range(2)]

    assert (told, effects) == (["done", "done"], ["one"])
