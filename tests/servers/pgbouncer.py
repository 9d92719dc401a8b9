"""
A real PgBouncer for tests, in front of a real PostgreSQL server: private port, private folder, gone at the end.

    with pooled(running(), "transaction") as bouncer:
        open_store(bouncer.url("onceward", options="onceward_bouncer=1"))

The program comes from apt (installed when we are root and it is not there). Where it cannot be had, the tests that need
it are skipped and say why; the rules for poolers are then tested on a plain server only (`test_postgres_pooled.py`).
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from servers.postgres import SECONDS_MAX, PostgresServer, free_port, unprivileged
from servers.redis import installed

from . import ending

_ABSENT = (
    "NOT TESTED HERE: no pgbouncer on this machine, and none from apt (that needs root and Debian's packages); "
    "install it to test the store behind a real pooler"
)


@functools.cache
def program() -> str | None:
    """The path of PgBouncer, installed if need be; None where it cannot be had."""
    here = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return here or installed("pgbouncer", "pgbouncer")


def needed_pgbouncer() -> None:
    """For the top of a test module: left out, loudly, where there is no PgBouncer."""
    if program() is None:
        pytest.skip(_ABSENT, allow_module_level=True)


@functools.cache
def version() -> tuple[int, int]:
    """Major and minor."""
    told = subprocess.run([str(program()), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])


class PgBouncer:
    """One pooler, started."""

    def __init__(self, folder: Path, server: PostgresServer, mode: str, settings: dict[str, object]) -> None:
        self.port = free_port()
        chosen = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": folder / "users",
            "pool_mode": mode,
            "max_client_conn": 200,
            "default_pool_size": 4,
            "admin_users": "postgres",
            **settings,
        }
        (folder / "users").write_text('"postgres" ""\n')
        lines = ["[databases]", f"* = host=127.0.0.1 port={server.port}", "[pgbouncer]"]
        (folder / "ini").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in chosen.items()), ""]))
        with (folder / "log").open("ab") as log:
            command = [*unprivileged(), str(program()), str(folder / "ini")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
        self._await(folder / "log")

    def _await(self, log: Path) -> None:
        give_up = time.monotonic() + SECONDS_MAX
        while True:
            try:
                psycopg.connect(self.url("pgbouncer"), connect_timeout=2, autocommit=True).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > give_up or self._process.poll() is not None:
                    raise RuntimeError(f"no pooler: {error}\n{log.read_text()[-2000:]}") from error
                time.sleep(0.02)

    def url(self, database: str = "postgres", *, options: str = "") -> str:
        """The address in full, with options for the query."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}{f'?{options}' if options else ''}"

    def stop(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait(SECONDS_MAX)


@contextmanager
def pooled(server: PostgresServer, mode: str, **settings: object) -> Iterator[PgBouncer]:
    """A pooler in that mode in front of a server, for as long as it is needed."""
    folder = ending.folder("onceward-pgbouncer-")
    bouncer = None
    try:
        bouncer = PgBouncer(folder, server, mode, settings)
        yield bouncer
    finally:
        if bouncer is not None:
            bouncer.stop()
        shutil.rmtree(folder, ignore_errors=True)
