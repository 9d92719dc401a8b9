"""
The nodes of a Redis Cluster: which node has which shard, learnt from the nodes and corrected by redirections.

A shard has one slot, and so one node. A node that no longer has a shard says who does (MOVED), or whom to ask this
once while it moves (ASK). Commands for several nodes are sent to one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis.exceptions as exceptions
from redis.crc import key_slot

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward.stores._redis_connection import RedisConnection
from onceward.stores._redis_pipeline import RedisConnections, SingleServer
from onceward.stores._redis_rows import RedisCommand, tag_of
from onceward.stores._redis_sentinel import Sentinels
from onceward.stores._redis_url import RedisAddress, redirection, translate_error

REDIRECTIONS_MAX = 5
"""Times a command is sent on: one is usual, and two while slots are being moved."""

Node = tuple[str, int]


class SlotRange(NamedTuple):
    """Slots that a node has."""

    start: int
    end: int
    node: Node


class Cluster:
    """Shards, spread over the nodes by the Cluster itself: as many nodes as there are shards can have one."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._connections: dict[Node, RedisConnection] = {}
        self._ranges: list[SlotRange] = []
        """Which node has which slots; empty: to be learnt."""
        self._node_of: dict[int, Node] = {}
        """Shard -> node, for shards that were asked for since then."""

    def exchange(self, commands: Sequence[RedisCommand]) -> list[Any]:
        """Send commands, each to its node; the responses, with the driver's error where one failed."""
        replies: list[Any] = [None] * len(commands)
        waiting = list(range(len(commands)))
        for _ in range(REDIRECTIONS_MAX):
            if not self._ranges:
                self._learn()
            for node, places in self._by_node(commands, waiting).items():
                got = self._connection_to(node).exchange([commands[place] for place in places])
                for place, reply in zip(places, got, strict=True):
                    replies[place] = reply
            waiting = [place for place in waiting if self._is_redirected(commands, replies, place)]
            if not waiting:
                return replies
        for place in waiting:
            replies[place] = exceptions.ClusterError("the nodes do not agree on where a slot is; it is being moved")
        return replies

    def open(self) -> None:
        """Connect to every node that has slots, and check it."""
        for connection in self.nodes():
            connection.open()

    def nodes(self) -> list[RedisConnection]:
        """A connection to every node that has slots."""
        self._learn()
        return [self._connection_to(node) for node in sorted({one.node for one in self._ranges})]

    def drop(self) -> None:
        """Let go of every connection."""
        for connection in self._connections.values():
            connection.drop()

    def _by_node(self, commands: Sequence[RedisCommand], places: Sequence[int]) -> dict[Node, list[int]]:
        found: dict[Node, list[int]] = {}
        for place in places:
            found.setdefault(self._node(commands[place].shard), []).append(place)
        return found

    def _node(self, shard: int) -> Node:
        node = self._node_of.get(shard)
        if node is None:
            slot = key_slot(tag_of(self._address.options.prefix, shard).encode())
            node = next((one.node for one in self._ranges if one.start <= slot <= one.end), None)
            if node is None:
                raise StoreUnavailable(
                    "no node of the Redis Cluster has the slot of a shard: the Cluster is incomplete"
                )
            self._node_of[shard] = node
        return node

    def _is_redirected(self, commands: Sequence[RedisCommand], replies: list[Any], place: int) -> bool:
        """Follow a redirection in a reply; whether the command is to be sent again to the new node."""
        reply, shard = replies[place], commands[place].shard
        if (there := redirection(reply)) is not None:
            node = (there.host or self._node_of[shard][0], there.port)
            if there.for_good:
                self._node_of[shard] = node
                return True
            asking = RedisCommand(shard, ("ASKING",))
            replies[place] = self._connection_to(node).exchange([asking, commands[place]])[1]
            return redirection(replies[place]) is not None  # It has arrived meanwhile: ask the shard's node again.
        if isinstance(reply, exceptions.ConnectionError | exceptions.TimeoutError):
            self._ranges, self._node_of = (
                [],
                {},
            )  # The node is gone. Its place may have been taken: the next call will learn by whom.
        return False

    def _connection_to(self, node: Node) -> RedisConnection:
        if node not in self._connections:
            self._connections[node] = RedisConnection(self._address.at(*node))
        return self._connections[node]

    def _learn(self) -> None:
        """Ask the nodes, one after the other, until one knows which slots are where."""
        last: Exception = StoreUnavailable("no node of the Redis Cluster answered")
        for node in [*self._connections, *(seed for seed in self._address.seeds if seed not in self._connections)]:
            [reply] = self._connection_to(node).exchange([RedisCommand(0, ("CLUSTER", "SLOTS"))])
            if isinstance(reply, Exception):
                last = reply
                continue
            # A node that does not know its own name is reached by the one we used.
            self._ranges = [
                SlotRange(start, end, (primary[0].decode() if primary[0] else node[0], primary[1]))
                for start, end, primary, *_ in reply
            ]
            self._node_of = {}
            return
        raise last if isinstance(last, OncewardError) else translate_error(last, self._address)


def connections_to(address: RedisAddress) -> RedisConnections:
    """Connections to the server that an address names, to the nodes of its Cluster, or to what its Sentinels name."""
    if address.options.cluster:
        return Cluster(address)
    return SingleServer(address, find=Sentinels(address).find_master if address.service else None)
