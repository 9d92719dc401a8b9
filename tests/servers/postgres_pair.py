"""A primary with a streaming standby, for the tests of failovers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .postgres import PostgresServer

PAUSE_SECONDS = 0.3
"""Between the primary's end and the standby's turn: longer than a call goes on trying by itself."""
SECONDS_MAX = 60


class Pair(NamedTuple):
    """A primary and the standby that follows it."""

    primary: PostgresServer
    standby: PostgresServer

    def url(self, options: str = "", *, database: str = "postgres", user: str = "postgres") -> str:
        """Both hosts: the one that takes writes is found."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self)
        return f"postgresql://{user}@{hosts}/{database}?{options}"

    def is_caught_up(self) -> bool:
        """Whether the standby has all that the primary has written so far."""
        [(end,)] = self.primary.execute("SELECT pg_current_wal_lsn()::text")
        return self.standby.execute(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [(True,)]

    def fail_over(self) -> None:
        """kill -9 of the primary; the standby is told to take over."""
        self.primary.kill()
        time.sleep(PAUSE_SECONDS)
        self.standby.promote()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[PostgresServer]:
    server = at(tmp_path / "primary")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def pair(primary: PostgresServer, tmp_path: Path) -> Iterator[Pair]:
    """The primary answers a commit when its standby has it."""
    standby = at(tmp_path / "standby", standby_of=primary.port)
    standby.start()
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    primary.execute("SELECT pg_reload_conf()")
    until(lambda: primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
    yield Pair(primary, standby)
    standby.stop()


def at(folder: Path, standby_of: int | None = None) -> PostgresServer:
    folder.mkdir()
    return PostgresServer(folder, standby_of=standby_of)


def until(condition: Any) -> None:
    give_up = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.01)
