"""Redis Sentinel: real Sentinels, a primary that is killed, and what `replicas=` promises then."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
from redis_support import SCOPE, looking, opened

from onceward import AsyncGate, ConfigurationError, Gate, InFlight, OncewardError, StoreUnavailable
from onceward._core.store_protocols import Selection
from onceward.stores import _redis_upkeep, open_store
from onceward.stores._redis_url import parse
from onceward.stores.redis import AsyncRedisStore
from onceward.testing.store_suite.rows import row, settled
from servers import ending
from servers.proxy import Proxy
from servers.redis import DURABLE, SECONDS_MAX, RedisServer, needed, program, started

needed()

PATIENCE = 3 * SECONDS_MAX


class Watched(NamedTuple):
    """A primary, its replicas, and the Sentinels that watch them."""

    primary: RedisServer
    replicas: list[RedisServer]
    sentinels: list[RedisServer]

    def url(self, **options: object) -> str:
        """Through all of the Sentinels, and one address where nobody is."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        query = "&".join(f"{name}={value}" for name, value in {"prefix": "shop", **options}.items())
        return f"redis+sentinel://127.0.0.1:1,{hosts}/shop-records/0?{query}"


class _Sentinel(RedisServer):
    """A Sentinel: the same program, which rewrites the file of its settings."""

    def __init__(self, primary: RedisServer, down_after_ms: int) -> None:
        folder = ending.folder("onceward-sentinel-")
        settings = folder / "sentinel.conf"
        super().__init__(folder, str(settings), "--sentinel")
        settings.write_text(
            f"sentinel monitor shop-records 127.0.0.1 {primary.port} 2\n"
            f"sentinel down-after-milliseconds shop-records {down_after_ms}\n"
            "sentinel failover-timeout shop-records 3000\n"
        )

    def start(self) -> RedisServer:
        """The file of its settings comes first on its command line."""
        config, *flags = self._settings
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program(), config, *flags, *where], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        wait_for(lambda: self.ask("PING").startswith(b"+PONG"))
        return self


