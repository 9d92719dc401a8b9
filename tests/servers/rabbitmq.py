"""
A real RabbitMQ server for tests: private ports, private folder, a private port mapper, gone at the end.

    from servers.rabbitmq import needed_rabbitmq, running

    needed_rabbitmq()          for the top of a test module: left out, loudly, where there is no RabbitMQ
    running().url()            this process's server, started when it is first needed

The server comes from Debian's packages (installed when we are root and it is not there).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers.redis import free_port, installed

from . import ending

SECONDS_MAX = 120

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The server itself: the one in the path is a wrapper that changes the user, and its folders with it."""

_ABSENT = (
    "NOT TESTED HERE: no rabbitmq-server on this machine, and none from apt (that needs root and Debian's packages); "
    "install it to test the consumer on a real queue"
)


@functools.cache
def program() -> str | None:
    """The path of the server's program, installed if need be; None where it cannot be had."""
    if not PROGRAM.exists():
        installed("rabbitmq-server", "rabbitmq-server")
    return str(PROGRAM) if PROGRAM.exists() else None


def needed_rabbitmq() -> None:
    """For the top of a test module: left out, loudly, where there is no RabbitMQ."""
    if program() is None:
        pytest.skip(_ABSENT, allow_module_level=True)


class RabbitServer:
    """One server, with its own port mapper."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._mapper = free_port(), free_port()
        self._environment = {
            **os.environ,
            "HOME": str(folder),  # The cookie is there.
            "RABBITMQ_NODENAME": f"onceward-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",  # It may be ended while it still knows a node.
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RabbitServer:
        """Start, and wait until it speaks its protocol."""
        with (self.folder / "out").open("ab") as log:
            self._process = subprocess.Popen(
                [str(program())], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        give_up = time.monotonic() + SECONDS_MAX
        while time.monotonic() < give_up and self._process.poll() is None:
            if self._speaks():
                return self
            time.sleep(0.1)
        said = (self.folder / "out").read_text(errors="replace")[-1000:]
        raise RuntimeError(f"rabbitmq-server did not start on port {self.port}: {said}")

    def _speaks(self) -> bool:
        """Whether it answers the protocol's first words; it listens earlier than it serves."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as ours:
                ours.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(ours.recv(8))
        except OSError:
            return False

    def url(self) -> str:
        """Its URL, for the user that every new server has."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def messages_in(self, queue: str) -> int | None:
        """How many messages a queue has, those that are not acknowledged included; None if there is no such queue."""
        told = subprocess.run(
            [str(PROGRAM.with_name("rabbitmqctl")), "--quiet", "list_queues", "name", "messages"],
            env=self._environment, cwd=self.folder, capture_output=True, text=True, check=True, timeout=SECONDS_MAX,
        ).stdout  # fmt: skip
        counts = dict(line.split("\t") for line in told.splitlines() if "\t" in line)
        return int(counts[queue]) if queue in counts else None

    def kill(self) -> None:
        """End it without warning, and its port mapper."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(SECONDS_MAX)
            self._process = None
            subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, check=False)


@contextmanager
def started() -> Iterator[RabbitServer]:
    """A server, for as long as it is needed."""
    folder = ending.folder("onceward-rabbitmq-")
    server = RabbitServer(folder)
    try:
        yield server.start()
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def running() -> RabbitServer:
    """This process's server: started when it is first needed, stopped at the end."""
    holder = started()
    atexit.register(holder.__exit__, None, None, None)
    return holder.__enter__()
