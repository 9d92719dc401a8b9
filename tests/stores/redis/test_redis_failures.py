"""Failures: a server that vanishes, hangs, is full or answers nonsense; a lost answer; a fork."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.exceptions import ConnectionError
from redis_support import SCOPE, key_of, looking, opened, put_claim, put_settled

from onceward import Gate, StoreUnavailable
from onceward._core.errors import SchemaMismatch, StoreCorrupt, StoreFull
from onceward.stores import Selection
from onceward.stores._redis_line import RedisLine
from onceward.testing.store_suite.rows import random_token, row, settled, without_durations
from servers.redis import needed, running, started

needed()


def _carry(ours: socket.socket, theirs: socket.socket, left: list[int]) -> None:
    """Carry bytes both ways until one side hangs up, or the answer comes that is to be lost."""
    doomed = False
    while True:
        for source in select.select([ours, theirs], [], [])[0]:
            data = source.recv(1 << 20)
            if not data or (doomed and source is theirs):
                return
            (theirs if source is ours else ours).sendall(data)
            if source is ours and b"EVALSHA" in data:
                doomed = left[0] == 0
                left[0] -= 1


@contextmanager
def cutting(port: int, script_calls: int) -> Iterator[int]:
    """
    A way to the server that hangs up, once, in place of the answer to the script call that comes after so many.

    The command does reach the server: what is lost is the answer.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    left = [script_calls]

    def serve() -> None:
        while True:
            try:
                ours, _ = listener.accept()
            except OSError:
                return
            with ours, socket.create_connection(("127.0.0.1", port)) as theirs:
                _carry(ours, theirs, left)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


