"""
Upkeep of a Redis store: make it ready, check it, and bring its rows into the form of this version.

Redis has no tables. What is noted about a store, and how its rows move, is in `_redis_schema.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError, RedisError

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.record import Record
from onceward._core.store_protocols import Selection
from onceward.runtime.environment import REAL
from onceward.runtime.flow_driver import drive_steps
from onceward.stores import _redis_schema as schema
from onceward.stores import _redis_steps as steps
from onceward.stores._redis_cluster import connections_to
from onceward.stores._redis_connection import SCRIPTS, Args, RedisConnection
from onceward.stores._redis_packed_rows import PackedRows
from onceward.stores._redis_pipeline import RedisConnections
from onceward.stores._redis_rows import SHARDS, RedisCommand, RowFormat, load_script, script_command, tag_of
from onceward.stores._redis_url import RedisAddress, parse, redact, translate_error
from onceward.stores._upkeep import SchemaMigration, StoreCheck, clock_detail

SERVER_LEAST = (6, 0)
"""Older servers have no users with rights of their own, and are no longer mended."""
FULL_SHARE = 0.9
"""Of maxmemory: beyond it, new claims will soon be refused."""

_PROBE = load_script("now", "probe")


def init(url: str) -> str:
    """Check that the server is durable, load the scripts, and make the store; where it is."""
    return init_sharded(url, None)


def init_sharded(url: str, shards: int | None) -> str:
    """Make a store with so many shards. A number that it has not got is refused."""
    address = parse(url)
    connections = connections_to(address)
    try:
        connections.open()  # Refuses a server that may forget.
    finally:
        connections.drop()
    with _inspecting(url) as look:
        found = look.run(schema.read(look.prefix))
        for connection in look.nodes:
            connection.open()
            look.replies(connection, *(("SCRIPT", "LOAD", one.text) for one in SCRIPTS))
        if found is None:
            found = look.run(schema.create(look.prefix, SHARDS if shards is None else shards))
        if shards is not None and shards != found.shards:
            raise ConfigurationError(
                f"the store at {look.address.name} has {found.shards} shards. The number is chosen once, when a store "
                "is made: leave --shards out, or make another store under another prefix="
            )
        where = f"Redis at {look.address.name}, keys that begin with {{{look.prefix}:, {found.shards} shards"
        return where if found.version == schema.LATEST else f"{where}, rows of version 1: `onceward store migrate`"


def is_there(url: str) -> bool:
    """Nothing has to be made, so every server that responds is ready; refuses records of a later form."""
    with _inspecting(url) as look:
        look.version()
    return True


def planned(url: str) -> SchemaMigration:
    """What `migrate` would do."""
    with _inspecting(url) as look:
        found = look.version()
        if found is None or (found.version == schema.LATEST and not _moves(found)):
            return SchemaMigration(schema.LATEST, schema.LATEST, ())
        left = look.run(schema.left_to_move(look.prefix))
        return SchemaMigration(1, schema.LATEST, (f"redis_0002 ({left} rows)",), begun=_moves(found))


def migrate(url: str) -> tuple[int, int]:
    """Bring the rows into the form of this version, while others work; the forms before and after."""
    move = planned(url)
    with _inspecting(url) as look:
        look.run(schema.migrate(look.prefix))
    return move.before, move.after


def _moves(found: RowFormat) -> bool:
    return isinstance(found, PackedRows) and found.moving


def schema_sql(after: int) -> str:
    """There is none."""
    raise ConfigurationError("Redis has no tables, so there is no SQL to print: leave --sql out")


def check(url: str) -> list[StoreCheck]:
    """Look the servers and the user over. Nothing is changed."""
    with _inspecting(url) as look:
        checks = [_schema(look)]
        for connection in look.nodes:
            connection.open()
            at = f" at {connection.address.name}" if len(look.nodes) > 1 else ""
            checks += [one._replace(name=one.name + at) for one in _of_node(look, connection)]
        return [*checks, _rights(look)]


def held(url: str) -> Iterator[Record]:
    """Every record, without its result."""
    with _inspecting(url) as look:
        after, rows = b"", look.run(schema.read(look.prefix))
        while rows is not None and (page := look.run(steps.scan(rows, after, steps.PAGE, Selection()))):
            yield from (record._replace(result=None) for record in page)
            after = page[-1].id


class _Inspection(NamedTuple):
    """Connections for a check. They also go to servers that a store refuses."""

    address: RedisAddress
    connections: RedisConnections
    nodes: list[RedisConnection]

    @property
    def prefix(self) -> str:
        return self.address.options.prefix

    def version(self) -> RowFormat | None:
        """The form of the rows; None if there are none, or this user may not look."""
        try:
            found: RowFormat | None = self.run(schema.read(self.prefix))
        except StoreUnavailable as error:
            if isinstance(error.__cause__, NoPermissionError):
                return None
            raise
        return found

    def replies(self, connection: RedisConnection, *commands: Args) -> list[Any]:
        found = connection.exchange([RedisCommand(0, command) for command in commands])
        for reply in found:
            if isinstance(reply, RedisError) and not isinstance(reply, NoPermissionError):
                raise translate_error(reply, self.address)
        return found

    def run(self, call: steps.CommandSteps[Any]) -> Any:
        """Run a call of several round trips; what it returns."""
        return drive_steps(call, self._exchange)

    def _exchange(self, commands: Sequence[RedisCommand]) -> list[Any]:
        replies = self.connections.exchange(commands)
        for reply in replies:
            if isinstance(reply, RedisError):
                raise translate_error(reply, self.address) from reply
        return replies


@contextmanager
def _inspecting(url: str) -> Iterator[_Inspection]:
    address = parse(url)
    address = address._replace(options=address.options._replace(durable=False))
    connections = connections_to(address)
    try:
        yield _Inspection(address, connections, connections.nodes())
    finally:
        connections.drop()


def _schema(look: _Inspection) -> StoreCheck:
    found = look.version()
    if found is None:
        return StoreCheck("schema", True, "not noted; `onceward store init` does")
    detail = f"version {found.version}, {found.shards} shards"
    if found.version < schema.LATEST:
        detail += f"; `onceward store migrate` moves it to {schema.LATEST} when no older process is left"
    elif _moves(found):
        left = look.run(schema.left_to_move(look.prefix))
        return StoreCheck(
            "schema", False, f"{detail}, {left} rows of version 1: run `onceward store migrate` to its end"
        )
    return StoreCheck("schema", True, detail)


def _of_node(look: _Inspection, connection: RedisConnection) -> Iterator[StoreCheck]:
    before = REAL.wall_us()
    time, info, fsync = look.replies(connection, ("TIME",), ("INFO",), ("CONFIG", "GET", "appendfsync"))
    passed = REAL.wall_us() - before
    lines = info.decode(errors="replace").splitlines() if isinstance(info, bytes) else []
    fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
    if not fields:
        yield StoreCheck("server", False, "does not answer INFO, so its durability is unknown")
        return
    yield from _server(look, fields)
    yield from _durability(fields, fsync)
    yield _failover(look, fields)
    if isinstance(time, list):
        theirs = int(time[0]) * 1_000_000 + int(time[1])
        yield StoreCheck("clock", True, clock_detail((theirs - before - passed / 2) / 1_000_000))


def _server(look: _Inspection, fields: dict[str, str]) -> Iterator[StoreCheck]:
    version = fields.get("redis_version", "0")
    number = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    yield StoreCheck("server", number >= SERVER_LEAST, f"Redis {version}, 6.0 or later is needed")
    role = fields.get("role", "unknown")
    yield StoreCheck(
        "writer", role == "master", "takes writes" if role == "master" else f"a {role}: it takes no writes"
    )
    clustered, asked = fields.get("cluster_enabled") == "1", look.address.options.cluster
    cure = "add cluster=1 to the URL" if clustered else "leave cluster=1 out of the URL"
    kind = "a node of a Cluster" if clustered else "a single server"
    yield StoreCheck("cluster", clustered == asked, kind if clustered == asked else f"{kind}: {cure}")
    used, most = int(fields.get("used_memory", "0")), int(fields.get("maxmemory", "0"))
    share = f"{used / 1_048_576:,.1f} MiB used of {f'{most / 1_048_576:,.1f} MiB' if most else 'whatever there is'}"
    yield StoreCheck("memory", not most or used < FULL_SHARE * most, share)


def _durability(fields: dict[str, str], fsync: Any) -> Iterator[StoreCheck]:
    policy = fields.get("maxmemory_policy", "unknown")
    forgets = f"{policy}: it drops claims when it is full; set noeviction"
    yield StoreCheck("eviction", policy == "noeviction", policy if policy == "noeviction" else forgets)
    log = fields.get("aof_enabled") == "1"
    yield StoreCheck("append-only file", log, "yes" if log else "no: a restart loses claims; set appendonly yes")
    if log:
        status = fields.get("aof_last_write_status", "unknown")
        yield StoreCheck("last write to it", status == "ok", status)
        how = fsync[1].decode() if isinstance(fsync, list) and len(fsync) == 2 else "not told"
        costs = {
            "everysec": ": a failure of the machine loses about the last second",
            "no": ": a failure of the machine loses what the system had not written; set always or everysec",
        }
        yield StoreCheck("appendfsync", how != "no", how + costs.get(how, ""))


def _failover(look: _Inspection, fields: dict[str, str]) -> StoreCheck:
    """Whether a put waits for every replica: a failover may promote any of them."""
    asked, connected = look.address.options.replicas, int(fields.get("connected_slaves", "0"))
    have = {0: "no replicas", 1: "1 replica"}.get(connected, f"{connected} replicas")
    if asked > connected:
        cure = "nothing is acknowledged. Connect more, or lower replicas="
        return StoreCheck("failover", False, f"{have}, and puts wait for {asked}: {cure}")
    if not connected:
        return StoreCheck("failover", True, have)
    if not asked:
        return StoreCheck("failover", True, f"{have}: a failover loses what had not been sent to the new primary")
    if asked < connected:
        risk = f"a failover can promote another, and lose them. Set replicas={connected}"
        return StoreCheck("failover", True, f"{have}, and puts wait for {asked} of them: {risk}")
    return StoreCheck("failover", True, f"{have}, and puts wait for all of them")


def _rights(look: _Inspection) -> StoreCheck:
    """Whether this user may do what the scripts do, found out by doing it."""
    tag = tag_of(look.prefix, 0)
    command = script_command(0, _PROBE, [f"{tag}check-{name}" for name in ("text", "hash", "zset")])
    look.connections.exchange([RedisCommand(0, ("SCRIPT", "LOAD", _PROBE.text))])
    lookup = RedisCommand(0, ("ZRANGEBYLEX", f"{tag}names", "-", "+", "LIMIT", 0, 1))
    refused: list[str] = []
    tried, looked_up = look.connections.exchange([command, lookup])
    refused += [str(reply) for reply in (tried, looked_up) if isinstance(reply, RedisError)]
    if isinstance(tried, list):
        refused += [one.decode(errors="replace") for one in tried]
    detail = redact("; ".join(refused), look.address)
    return StoreCheck("rights", not refused, detail or "as expected")