def wait_for(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    give_up = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def follow(replica: RedisServer, port: int) -> None:
    """Make a server a replica, and wait until it has everything."""
    with looking(replica) as client:
        client.replicaof("127.0.0.1", str(port))
        wait_for(lambda: client.info("replication").get("master_link_status") == "up")


def promoted_port(sentinel: RedisServer) -> int:
    """The port of the primary that a Sentinel names."""
    return int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop-records").split()[4])


def is_another_named(sentinel: RedisServer, than: RedisServer) -> bool:
    """Whether a Sentinel names another server as the primary."""
    named = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop-records")
    return named.startswith(b"*2") and str(than.port).encode() not in named


@contextmanager
def watched(replicas: int = 1, down_after_ms: int = 500) -> Iterator[Watched]:
    """A primary with replicas, and three Sentinels that know of them all."""
    with ExitStack() as stack:
        primary = stack.enter_context(started())
        others = [stack.enter_context(started()) for _ in range(replicas)]
        for other in others:
            follow(other, primary.port)
        sentinels: list[RedisServer] = []
        for _ in range(3):
            sentinel = _Sentinel(primary, down_after_ms)
            stack.callback(shutil.rmtree, sentinel.folder, ignore_errors=True)
            stack.callback(sentinel.kill)
            sentinels.append(sentinel.start())
        for sentinel in sentinels:
            wait_for(
                lambda one=sentinel: b"num-other-sentinels\r\n$1\r\n2" in one.ask("SENTINEL", "MASTER", "shop-records")
            )
            wait_for(
                lambda one=sentinel: (
                    f"num-slaves\r\n$1\r\n{replicas}".encode() in one.ask("SENTINEL", "MASTER", "shop-records")
                )
            )
        yield Watched(primary, others, sentinels)


class TestThroughSentinels:
    """The URL names Sentinels and a service, not a server."""

    @pytest.mark.slow
    @pytest.mark.fault("the-first-primary-is-kept")
    def test_a_connection_that_broke_is_made_to_the_primary_of_now(self) -> None:
        """
        The primary is killed, and every Sentinel names another one: the next put lands there, in both colours.
        """

        async def play(url: str) -> Any:
            awaiting = AsyncRedisStore.from_url(url)
            with opened(url) as blocking:
                before = blocking.put(row(SCOPE, "a"), None), await awaiting.put(row(SCOPE, "b"), None)
                world.primary.kill()
                for sentinel in world.sentinels:
                    wait_for(lambda one=sentinel: is_another_named(one, world.primary))
                try:
                    after = blocking.put(row(SCOPE, "c"), None), await awaiting.put(row(SCOPE, "d"), None)
                except StoreUnavailable as error:
                    return error
                finally:
                    await awaiting.close()
            return [one.landed for one in before + after]

        with watched() as world:
            assert asyncio.run(play(world.url(timeout=2))) == [True] * 4

    @pytest.mark.slow
    @pytest.mark.parametrize("replicas", [0, 2])
    def test_a_failover_under_load_is_followed_in_both_colours(self, replicas: int) -> None:
        """
        The primary is killed while callers work. They hear that the store is away, retry the same keys, and go on at
        the new primary. With `replicas=2`, of two replicas, everything that was acknowledged is there, whichever was
        promoted; nothing more is acknowledged until the old primary is back as a replica.
        """
        effects: list[str] = []
        acknowledged: dict[str, str] = {}
        stop = threading.Event()

        def work(name: int, url: str) -> None:
            with Gate(url, scope=SCOPE, guarantee="repeatable", in_flight="refuse") as gate:
                number = 0
                while not stop.is_set():
                    key = f"t{name}:{number}"
                    try:
                        acknowledged[key] = gate.run(key, lambda key=key: effects.append(key) or f"ran {key}")
                        number += 1
                    except InFlight:  # Its claim landed, and its reply was lost: it is free when its lease ends.
                        number += 1
                    except OncewardError:
                        time.sleep(0.02)

        async def tasks(url: str) -> None:
            async with AsyncGate(url, scope=SCOPE, guarantee="repeatable", in_flight="refuse") as gate:

                async def one(name: int) -> None:
                    number = 0
                    while not stop.is_set():
                        key = f"a{name}:{number}"
                        try:
                            acknowledged[key] = await gate.run(key, lambda key=key: effects.append(key) or f"ran {key}")
                            number += 1
                        except InFlight:
                            number += 1
                        except OncewardError:
                            await asyncio.sleep(0.02)

                await asyncio.gather(*(one(name) for name in range(4)))

        def found_again(gate: Gate, key: str) -> str:
            try:
                return gate.run(key, lambda: "lost")
            except InFlight:
                return "claimed, and not settled"

        with watched(replicas=2) as world:
            url = world.url(timeout=2, replicas=replicas)
            threads = [threading.Thread(target=work, args=(name, url)) for name in range(2)]
            threads.append(threading.Thread(target=lambda: asyncio.run(tasks(url))))
            for thread in threads:
                thread.start()
            try:
                wait_for(lambda: len(acknowledged) > 200)
                world.primary.kill()
                before = len(acknowledged)
                if replicas:
                    for sentinel in world.sentinels:
                        wait_for(lambda one=sentinel: is_another_named(one, world.primary))
                    world.primary.start()
                    follow(world.primary, promoted_port(world.sentinels[0]))
                wait_for(lambda: len(acknowledged) > before + 200)
            finally:
                stop.set()
                for thread in threads:
                    thread.join(PATIENCE)
            told = dict(acknowledged)
            with Gate(url, scope=SCOPE, guarantee="repeatable", in_flight="refuse") as gate:
                again = {key: found_again(gate, key) for key in told}
        lost = [key for key, answer in again.items() if answer != told[key]]

        print(f"replicas={replicas}: acknowledged {before} before the kill, {len(told)} in all, lost {len(lost)}")
        assert all(answer == f"ran {key}" for key, answer in told.items())
        if replicas:
            assert lost == []

    @pytest.mark.slow
    @pytest.mark.parametrize("why", ["its priority", "an old view"])
    def test_a_replica_that_lags_may_be_promoted_so_every_replica_has_to_be_counted(self, why: str) -> None:
        """
        Of two replicas, one loses its line for a moment. Sentinel promotes it, because it looks at priorities first,
        and then at the offsets that it last saw, which may be old. With `replicas=1`, the other replica's word was
        enough, and what was acknowledged is gone. With `replicas=2`, nothing was acknowledged that is not there.
        """
        with watched(replicas=2, down_after_ms=3000) as world, ExitStack() as stack:
            lagging, other = world.replicas
            on_one = stack.enter_context(opened(world.url(timeout=60, replicas=1)))
            on_both = stack.enter_context(opened(world.url(timeout=60, replicas=2)))
            impatient = stack.enter_context(opened(world.url(timeout=1, replicas=2)))
            client_of_lagging = stack.enter_context(looking(lagging))
            client_of_other = stack.enter_context(looking(other))
            if why == "its priority":
                client_of_lagging.config_set("replica-priority", 1)
            else:
                client_of_other.acl_setuser("default", commands=["-info"])  # What Sentinels saw of it gets old.
            sent = [row(SCOPE, f"both{number}") for number in range(20)]
            assert all(on_both.put(write, None).landed for write in sent)
            for sentinel in world.sentinels:
                sentinel.ask("SENTINEL", "DEBUG", "INFO-PERIOD", "100")
                wait_for(lambda one=sentinel: _comes_first(one, lagging, other))

            client_of_lagging.config_set("masteruser", "nobody")
            client_of_lagging.config_set("masterauth", "wrong")  # It is not let in again.
            client_of_lagging.client_kill_filter(_type="master")
            with looking(world.primary) as client:
                wait_for(lambda: client.info("replication")["connected_slaves"] == 1)
            risked = [row(SCOPE, f"one{number}") for number in range(20)]
            assert all(on_one.put(write, None).landed for write in risked)
            with pytest.raises(StoreUnavailable, match="1 of the 2 replicas"):
                impatient.put(row(SCOPE, "refused"), None)
            world.primary.kill()
            for sentinel in world.sentinels:
                wait_for(lambda one=sentinel: is_another_named(one, world.primary))
            promoted = promoted_port(world.sentinels[0])
            with opened(world.url(timeout=60)) as store:
                found = [store.load(write.id) for write in sent]
                gone = [store.load(write.id) for write in risked]

        assert promoted == lagging.port
        assert [one and one.version for one in found] == [write.version for write in sent]
        assert gone == [None] * len(risked)

    @pytest.mark.slow
    def test_what_replicas_promise_and_what_not(self) -> None:
        """
        With `replicas=1`, what was acknowledged is on the replica that takes over, also if the line between them was
        cut in the middle: what came after the cut was not acknowledged, and nobody was told otherwise.
        """
        with started(*DURABLE) as primary, started(*DURABLE) as replica, Proxy(primary.port) as link:
            follow(replica, link.port)
            url = primary.url(prefix="shop", replicas=1, timeout=2)
            acknowledged, refused = [], []
            with opened(url) as store:
                for number in range(60):
                    if number == 40:
                        link.hold()
                    write = row(SCOPE, f"k{number}")
                    try:
                        assert store.put(write, None).landed
                        acknowledged.append(write)
                    except StoreUnavailable as error:
                        refused.append(error)
                        if len(refused) == 3:
                            break
            primary.kill()
            with looking(replica) as client:
                client.replicaof("no", "one")
            with opened(replica.url(prefix="shop")) as store:
                found = [store.load(write.id) for write in acknowledged]

        assert [one and one.version for one in found] == [write.version for write in acknowledged]
        assert (len(acknowledged), len(refused)) == (40, 3)
        assert "0 of the 1 replicas" in str(refused[0])

    def test_sentinels_that_know_no_such_service_are_told_apart_from_a_server_that_is_away(self) -> None:
        """
        The error says what was asked of whom.
        """
        refused = pytest.raises(StoreUnavailable, match="Sentinel")
        with started() as server:
            url = f"redis+sentinel://127.0.0.1:{server.port}/nobody?timeout=1"
            with opened(url) as store, refused as told:
                store.put(row(SCOPE), None)

        assert "nobody" in str(told.value)


class TestReplicas:
    """`replicas=N`: a put is on so many replicas, or its outcome is not known."""

    @pytest.mark.fault("a-put-is-acknowledged-without-its-replicas")
    @pytest.mark.parametrize("colour", ["blocking", "awaiting"])
    def test_a_server_without_replicas_acknowledges_nothing(self, colour: str) -> None:
        """
        Nothing runs: the claim's outcome is not known. When a replica is there, the same key runs.
        """
        ran: list[str] = []

        def once(url: str) -> Any:
            if colour == "blocking":
                with Gate(url, scope=SCOPE, lease=1, guarantee="repeatable") as gate:
                    return gate.run("k", lambda: ran.append("k") or "done")

            async def go() -> Any:
                async with AsyncGate(url, scope=SCOPE, lease=1, guarantee="repeatable") as gate:
                    return await gate.run("k", lambda: ran.append("k") or "done")

            return asyncio.run(go())

        with started(*DURABLE) as primary, started(*DURABLE) as replica:
            url = primary.url(prefix="shop", replicas=1, timeout=1)
            with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
                once(url)
            assert ran == []
            follow(replica, primary.port)
            wait_for(lambda: _settles(once, url))

        assert ran == ["k"]

    @pytest.mark.fault("a-put-that-was-sent-again-is-taken-for-replicated")
    def test_a_put_whose_connection_broke_is_not_taken_for_replicated(self) -> None:
        """
        It is sent again on another connection, whose WAIT knows nothing of the first: the outcome is not known.
        """
        with started(*DURABLE) as primary, started(*DURABLE) as replica:
            follow(replica, primary.port)
            with opened(primary.url(prefix="shop", replicas=1)) as store, looking(primary) as client:
                held = store.put(row(SCOPE, "warm"), None).record
                client.client_kill_filter(_type="normal", skipme=True)
                with pytest.raises(StoreUnavailable, match="of the 1 replicas"):
                    store.put(settled(held), held.version)

                assert store.load(held.id).state == "settled"
                assert store.put(row(SCOPE, "next"), None).landed

    @pytest.mark.fault("a-settle-that-is-sent-again-is-taken-for-replicated")
    @pytest.mark.parametrize("colour", ["blocking", "awaiting"])
    def test_a_result_is_not_given_while_its_settle_is_on_no_replica(self, colour: str) -> None:
        """
        The line to the replica is held while the function runs. The settle lands, its WAIT ends without the replica,
        and the gate sends it again, which finds it there: that is not enough. When the line is back, the caller gets
        the result, and it is on the replica.
        """
        retried: list[str] = []
        ran: list[str] = []

        def hear(event: Any) -> None:
            retried.append(event.type.value)
            if retried.count("store_retried") == 3:
                link.let_go()

        def work() -> str:
            link.hold()
            ran.append("k")
            return "done"

        def once(url: str) -> Any:
            if colour == "blocking":
                with Gate(url, scope=SCOPE, guarantee="repeatable", listeners=[hear]) as gate:
                    return gate.run("k", work)

            async def go() -> Any:
                async with AsyncGate(url, scope=SCOPE, guarantee="repeatable", listeners=[hear]) as gate:
                    return await gate.run("k", work)

            return asyncio.run(go())

        def told(url: str) -> Any:
            for _ in range(PATIENCE):
                try:
                    return once(url)
                except OncewardError:  # Its claim was not acknowledged within half a second.
                    assert ran == []
            return None

        with started(*DURABLE) as primary, started(*DURABLE) as replica, Proxy(primary.port) as link:
            follow(replica, link.port)
            first = told(primary.url(prefix="shop", replicas=1, timeout=1))
            primary.kill()
            with looking(replica) as client:
                client.replicaof("no", "one")
            with opened(replica.url(prefix="shop")) as store:
                found = [one.state for one in store.scan(b"", 10, Selection())]

        assert (first, ran, found) == ("done", ["k"], ["settled"])
        assert retried.count("store_retried") >= 3

    @pytest.mark.fault("a-settle-that-is-sent-again-is-taken-for-replicated")
    @pytest.mark.parametrize("version", [1, 2])
    def test_a_put_that_landed_before_waits_for_its_replicas_too(self, version: int) -> None:
        """
        Sent again, on the same connection and on others, or because its reply was lost: as long as no replica has it,
        its outcome is not known. When one has it, the caller is told that it is there. Rows of both versions.
        """
        with (
            started(*DURABLE) as primary,
            started(*DURABLE) as replica,
            Proxy(primary.port) as link,
            Proxy(primary.port) as front,
        ):
            if version == 1:
                primary.ask("SET", "{shop:0}:schema", "1")
            follow(replica, link.port)
            url = f"redis://127.0.0.1:{front.port}/0?prefix=shop&replicas=1"
            with opened(f"{url}&timeout=60") as patient:
                held = patient.put(row(SCOPE), None).record
            write = settled(held)
            link.hold()
            with opened(f"{url}&timeout=1") as store:
                assert store.load(held.id).version == held.version
                assert store._server.rows.version == version
                front.lose_answers(1)
                for _ in range(2):
                    with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
                        store.put(write, held.version)
            with opened(f"{url}&timeout=1") as store, pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
                store.put(write, held.version)
            link.let_go()
            with opened(f"{url}&timeout=60") as patient:
                told = patient.put(write, held.version)
            primary.kill()
            with looking(replica) as client:
                client.replicaof("no", "one")
            with opened(replica.url(prefix="shop")) as store:
                found = store.load(held.id)

        assert (told.landed, told.record.version, told.record.state) == (False, write.version, "settled")
        assert (found.version, found.state) == (write.version, "settled")

    def test_what_did_not_land_needs_no_replica(self) -> None:
        """
        A replay is answered while replicas are away: nothing was written.
        """
        with started(*DURABLE) as primary, started(*DURABLE) as replica:
            follow(replica, primary.port)
            with Gate(primary.url(prefix="shop", replicas=1, timeout=60), scope=SCOPE) as gate:
                assert gate.run("k", lambda: "done") == "done"
            replica.kill()
            with Gate(primary.url(prefix="shop", replicas=1, timeout=1), scope=SCOPE) as gate:
                assert [gate.run("k", lambda: "again") for _ in range(2)] == ["done", "done"]


def _comes_first(sentinel: RedisServer, one: RedisServer, other: RedisServer) -> bool:
    """Whether a Sentinel would choose this replica rather than the other: a lower priority, or a greater offset."""
    with looking(sentinel) as client:
        seen = {int(replica["port"]): replica for replica in client.sentinel_slaves("shop-records")}
    ranks = [(seen[at.port]["slave-priority"], -seen[at.port]["slave-repl-offset"]) for at in (one, other)]
    return bool(ranks[0] < ranks[1])


def _settles(once: Callable[[str], Any], url: str) -> bool:
    try:
        return bool(once(url) == "done")
    except OncewardError:  # The claim that was not acknowledged did land; its lease lasts a second.
        return False


class TestTheUrl:
    """Several hosts, and what they are."""

    def test_hosts_ports_service_and_secrets_are_read(self) -> None:
        """
        Sentinels have a user and a password of their own.
        """
        address = parse(
            "rediss+sentinel://u:p@a,b:1,[::1]:2/my-master/3?sentinel_password=s3cret&sentinel_username=w&replicas=1"
        )
        sentinel = address.sentinel("a", 26379).driver

        assert address.seeds == (("a", 26379), ("b", 1), ("::1", 2))
        assert (address.service, address.driver["db"], address.options.replicas) == ("my-master", 3, 1)
        assert (address.driver["username"], address.driver["password"]) == ("u", "p")
        assert (sentinel["username"], sentinel["password"], "db" in sentinel) == ("w", "s3cret", False)
        assert sentinel["connection_class"] is address.driver["connection_class"]
        assert "s3cret" not in address.name
        assert parse("redis+cluster://a,b:7001").seeds == (("a", 6379), ("b", 7001))
        assert parse("redis+cluster://a,b:7001").options.cluster

    @pytest.mark.parametrize(
        "url",
        [
            "redis://a,b/0",
            "redis+sentinel://a,b",
            "redis+sentinel://a/my master",
            "redis+sentinel://a/m/x",
            "redis+sentinel://a/m?cluster=1",
            "redis+sentinel://a,,b/m",
            "redis+cluster://a:0",
            "redis+cluster://a:99999",
            "redis+cluster://a,b/1",
            "redis+other://a",
            "redis://a/0?replicas=-1",
            "redis://a/0?replicas=99",
        ],
    )
    def test_a_wrong_one_is_explained(self, url: str) -> None:
        """
        Without a word of its secrets.
        """
        with pytest.raises(ConfigurationError) as refusal:
            open_store(url.replace("//a", "//user:s3cret@a"))

        assert "s3cret" not in str(refusal.value)

    @pytest.mark.slow
    def test_upkeep_goes_through_sentinels_too(self) -> None:
        """
        `store init` and `store check` ask them where the primary is.
        """
        with watched() as world:
            where = _redis_upkeep.init(world.url())
            checks = {one.name: one for one in _redis_upkeep.check(world.url())}

        assert "16 shards" in where
        assert [name for name, one in checks.items() if not one.ok] == []

    @pytest.mark.fault("a-check-does-not-count-replicas")
    def test_a_check_compares_the_replicas_of_the_url_with_those_of_the_server(self) -> None:
        """
        Fewer in the URL: a failover can promote one that nobody waited for. More: nothing is acknowledged.
        """
        with started(*DURABLE) as primary, started(*DURABLE) as one, started(*DURABLE) as other:
            for replica in (one, other):
                follow(replica, primary.port)
            with looking(primary) as client:
                wait_for(lambda: client.info("replication")["connected_slaves"] == 2)
            checks = [
                next(check for check in _redis_upkeep.check(primary.url(replicas=asked)) if check.name == "failover")
                for asked in range(4)
            ]

        assert [check.ok for check in checks] == [True, True, True, False]
        assert [check.detail for check in checks] == [
            "2 replicas: a failover loses what had not been sent to the new primary",
            "2 replicas, and puts wait for 1 of them: a failover can promote another, and lose them. Set replicas=2",
            "2 replicas, and puts wait for all of them",
            "2 replicas, and puts wait for 3: nothing is acknowledged. Connect more, or lower replicas=",
        ]
