"""A Redis Cluster: three nodes, sixteen shards spread over them, and slots that move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from redis.crc import key_slot
from redis_support import SCOPE, opened, put_claim, put_settled

from onceward import AsyncGate, ConfigurationError, Gate, StoreUnavailable
from onceward._core.erasure_marks import marks_of
from onceward.stores import Selection, _redis_upkeep
from onceward.stores import _redis_packer as packing
from onceward.stores._redis_rows import RedisCommand
from onceward.stores.redis import AsyncRedisStore, RedisStore
from onceward.testing.store_suite.rows import row, settled
from servers.redis import DURABLE, SECONDS_MAX, RedisServer, needed, started

needed()

SLOTS = 16_384


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    """Three nodes that have found each other, with a third of the slots each."""
    settings = (
        *DURABLE,
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "2000",
        "--cluster-config-file",
        "n.conf",
    )
    with ExitStack() as stack:
        made = [stack.enter_context(started(*settings)) for _ in range(3)]
        for number, node in enumerate(made):
            slots = range(SLOTS * number // 3, SLOTS * (number + 1) // 3)
            assert node.ask("CLUSTER", "ADDSLOTS", *map(str, slots)).startswith(b"+OK")
        for node in made[1:]:
            assert made[0].ask("CLUSTER", "MEET", "127.0.0.1", str(node.port)).startswith(b"+OK")
        deadline = time.monotonic() + SECONDS_MAX
        while not all(_is_whole(node) for node in made):
            assert time.monotonic() < deadline, "the nodes do not find each other"
            time.sleep(0.05)
        yield made


def _is_whole(node: RedisServer) -> bool:
    told = node.ask("CLUSTER", "INFO")
    return b"cluster_state:ok" in told and b"cluster_known_nodes:3" in told


@pytest.fixture
def store(nodes: list[RedisServer]) -> Iterator[RedisStore]:
    """A store on the Cluster, which knows of one node."""
    with opened(nodes[0].url(cluster=1)) as made:
        yield made


def _node_of(store: Any) -> dict[int, Any]:
    return dict(store._server.connections._node_of)


class TestOnACluster:
    """Everything a store does, wherever the record lives."""

    def test_records_live_on_every_node(self, store: RedisStore) -> None:
        """
        Forty operations run once each, replay, and are listed in order.
        """
        gate = Gate(store, scope=SCOPE)
        first = [gate.run(f"k{n}", lambda n=n: n) for n in range(40)]
        again = [gate.run(f"k{n}", lambda: "again") for n in range(40)]
        pages = [store.scan(b"", 25, Selection())]
        pages.append(store.scan(pages[0][-1].id, 25, Selection()))
        ids = [found.id for page in pages for found in page]

        assert (first, again) == (list(range(40)), list(range(40)))
        assert ([25, 15], sorted(ids)) == ([len(page) for page in pages], ids)
        assert len(set(_node_of(store).values())) == 3

    def test_families_and_purges_reach_every_node(self, store: RedisStore) -> None:
        """
        A family spread over the nodes is extended as one, and what is forgotten goes everywhere.
        """
        for n in range(20):
            held = put_claim(store, f"step{n}", family=bytes(32))
            store.put(settled(held), held.version)
        for n in range(20):
            put_settled(store, f"gone{n}", replay=1, forget=1)
        time.sleep(0.01)

        assert store.extend(bytes(32), 1, 1) == 20
        assert tuple(store.purge(100)) == (20, 0)
        assert len(store.scan(b"", 100, Selection())) == 20

    def test_what_is_erased_stays_erased_on_every_node(self, store: RedisStore) -> None:
        """
        The mark stands beside each record, whichever shard that is in; what nobody erased is put back.
        """
        gate, endings = Gate(store, scope=f"{SCOPE}:erased"), []
        for number in range(128):
            held = store.put(row(gate.scope, f"k{number}"), None).record
            endings.append(settled(held))
            store.erase([held.id])
        marks = [marks_of(write.id, write.scope) for write in endings]
        back = [store.put_back(write, mark).landed for write, mark in zip(endings, marks, strict=True)]
        erased = gate.records.erase()
        again = [store.put_back(write, mark) for write, mark in zip(endings, marks, strict=True)]

        assert (set(back), erased) == ({True}, 128)
        assert set(again) == {(False, None)}
        assert len({write.id[0] >> 4 for write in endings}) == 16

    def test_tasks_share_round_trips_to_every_node(self, nodes: list[RedisServer]) -> None:
        """
        The awaiting colour, from another node.
        """

        async def crowd() -> list[Any]:
            async_store = AsyncRedisStore.from_url(nodes[2].url(cluster=1))
            gate = AsyncGate(async_store, scope=SCOPE)
            told = await asyncio.gather(*(gate.run(f"k{n}", lambda n=n: n) for n in range(50)))
            await gate.close()
            await async_store.close()
            return told

        assert asyncio.run(crowd()) == list(range(50))

    def test_without_the_option_the_reader_is_told(self, nodes: list[RedisServer]) -> None:
        """
        A node says that it has not got the slot: the error names the option.
        """
        with pytest.raises(ConfigurationError) as refusal, opened(nodes[0].url()) as single:
            for n in range(100):
                single.put(row(SCOPE, f"k{n}"), None)

        assert "cluster=1" in str(refusal.value)


class TestManyShardsAndSeeds:
    """A Cluster of more than sixteen nodes needs more shards, and any of its nodes leads to the others."""

    @pytest.mark.fault("only-the-first-seed-is-asked")
    def test_any_of_several_seeds_is_enough(self, nodes: list[RedisServer]) -> None:
        """
        The first two are not there.
        """
        hosts = f"127.0.0.1:1,127.0.0.1:2,127.0.0.1:{nodes[1].port}"
        with opened(f"redis+cluster://{hosts}/?prefix=seeds") as made, Gate(made, scope=SCOPE) as gate:
            try:
                told = [gate.run("k", lambda: "done"), gate.run("k", lambda: "again")]
            except StoreUnavailable as error:
                told = [str(error)]

        assert told == ["done", "done"]

    def test_as_many_slots_as_shards(self, nodes: list[RedisServer]) -> None:
        """
        64 shards have 64 slots, so as many nodes could have one; records, lists, families and purges reach them all.
        """
        url = nodes[0].url(cluster=1, prefix="wide")
        _redis_upkeep.init_sharded(url, 64)
        with opened(url) as wide, Gate(wide, scope=SCOPE) as gate:
            first = [gate.run(f"k{n}", lambda n=n: n) for n in range(200)]
            again = [gate.run(f"k{n}", lambda: "again") for n in range(200)]
            for n in range(20):
                held = put_claim(wide, f"step{n}", family=bytes(32))
                wide.put(settled(held), held.version)
            put_settled(wide, "gone", replay=1, forget=1)
            time.sleep(0.01)
            extended, purged = wide.extend(bytes(32), 1, 1), wide.purge(10)
            ids = [one.id for one in wide.scan(b"", 1_000, Selection())]
            shards = {wide._server.rows.shard_of(id) for id in ids}

        assert (first, again) == (list(range(200)), list(range(200)))
        assert (extended, tuple(purged), ids, len(ids)) == (20, (1, 0), sorted(ids), 220)
        assert len({key_slot(f"{{wide:{shard:x}}}".encode()) for shard in shards}) == len(shards) > 50

    def test_a_store_of_version_1_moves_on_a_cluster(self, nodes: list[RedisServer]) -> None:
        """
        Its shards are on all nodes, and so are the scripts that pack its rows.
        """
        url = nodes[0].url(cluster=1)
        with opened(url) as made:
            prefix = made._server.prefix
            commands = [RedisCommand(shard, ("DEL", f"{{{prefix}:{shard:x}}}:floor")) for shard in range(16)]
            commands += [RedisCommand(shard, ("DEL", f"{{{prefix}:{shard:x}}}:shard")) for shard in range(16)]
            made._server.connections.exchange([*commands, RedisCommand(0, ("SET", f"{{{prefix}:0}}:schema", "1"))])
        with opened(url) as old, Gate(old, scope=SCOPE) as gate:
            assert old._server.rows.version == 1
            first = [gate.run(f"k{n}", lambda n=n: n) for n in range(60)]
            moved = _redis_upkeep.migrate(url)
            again = [gate.run(f"k{n}", lambda: "again") for n in range(60)]

            assert (first, again, moved) == (list(range(60)), list(range(60)), (1, 2))
            assert old._server.rows.version == 2


class TestWhenTheClusterMoves:
    """Slots change hands, and nodes go away."""

    def test_a_shard_that_has_moved_is_found(self, store: RedisStore, nodes: list[RedisServer]) -> None:
        """
        The slot of a shard was given to another node after the store had learnt of the first.
        """
        write, slot, (old, new) = _shard_at_home(store, nodes)
        _open_way(slot, old, new)
        _give(slot, old, new, nodes)
        standing = store.put(write, None)

        assert True is standing.landed
        assert new.port == _node_of(store)[write.id[0] >> 4][1]
        assert write.version == store.load(write.id).version

    def test_a_shard_that_is_moving_is_read_where_it_goes_and_written_when_it_is_there(
        self, store: RedisStore, nodes: list[RedisServer]
    ) -> None:
        """
        While a slot is on its way, one key is asked for at the new node; a put, which needs several, is away.
        """
        write, slot, (old, new) = _shard_at_home(store, nodes)
        _open_way(slot, old, new)
        found = store.load(write.id)
        with pytest.raises(StoreUnavailable):
            store.put(write, None)
        _give(slot, old, new, nodes)

        assert (found, store.put(write, None).landed) == (None, True)
        assert write.version == store.load(write.id).version

    def test_a_node_that_is_away_is_away_for_its_own_shards(self, store: RedisStore, nodes: list[RedisServer]) -> None:
        """
        It is killed: its callers hear of it. It comes back: they go on, and what they wrote is there.
        """
        found = [put_claim(store, f"k{n}") for n in range(30)]
        nodes[1].kill()
        heard = Counting()
        for one in found:
            heard.add(lambda one=one: store.load(one.id))
        nodes[1].start()
        deadline = time.monotonic() + SECONDS_MAX
        while not all(_is_whole(node) for node in nodes):
            assert time.monotonic() < deadline, "the nodes do not find each other"
            time.sleep(0.05)

        assert 0 < heard.away <= 30
        assert [one.version for one in found] == [store.load(one.id).version for one in found]


class Counting:
    """How many calls found the store away."""

    def __init__(self) -> None:
        self.away = 0

    def add(self, call: Any) -> None:
        try:
            call()
        except StoreUnavailable:
            self.away += 1


def _client(node: RedisServer) -> Any:
    class Closing:
        def cluster(self, *words: object) -> Any:
            with redis.Redis(port=node.port) as client:
                return client.execute_command("CLUSTER", *words)

    return Closing()


def _open_way(slot: int, old: RedisServer, new: RedisServer) -> None:
    """A slot is on its way from one node to another."""
    _client(new).cluster("SETSLOT", slot, "IMPORTING", _id(old))
    _client(old).cluster("SETSLOT", slot, "MIGRATING", _id(new))


def _give(slot: int, old: RedisServer, new: RedisServer, nodes: list[RedisServer]) -> None:
    """
    Carry the keys of a slot over, and tell every node, the new home first, as redis-cli does: one that hears by gossip
    alone sends askers back.
    """
    with redis.Redis(port=old.port) as client:
        keys = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1_000)
        client.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 5_000, "KEYS", *keys)
    for node in (new, *nodes):
        _client(node).cluster("SETSLOT", slot, "NODE", _id(new))


def _id(node: RedisServer) -> str:
    return _client(node).cluster("MYID").decode()


def _shard_at_home(store: RedisStore, nodes: list[RedisServer]) -> tuple[Any, int, tuple[RedisServer, RedisServer]]:
    """A write for an empty shard, its slot, the node that has it and one that has not."""
    write = row(SCOPE, "moving")
    home = _node_of(store)[write.id[0] >> 4]
    old = next(node for node in nodes if node.port == home[1])
    new = next(node for node in nodes if node is not old)
    _client(new).cluster("BUMPEPOCH")  # What it says about the slot is newer than what the old one says.
    return write, key_slot(f"{{{store._server.prefix}:{write.id.hex()[0]}}}".encode()), (old, new)


@pytest.mark.fault("numbers-are-handed-to-hiredis")
def test_the_nodes_are_sent_bytes_only(nodes: list[RedisServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    On every path to a Cluster: finding the nodes, putting, and reading from all of them.
    """
    handed: list[tuple[Any, ...]] = []
    real = packing.hiredis_pack
    assert real is not None

    def noting(words: tuple[bytes, ...]) -> bytes:
        handed.append(tuple(words))
        return real(words)

    monkeypatch.setattr(packing, "hiredis_pack", noting)
    with opened(f"redis://127.0.0.1:{nodes[0].port}/?cluster=1&prefix=packed") as store:
        put_settled(store)
        store.scan(b"", 10, Selection())
        store.purge(10)

    assert {bytes} == {type(word) for words in handed for word in words}
    assert {b"CLUSTER", b"EVALSHA", b"ZRANGEBYLEX"} <= {words[0] for words in handed}