class TestALostAnswer:
    """The server did it, and the connection broke before anybody heard of it."""

    def test_a_put_is_sent_again_and_does_not_land_twice(self) -> None:
        """
        Sent again once, on a new connection: what stands there is the put's own version, and its fence is the first.
        """
        with opened(running().url(durability="volatile")) as direct:
            put_claim(direct, "warm")  # The scripts are known, and one request has one answer.
            with cutting(running().port, script_calls=1) as port:
                url = running().url(durability="volatile", prefix=direct._server.prefix)
                with opened(url.replace(str(running().port), str(port))) as store:
                    store.load(bytes(32))
                    write = row(SCOPE, "lost")
                    standing = store.put(write, None)

            assert (False, write.version) == (standing.landed, standing.record.version)
            assert without_durations(standing.record) == without_durations(direct.load(write.id))

    @pytest.mark.parametrize("lost", [0, 1, 2], ids=["the claim", "the settle", "the replay"])
    def test_a_gate_runs_the_function_once_whichever_answer_was_lost(self, lost: int) -> None:
        """
        One effect, and the same answer to a retry.
        """
        effects: list[str] = []
        url = running().url(durability="volatile")
        with opened(url) as direct:
            put_claim(direct, "warm")  # The scripts are known.
        with (
            cutting(running().port, lost) as port,
            opened(url.replace(str(running().port), str(port))) as store,
            Gate(store, scope=SCOPE, wait=0) as gate,
        ):
            told = [gate.run("k", lambda: effects.append("one") or "done") for _ in range(2)]

        assert (told, effects) == (["done", "done"], ["one"])

    @pytest.mark.fault("a-put-that-broke-is-sent-a-third-time")
    def test_a_put_whose_line_breaks_twice_is_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Sent, and once more on a new connection, and not again: its caller hears of it.
        """
        sent: list[bytes] = []

        def breaks(_: object, packed: bytes, *more: object) -> Any:
            sent.append(packed)
            raise ConnectionError("broken")

        with opened(running().url()) as store:
            monkeypatch.setattr(RedisLine, "ask", breaks)
            monkeypatch.setattr(RedisLine, "talk", breaks)
            with pytest.raises(StoreUnavailable):
                store.put(row(SCOPE, "twice"), None)
            monkeypatch.undo()

            assert (len(sent), len(set(sent))) == (2, 1)
            assert store.put(row(SCOPE, "twice"), None).landed


class TestAServerInTrouble:
    """What callers hear is ours, and says what to do."""

    def test_one_that_hangs_is_away_after_the_timeout(self) -> None:
        """
        A call waits as long as was agreed, and not longer; when the server wakes up, the store goes on.
        """
        with started() as server, opened(server.url(timeout=0.3)) as store:
            held = put_claim(store)
            server.signal(signal.SIGSTOP)
            try:
                with pytest.raises(StoreUnavailable) as away:
                    store.load(held.id)
            finally:
                server.signal(signal.SIGCONT)

            assert away.value.retry == "same-key"
            assert held.version == store.load(held.id).version

    def test_one_that_vanishes_mid_call_is_away_for_everybody_in_the_batch(self) -> None:
        """
        Eight callers wait for a server that is killed: all hear of it, none hangs, and none is told a lie.
        """
        with started() as server, opened(server.url(timeout=10)) as store:
            put_claim(store)
            server.signal(signal.SIGSTOP)
            heard: list[Any] = []

            def call(number: int) -> None:
                try:
                    heard.append(store.put(row(SCOPE, f"k{number}"), None))
                except Exception as error:
                    heard.append(error)

            threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            threading.Event().wait(0.2)
            server.kill()
            for thread in threads:
                thread.join(10)
            server.start()
            found = [store.load(row(SCOPE, f"k{n}").id) for n in range(8)]

        assert [StoreUnavailable] * 8 == [type(one) for one in heard]
        assert found == [None] * 8

    def test_one_that_forgot_our_scripts_is_taught_again(self) -> None:
        """
        SCRIPT FLUSH between any two calls changes nothing.
        """
        with opened(running().url()) as store, looking(running()) as client:
            client.script_flush()
            held = put_claim(store)
            client.script_flush()
            ended = store.put(settled(held), held.version)
            client.script_flush()
            page = store.scan(b"", 10, Selection())
            client.script_flush()
            purged = store.purge(10)

        assert (True, [held.id], (0, 0)) == (ended.landed, [one.id for one in page], tuple(purged))

    def test_one_that_is_full_takes_no_claims_and_every_ending(self) -> None:
        """
        Out of memory: a claim is refused, and nothing ran; what did run is recorded and replays.
        """
        with started() as server, opened(server.url()) as store, looking(server) as client:
            held = put_claim(store, "held")
            client.config_set("maxmemory", 1)
            with pytest.raises(StoreFull):
                store.put(row(SCOPE, "new"), None)
            ended = store.put(settled(held), held.version)
            replayed = store.put(row(SCOPE, "held"), None)
            client.config_set("maxmemory", 0)

            assert (ended.landed, replayed.record.result) == (True, b'"done"')
            assert None is store.load(row(SCOPE, "new").id)
            assert True is store.put(row(SCOPE, "new"), None).landed

    def test_one_that_became_a_replica_is_away(self) -> None:
        """
        After a failover the old primary is read-only: it says so, and nothing is started.
        """
        with started() as server, opened(server.url()) as store, looking(server) as client:
            put_claim(store)
            client.replicaof("127.0.0.1", "1")
            with pytest.raises(StoreUnavailable):
                store.put(row(SCOPE, "new"), None)

    def test_a_key_of_somebody_else_is_not_taken_for_a_record(self) -> None:
        """
        Something else under our prefix is an error of the one call that meets it.
        """
        with opened(running().url()) as store, looking(running()) as client:
            found = put_claim(store, "other")
            client.delete(key_of(store, found))
            client.rpush(key_of(store, found), "not ours")
            with pytest.raises(StoreCorrupt):
                store.load(found.id)
            for text in (b"", b"not ours", b"C\x10"):
                client.set(key_of(store, found), text)
                with pytest.raises(SchemaMismatch):
                    store.load(found.id)
                with pytest.raises(SchemaMismatch):
                    store.put(row(SCOPE, "other"), None)

            assert True is store.put(row(SCOPE, "fine"), None).landed


class TestAFork:
    """A child has its parent's memory, and must not use its connection."""

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_both_sides_go_on(self) -> None:
        """
        Parent and child write at the same time over connections of their own, and each gets its own answers.
        """
        with opened(running().url()) as store:
            put_settled(store, "before")
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    own = [row(SCOPE, f"child{n}", operation=f"child{n}") for n in range(50)]
                    told = [store.put(write, None).record.operation for write in own]
                    code = 0 if told == [write.operation for write in own] else 2
                finally:
                    os._exit(code)
            own = [row(SCOPE, f"parent{n}", operation=f"parent{n}") for n in range(50)]
            told = [store.put(write, None).record.operation for write in own]
            _, status = os.waitpid(child, 0)

            assert os.waitstatus_to_exitcode(status) == 0
            assert [write.operation for write in own] == told
            assert len(store.scan(b"", 1_000, Selection())) == 101

    def test_a_version_of_nobody_moves_nothing_on_either_side(self) -> None:
        """
        The plain rule holds after all of that, too.
        """
        with opened(running().url()) as store:
            held = put_claim(store)

            assert False is store.put(settled(held), random_token()).landed
