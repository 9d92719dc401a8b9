"""Peer: dbos. A workflow with one step, under a workflow id; calling it again under the same id replays it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID

from bench.work import Request, Result, Work


class Dbos:
    """Blocking and awaiting workflows in one instance: it allows one per process."""

    def __init__(self, url: str, work: Work) -> None:
        config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
        DBOS(config=config)

        @DBOS.step()  # type: ignore[untyped-decorator]
        def charge(request: Request) -> Result:
            return work.effect()

        @DBOS.workflow()  # type: ignore[untyped-decorator]
        def order(request: Request) -> Result:
            result: Result = charge(request)
            return result

        @DBOS.step()  # type: ignore[untyped-decorator]
        async def acharge(request: Request) -> Result:
            return work.effect()

        @DBOS.workflow()  # type: ignore[untyped-decorator]
        async def aorder(request: Request) -> Result:
            result: Result = await acharge(request)
            return result

        self._order, self._aorder = order, aorder
        DBOS.launch()

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        with SetWorkflowID(key):
            result: Result = self._order(request)
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits. A workflow id belongs to one function, so async keys are others."""
        with SetWorkflowID(f"a-{key}"):
            result: Result = await self._aorder(request)
        return result

    areplay = afresh

    def close(self) -> None:
        """Stop its threads."""
        DBOS.destroy()


def wal(folder: Path, work: Work) -> Dbos:
    """Its file has a write-ahead log: fewer syncs, same durability."""
    return Dbos(_file(folder, "WAL"), work)


def shipped(folder: Path, work: Work) -> Dbos:
    """As it comes."""
    return Dbos(_file(folder, "DELETE"), work)


def _file(folder: Path, journal: str) -> str:
    path = folder / "peer.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    return f"sqlite:///{path}"


def postgres(folder: Path, work: Work, url: str) -> Dbos:
    """On PostgreSQL."""
    return Dbos(url.replace("postgresql://", "postgresql+psycopg://"), work)
