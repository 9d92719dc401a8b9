"""
Upkeep of a Redis store: make it ready and check it.

Redis needs no schema: records bring their fields along. Only a format number is kept there, so that this version can
tell records that a later version has written in another form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError, RedisError

from onceward._core.errors import ConfigurationError, SchemaMismatch
from onceward._core.record import Record
from onceward._core.store_protocols import Selection
from onceward.runtime.environment import REAL
from onceward.runtime.flow_driver import drive_steps
from onceward.stores import _redis_steps as steps
from onceward.stores._redis_cluster import connections_to
from onceward.stores._redis_connection import Args, RedisConnection
from onceward.stores._redis_pipeline import RedisConnections
from onceward.stores._redis_rows import SCRIPTS, RedisCommand, keys_of, load_script
from onceward.stores._redis_url import RedisAddress, parse, redact, translate_error
from onceward.stores._upkeep import SchemaMigration, StoreCheck, clock_detail
from onceward.stores.redis import RedisStore

LATEST = 1
"""The form of records that this code knows."""
SERVER_LEAST = (6, 0)
"""Older servers have no users with rights of their own, and are no longer mended."""
FULL_SHARE = 0.9
"""Of maxmemory: beyond it, new claims will soon be refused."""

_PROBE = load_script("probe")
_VERSION_SHARD = 0
"""The shard that the number is kept in."""


def init(url: str) -> str:
    """Check that the server is durable, load the scripts, and note the form of the records; where they are."""
    RedisStore.from_url(url).close()
    with _inspecting(url) as look:
        _checked_version(look)
        for connection in look.nodes:
            connection.open()
            look.replies(connection, *(("SCRIPT", "LOAD", one.text) for one in SCRIPTS))
        look.reply(RedisCommand(_VERSION_SHARD, ("SET", look.marker, LATEST, "NX")))
        return f"Redis at {look.address.name}, keys that begin with {{{look.prefix}:"


def is_there(url: str) -> bool:
    """Nothing has to be made, so every server that responds is ready; refuses records of a later form."""
    with _inspecting(url) as look:
        _checked_version(look)
    return True


def planned(url: str) -> SchemaMigration:
    """What `migrate` would do: nothing yet, because there was never another form."""
    with _inspecting(url) as look:
        _checked_version(look)
    return SchemaMigration(LATEST, LATEST, ())


def migrate(url: str) -> tuple[int, int]:
    """Bring the records into the form of this version; the forms before and after."""
    move = planned(url)
    return move.before, move.after


def schema_sql(after: int) -> str:
    """There is none."""
    raise ConfigurationError("Redis has no tables, so there is no SQL to print: leave --sql out")


def check(url: str) -> list[StoreCheck]:
    """Look the servers and the user over. Nothing is changed."""
    with _inspecting(url) as look:
        found = _checked_version(look)
        detail = f"version {found}" if found else "not noted; `onceward store init` does"
        checks = [StoreCheck("schema", True, detail)]
        for connection in look.nodes:
            connection.open()
            at = f" at {connection.address.name}" if len(look.nodes) > 1 else ""
            checks += [one._replace(name=one.name + at) for one in _of_node(look, connection)]
        return [*checks, _rights(look)]


def held(url: str) -> Iterator[Record]:
    """Every record, without its result."""
    with _inspecting(url) as look:
        after = b""
        while page := look.run(steps.scan(look.prefix, after, steps.PAGE, Selection())):
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

    @property
    def marker(self) -> str:
        """Where the form of the records is noted."""
        return f"{keys_of(self.prefix, _VERSION_SHARD).tag}schema"

    def reply(self, command: RedisCommand) -> Any:
        [reply] = self.connections.exchange([command])
        if isinstance(reply, RedisError):
            raise translate_error(reply, self.address)
        return reply

    def replies(self, connection: RedisConnection, *commands: Args) -> list[Any]:
        found = connection.exchange(commands)
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
                raise translate_error(reply, self.address)
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


def _checked_version(look: _Inspection) -> int:
    """The form that is noted, 0 if none is; refused if it is not one that this code knows."""
    [reply] = look.connections.exchange([RedisCommand(_VERSION_SHARD, ("GET", look.marker))])
    if reply is None or isinstance(reply, NoPermissionError):
        return 0
    if isinstance(reply, RedisError):
        raise translate_error(reply, look.address)
    if not reply.isdigit() or int(reply) > LATEST:
        version = reply.decode(errors="replace")[:20]
        raise SchemaMismatch(
            f"the records at {look.address.name} have schema version {version!r}, this Onceward knows {LATEST}: "
            "upgrade it (pip install -U)"
        )
    return int(reply)


def _of_node(look: _Inspection, connection: RedisConnection) -> Iterator[StoreCheck]:
    before = REAL.wall_us()
    time, info, fsync = look.replies(connection, ("TIME",), ("INFO",), ("CONFIG", "GET", "appendfsync"))
    passed = REAL.wall_us() - before
    lines = info.decode(errors="replace").splitlines() if isinstance(info, bytes) else []
    fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
    if not fields:
        yield StoreCheck("server", False, "does not answer INFO, so it is not known whether it is durable")
        return
    yield from _server(look, fields)
    yield from _durability(fields, fsync)
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
    forgets = f"{policy}: it forgets claims when it is full; set noeviction"
    yield StoreCheck("eviction", policy == "noeviction", policy if policy == "noeviction" else forgets)
    log = fields.get("aof_enabled") == "1"
    yield StoreCheck("append-only file", log, "yes" if log else "no: a restart forgets claims; set appendonly yes")
    if log:
        status = fields.get("aof_last_write_status", "unknown")
        yield StoreCheck("last write to it", status == "ok", status)
        how = fsync[1].decode() if isinstance(fsync, list) and len(fsync) == 2 else "not told"
        costs = {
            "everysec": ": a failure of the machine loses about the last second",
            "no": ": a failure of the machine loses what the system had not written; set always or everysec",
        }
        yield StoreCheck("appendfsync", how != "no", how + costs.get(how, ""))
    replicas = int(fields.get("connected_slaves", "0"))
    loses = f"{replicas} replicas: a failover loses what they had not been sent"
    yield StoreCheck("failover", True, loses if replicas else "no replicas")


def _rights(look: _Inspection) -> StoreCheck:
    """Whether this user may do what the scripts do, found out by doing it."""
    tag = keys_of(look.prefix, _VERSION_SHARD).tag
    command = RedisCommand(
        _VERSION_SHARD, ("EVALSHA", _PROBE.sha, 3, *(f"{tag}check-{name}" for name in ("text", "hash", "zset")))
    )
    look.connections.exchange([RedisCommand(_VERSION_SHARD, ("SCRIPT", "LOAD", _PROBE.text))])
    lookup = RedisCommand(_VERSION_SHARD, ("ZRANGEBYLEX", f"{tag}ids", "-", "+", "LIMIT", 0, 1))
    refused: list[str] = []
    tried, looked_up = look.connections.exchange([command, lookup])
    refused += [str(reply) for reply in (tried, looked_up) if isinstance(reply, RedisError)]
    if isinstance(tried, list):
        refused += [one.decode(errors="replace") for one in tried]
    detail = redact("; ".join(refused), look.address)
    return StoreCheck("rights", not refused, detail or "as they should be")
