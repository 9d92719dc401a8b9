"""A server that is there and says nothing: no call hangs, and an answer that comes late is nobody's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_support import COLOURS, Handle, handle, query

from onceward import ConfigurationError, Gate, StoreUnavailable
from onceward.stores import _postgres_pool, _postgres_url
from onceward.stores._postgres_url import parse
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import PostgresServer, needed
from servers.proxy import Proxy

pytestmark = pytest.mark.dose(1, of="colour")

needed()

IMPATIENT = "onceward_answer_timeout=0.5&onceward_lock_timeout=0.5&connect_timeout=2"
BOUND_SECONDS = 0.5 + 0.5 + 2
"""What those add up to: one silence, and one new connection."""
SLACK_SECONDS = 10.0
"""For a busy machine: without a limit, a call would not end at all."""


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.port) as one:
        yield one


@pytest.fixture
def far(proxy: Proxy, colour: str) -> Iterator[Handle]:
    """A store on the other side of the proxy, opened and warm."""
    with handle(f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward?{IMPATIENT}", colour) as one:
        one.put(row("test:frozen", "warm"))
        one.call("load", row("test:frozen", "warm").id)
        yield one
        proxy.let_go()


class TestAFrozenServer:
    """Stopped, with its lines open: TCP notices nothing."""

    def test_every_call_ends_in_time_and_says_what_it_may_be(self, tmp_path: Path, colour: str) -> None:
        """
        Calls of all kinds, side by side: each is told within the limits of the URL that the store is away, and when
        the server wakes up the store goes on by itself.
        """
        server = PostgresServer(tmp_path)
        server.start()
        with handle(server.url(options=IMPATIENT), colour) as store:
            held = store.put(row("test:frozen", "held")).record
            store.call("load", held.id)
            server.freeze()
            begun = time.monotonic()
            calls = [
                store.start("put", row("test:frozen", "new"), None),
                store.start("put", settled(held), held.version),
                store.start("load", held.id),
                store.start("purge", 10),
                store.start("extend", bytes(32), 1, 1),
            ]
            told = [one.exception(60) for one in calls]
            lasted = time.monotonic() - begun
            server.thaw()
            answers = [store.put(row("test:frozen", f"k{n}")).landed for n in range(3)]
        server.stop()

        print(f"frozen server, {colour}: {len(told)} calls ended after {lasted:.1f} s")
        assert [StoreUnavailable] * 5 == [type(one) for one in told]
        assert [one.retry for one in told if isinstance(one, StoreUnavailable)] == ["same-key"] * 5
        # Two puts may go one after the other: the second waits for the first one's silence.
        assert lasted < 2 * BOUND_SECONDS + SLACK_SECONDS
        assert answers == [True] * 3

    def test_one_frozen_backend_costs_one_silence_and_nothing_else(self, url: str, colour: str) -> None:
        """
        The rest of the server is well: the same write is sent on a new line, and is recognised or lands.
        """
        with handle(f"{url}?{IMPATIENT}&application_name=frozen_{colour}", colour) as store:
            store.put(row("test:frozen", "warm"))
            pids = query(url, f"SELECT pid FROM pg_stat_activity WHERE application_name = 'frozen_{colour}'")
            for (pid,) in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                write = row("test:frozen", colour)  # A backend of the test before may still write its own.
                standing = store.put(write)
                loaded = store.call("load", write.id)
            finally:
                for (pid,) in pids:
                    os.kill(pid, signal.SIGCONT)

        assert (True, write.version, write.version) == (standing.landed, standing.record.version, loaded.version)

    def test_ctrl_c_is_heard(self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Whoever interrupts a call that waits for a frozen server gets the interrupt, and not an error in its place.
        """
        # psycopg asks the server to cancel, and waits five seconds for that: not what is tested here.
        monkeypatch.setattr(_postgres_pool.PostgresConnection, "_try_cancel", lambda *_, **__: None)
        with handle(f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward?{IMPATIENT}", "blocking") as far:
            far.put(row("test:frozen", "warm"))
            proxy.hold()
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                far.store.put(row("test:frozen"), None)
            proxy.let_go()

            assert True is far.put(row("test:frozen", "other")).landed


class TestALateAnswer:
    """It comes when nobody waits for it any more."""

    def test_it_is_never_taken_for_the_answer_to_another_call(self, far: Handle, proxy: Proxy) -> None:
        """
        The line it comes on was thrown away: the next calls hear about their own records.
        """
        for n in range(4):
            far.put(row("test:frozen", f"k{n}"))
        proxy.hold()
        with pytest.raises(StoreUnavailable, match=r"was silent for 1 s|cannot be reached"):
            far.call("load", row("test:frozen", "k0").id)
        proxy.let_go()
        heard = [far.call("load", row("test:frozen", f"k{n}").id).key for n in (1, 2, 3)]
        crowd = far.together([(row("test:frozen", f"k{n}"), None) for n in range(4)])

        assert heard == ["k1", "k2", "k3"]
        assert [one.record.key for one in crowd] == ["k0", "k1", "k2", "k3"]

    def test_a_claim_that_landed_late_is_known_by_its_sender_and_seen_by_others(
        self, far: Handle, proxy: Proxy, url: str
    ) -> None:
        """
        Sent again, it finds itself; another caller finds it standing.
        """
        write = row("test:frozen", operation="late")
        proxy.hold()
        with pytest.raises(StoreUnavailable, match=r"may have landed|cannot be reached"):
            far.put(write)
        proxy.let_go()
        standing = far.put(write)
        with handle(url, "blocking") as other:
            seen = other.put(row("test:frozen"))

        assert write.version == standing.record.version
        assert (seen.landed, seen.record.operation) == (False, "late")

    def test_an_effect_whose_settle_met_a_frozen_server_is_not_repeated(self, proxy: Proxy, url: str) -> None:
        """
        The server freezes while the function runs: the caller learns the answer or that the store is away; the effect
        took place once, and a retry learns the same or hears of doubt.
        """
        effects: list[str] = []

        def effect() -> str:
            effects.append("one")
            proxy.hold()
            threading.Timer(1.5, proxy.let_go).start()
            return "done"

        with Gate(f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward?{IMPATIENT}", scope="test:frozen") as gate:
            first = gate.run("k", effect)
        with Gate(url, scope="test:frozen") as gate:
            again = gate.run("k", effect)

        assert (first, again, effects) == ("done", "done", ["one"])


class TestTheLimits:
    """Each has a name, a unit, a default and a place in the URL."""

    def test_the_defaults_add_up_to_less_than_the_usual_http_timeout(self) -> None:
        """
        A wait for a row, a silence and a new connection: under half a minute, whatever happens.
        """
        target = parse("postgresql://u@h/d")
        seconds = target.lock_seconds + target.answer_seconds + int(target.parameters["connect_timeout"])

        assert (target.lock_seconds, target.answer_seconds, target.parameters["connect_timeout"]) == (5.0, 10.0, "5")
        assert target.answer_seconds == _postgres_url.ANSWER_SECONDS
        assert seconds < 30

    def test_the_url_sets_them(self) -> None:
        """
        Ours in seconds; libpq's as libpq has them.
        """
        target = parse("postgresql://u@h/d?onceward_answer_timeout=2.5&connect_timeout=3&tcp_user_timeout=700")

        assert target.answer_seconds == 2.5
        assert (target.parameters["connect_timeout"], target.parameters["tcp_user_timeout"]) == ("3", "700")

    @pytest.mark.parametrize("value", ["0", "0.1", "-1", "4000", "soon", "nan"])
    def test_a_senseless_one_is_refused(self, value: str) -> None:
        """
        With what there is.
        """
        with pytest.raises(ConfigurationError, match="onceward_answer_timeout=SECONDS"):
            parse(f"postgresql://u@h/d?onceward_answer_timeout={value}")

    @pytest.mark.parametrize("bytes_end_it", [True, False])
    def test_silence_is_counted_and_bytes_end_it(self, bytes_end_it: bool) -> None:
        """
        A long answer over a slow line is waited for; the check that it is not waited for for ever can fail.
        """

        def asked() -> Any:
            for _ in range(30):
                yield 1
            return "the answer"

        listening = _postgres_pool.with_silence_timeout(asked(), 1.0)
        next(listening)
        looks = 0
        try:
            while True:
                looks += 1
                listening.send(1 if bytes_end_it and not looks % 5 else 0)
        except StopIteration as stop:
            told = stop.value
        except _postgres_pool.ServerSilent as error:
            told = str(error)

        assert ("the answer" if bytes_end_it else "was silent for 1 s") == told
        assert (30 if bytes_end_it else 10) == looks
