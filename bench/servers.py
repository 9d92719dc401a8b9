"""
The servers that the groups run against: private, started by the project's own code, gone at the end.

They are the tests' servers with other settings: here the disk counts, so PostgreSQL syncs it as it does by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

from bench.interleave import progress

__all__ = ["Postgres", "Proxy", "Redis", "postgres", "redis"]

POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track_utility": "on",
}
"""Durable as by default. Checkpoints are put off, because whose slice one falls into is chance."""
REDIS = ("--appendonly", "yes", "--maxmemory-policy", "noeviction", "--auto-aof-rewrite-percentage", "0")


class Postgres:
    """A running server: a database per adapter, and what the server itself counted."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.port = server.port
        server.execute("CREATE EXTENSION pg_stat_statements")

    @property
    def version(self) -> str:
        """What it says it is."""
        return str(self.server.execute("SHOW server_version")[0][0])

    def address(self, name: str, port: int | None = None) -> str:
        """The URL of an adapter's own database, which is made if need be; over a proxy's port, if one is given."""
        database = name.replace("-", "_")
        if not self.server.execute(f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
            self.server.execute(f"CREATE DATABASE {database}")
        return self.server.url(database).replace(f":{self.port}/", f":{port or self.port}/")

    def counted(self, name: str) -> int:
        """Statements that an adapter's database has run since the server was started."""
        sql = (
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements AS s JOIN pg_database AS d "
            f"ON d.oid = s.dbid WHERE d.datname = '{name.replace('-', '_')}'"
        )
        return int(str(self.server.execute(sql)[0][0]))


class Redis:
    """A running server: a numbered database per adapter, and what the server itself counted."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.port = server.port
        self._numbers: dict[str, int] = {}

    @property
    def version(self) -> str:
        """What it says it is."""
        return self._told("server", "redis_version:")[0]

    def address(self, name: str, port: int | None = None) -> str:
        """The URL of an adapter's own database; over a proxy's port, if one is given."""
        number = self._numbers.setdefault(name, len(self._numbers))
        return f"redis://127.0.0.1:{port or self.port}/{number}"

    def counted(self, name: str) -> int:
        """Commands that the server has carried out, those inside of scripts included. One adapter runs at a time."""
        lines = self._told("commandstats", "cmdstat_")
        ours = ("info:", "client", "config")
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines if not line.startswith(ours))

    def _told(self, section: str, beginning: str) -> list[str]:
        lines = self.server.ask("INFO", section).decode(errors="replace").splitlines()
        return [line.removeprefix(beginning) for line in lines if line.startswith(beginning)]


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """A PostgreSQL server on the disk that the project is on."""
    progress("starting PostgreSQL")
    folder.mkdir(parents=True)
    server = PostgresServer(folder, settings=POSTGRES)
    try:
        server.start()
        yield Postgres(server)
    finally:
        server.stop()


@contextmanager
def redis(folder: Path, fsync: str) -> Iterator[Redis]:
    """A Redis server on the disk that the project is on; `fsync` is `always` or `everysec`."""
    progress(f"starting Redis, appendfsync {fsync}")
    folder.mkdir(parents=True)
    server = RedisServer(folder, *REDIS, "--appendfsync", fsync)
    try:
        yield Redis(server.start())
    finally:
        server.kill()
