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
    """Check that the server keeps what it is told, teach it the scripts, and note the form of the records; where."""
    RedisStore.from_url(url).close()
    with _inspecting(url) as look:
        _checked_version(look)
        for connection in look.nodes:
            connection.open()
            look.answers(connection, *(("SCRIPT", "LOAD", one.text) for one in SCRIPTS))
        look.answer(RedisCommand(_VERSION_SHARD, ("SET", look.marker, LATEST, "NX")))
        return f"Redis at {look.address.name}, keys that begin with {{{look.prefix}:"


def is_there(url: str) -> bool:
    """Nothing has to be made, so every server that answers is one; one with records of a later form is refused."""
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
        while page := look.walked(steps.scan(look.prefix, after, steps.PAGE, Selection())):
            yield from (record._replace(result=None) for record in page)
            after = page[-1].id


class _Inspection(NamedTuple):
    """Connections to look with: also to servers that a store refuses."""

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

    def answer(self, command: RedisCommand) -> Any:
        [answer] = self.connections.exchange([command])
        if isinstance(answer, RedisError):
            raise translate_error(answer, self.address)
        return answer

    def answers(self, connection: RedisConnection, *commands: Args) -> list[Any]:
        found = connection.exchange(commands)
        for answer in found:
            if isinstance(answer, RedisError) and not isinstance(answer, NoPermissionError):
                raise translate_error(answer, self.address)
        return found

    def walked(self, taken: steps.CommandSteps[Any]) -> Any:
        """Take the steps of a longer call; what it returns."""
        return drive_steps(taken, self._asked)

    def _asked(self, commands: Sequence[RedisCommand]) -> list[Any]:
        answers = self.connections.exchange(commands)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise translate_error(answer, self.address)
        return answers


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
    [answer] = look.connections.exchange([RedisCommand(_VERSION_SHARD, ("GET", look.marker))])
    if answer is None or isinstance(answer, NoPermissionError):
        return 0
    if isinstance(answer, RedisError):
        raise translate_error(answer, look.address)
    if not answer.isdigit() or int(answer) > LATEST:
        told = answer.decode(errors="replace")[:20]
        raise SchemaMismatch(
            f"the records at {look.address.name} have schema version {told!r}, this Onceward knows {LATEST}: upgrade "
            "it (pip install -U)"
        )
    return int(answer)


def _of_node(look: _Inspection, connection: RedisConnection) -> Iterator[StoreCheck]:
    before = REAL.wall_us()
    time, info, fsync = look.answers(connection, ("TIME",), ("INFO",), ("CONFIG", "GET", "appendfsync"))
    passed = REAL.wall_us() - before
    lines = info.decode(errors="replace").splitlines() if isinstance(info, bytes) else []
    told = {name: value for name, _, value in (line.partition(":") for line in lines)}
    if not told:
        yield StoreCheck("server", False, "does not answer INFO, so it is not known whether it is durable")
        return
    yield from _server(look, told)
    yield from _durability(told, fsync)
    if isinstance(time, list):
        theirs = int(time[0]) * 1_000_000 + int(time[1])
        yield StoreCheck("clock", True, clock_detail((theirs - before - passed / 2) / 1_000_000))


def _server(look: _Inspection, told: dict[str, str]) -> Iterator[StoreCheck]:
    version = told.get("redis_version", "0")
    number = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    yield StoreCheck("server", number >= SERVER_LEAST, f"Redis {version}, 6.0 or later is needed")
    role = told.get("role", "unknown")
    yield StoreCheck(
        "writer", role == "master", "takes writes" if role == "master" else f"a {role}: it takes no writes"
    )
    clustered, asked = told.get("cluster_enabled") == "1", look.address.options.cluster
    cure = "add cluster=1 to the URL" if clustered else "leave cluster=1 out of the URL"
    kind = "a node of a Cluster" if clustered else "a single server"
    yield StoreCheck("cluster", clustered == asked, kind if clustered == asked else f"{kind}: {cure}")
    used, most = int(told.get("used_memory", "0")), int(told.get("maxmemory", "0"))
    share = f"{used / 1_048_576:,.1f} MiB used of {f'{most / 1_048_576:,.1f} MiB' if most else 'whatever there is'}"
    yield StoreCheck("memory", not most or used < FULL_SHARE * most, share)


def _durability(told: dict[str, str], fsync: Any) -> Iterator[StoreCheck]:
    policy = told.get("maxmemory_policy", "unknown")
    forgets = f"{policy}: it forgets claims when it is full; set noeviction"
    yield StoreCheck("eviction", policy == "noeviction", policy if policy == "noeviction" else forgets)
    log = told.get("aof_enabled") == "1"
    yield StoreCheck("append-only file", log, "yes" if log else "no: a restart forgets claims; set appendonly yes")
    if log:
        status = told.get("aof_last_write_status", "unknown")
        yield StoreCheck("last write to it", status == "ok", status)
        how = fsync[1].decode() if isinstance(fsync, list) and len(fsync) == 2 else "not told"
        costs = {
            "everysec": ": a failure of the machine loses about the last second",
            "no": ": a failure of the machine loses what the system had not written; set always or everysec",
        }
        yield StoreCheck("appendfsync", how != "no", how + costs.get(how, ""))
    replicas = int(told.get("connected_slaves", "0"))
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
    refused += [str(answer) for answer in (tried, looked_up) if isinstance(answer, RedisError)]
    if isinstance(tried, list):
        refused += [one.decode(errors="replace") for one in tried]
    told = redact("; ".join(refused), look.address)
    return StoreCheck("rights", not refused, told or "as they should be")
