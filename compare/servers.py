"""The servers that peers keep their records on: private, started when the first one needs them, gone at the end."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.peers import PLACE
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.temporal import TemporalServer

from compare.telling import progress


class Servers:
    """What is running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, Any] = {}
        self._ends = ExitStack()

    def of(self, store: str) -> Any:
        """The server of a kind of store; None where there is none."""
        if store in ("none", "sqlite"):
            return None
        if store not in self._running:
            progress(f"starting {store}")
            self._running[store] = self._start(store)
        return self._running[store]

    def address(self, store: str, name: str, folder: Path) -> str:
        """An empty place for one question to one peer."""
        server = self.of(store)
        if store == "sqlite":
            return f"sqlite:///{folder}/kept.db"
        if store == "postgres":
            database = name.replace("-", "_")
            server.execute(f"CREATE DATABASE {database}")
            return str(server.url(database))
        if store == "redis":
            server.ask("FLUSHALL")
            return f"redis://127.0.0.1:{server.port}/0"
        return str(server.address) if server else ""

    def _start(self, store: str) -> Any:
        folder = self._folder / store
        folder.mkdir(parents=True)
        if store == "postgres":
            postgres = PostgresServer(folder)
            postgres.start()
            self._ends.callback(postgres.stop)
            return postgres
        if store == "redis":
            redis = RedisServer(folder).start()
            self._ends.callback(redis.kill)
            return redis
        os.environ["PATH"] = f"{PLACE / 'bin'}{os.pathsep}{os.environ['PATH']}"  # Its wheel puts the program there.
        temporal = TemporalServer(folder).start()
        self._ends.callback(temporal.kill)
        return temporal

    def close(self) -> None:
        """End them."""
        self._ends.close()
