"""
Kill drills for the SQL engine, as programs of their own.

    python sql_drill.py transactions FOLDER KILLS keyed|plain   forks writers, each killed at a failpoint
    python sql_drill.py engine FOLDER KEYS                      an engine under load; prints what was acknowledged
    python sql_drill.py worker LINK PAGE                        a worker that dies as long as there are orders to

Every key is one row in `effects`, which has no constraint: a row too many would be seen.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from onceward import OncewardError
from onceward.runtime import failpoints
from onceward.service.sql import Keyed, Limits, SqliteEngine
from onceward.service.sql import worker as workers
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.requests import SqlRequest, build_request
from onceward.service.sql.tenant_database import WritableDatabase
from onceward.service.sql.worker_sandbox import LAYERS, SandboxOptions

SCOPE = "test:drill"
EFFECT = "INSERT INTO effects VALUES (?)"
POINTS = (
    *(
        "sql.request.before",
        "claim.before",
        "claim.after",
        "call.before",
        "call.after",
        "settle.before",
        "settle.after",
    ),
    *("commit.before", "commit.after", "sql.request.after", "sql.commit.before", "sql.commit.after"),
)
"""Every boundary of a request, from the open transaction to the answer."""
FRESH = 9
"""Requests that a forked writer runs before it begins to replay."""
CLIENTS = 20


def transactions(folder: Path, kills: int, *, keyed: bool) -> None:
    """Fork a writer per kill. Each begins where the last one was killed: with a key that nobody acknowledged."""
    path = folder / "tenant.db"
    first = WritableDatabase(path, DEFAULT_LIMITS, {})
    first.group([build_request(["CREATE TABLE effects (key)"], DEFAULT_LIMITS)])
    first.close()
    for number in range(kills):
        child = os.fork()
        if child == 0:
            _write_until_killed(path, number, keyed)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), POINTS[number % len(POINTS)], flush=True)
    last = WritableDatabase(path, DEFAULT_LIMITS, {})
    for number in range(kills):
        last.group([_request(f"{number}-{n}", keyed) for n in range(6)])
    last.close()


def _write_until_killed(path: Path, number: int, keyed: bool) -> None:
    database = WritableDatabase(path, DEFAULT_LIMITS, {})
    failpoints.arm(POINTS[number % len(POINTS)], "kill", skip=number // len(POINTS) % FRESH)
    for _ in range(20):
        database.group([_request(f"{number}-{n}", keyed) for n in range(3)])
        database.group([_request(f"{number}-{n}", keyed) for n in range(3, 6)])
        database.group([_request(f"{number}-more-{n}", keyed) for n in range(3)])


def _request(key: str, keyed: bool) -> SqlRequest:
    return build_request([(EFFECT, [key])], DEFAULT_LIMITS, identity=Keyed(SCOPE, key) if keyed else None)


async def engine(folder: Path, keys: int, command: list[str] | None = None) -> None:
    """Clients who send every key until it is acknowledged, and say so."""
    # With seccomp a worker cannot kill itself.
    unarmed = SandboxOptions(layers=tuple(one for one in LAYERS if one != "seccomp"))
    settings: dict[str, Any] = {} if command is None else {"worker_command": command, "sandbox": unarmed}
    async with SqliteEngine(folder, limits=Limits(statement_seconds=2), writers=1, readers=1, **settings) as opened:
        await _settled(opened.create("acme", "shop"))
        await _settled(opened.query("acme", "shop", "CREATE TABLE IF NOT EXISTS effects (key)"))
        waiting = [f"k{number}" for number in range(keys)]

        async def client() -> None:
            while waiting:
                key = waiting.pop()
                while not await _settled(opened.query("acme", "shop", EFFECT, [key], identity=Keyed(SCOPE, key))):
                    pass
                print(key, flush=True)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    print("done", flush=True)


async def _settled(asking: object) -> bool:
    try:
        await asking  # type: ignore[misc]
    except OncewardError as error:
        if error.retry != "same-key":
            raise
        await asyncio.sleep(0.01)
        return False
    return True


def worker(place: str, link: str, page: str) -> None:
    """Take one order (a file named after a failpoint) if there is one, and die there."""
    orders = sorted(Path(place).iterdir())
    if orders:
        name, _, skip = orders[0].name.partition("-")[2].partition("@")
        orders[0].unlink()
        failpoints.arm(name, "kill", skip=int(skip))
    workers.main([link, page])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["transactions", folder, kills, how]:
            transactions(Path(folder), int(kills), keyed=how == "keyed")
        case ["engine", folder, keys]:
            asyncio.run(engine(Path(folder), int(keys)))
        case ["engine", folder, keys, orders]:
            asyncio.run(engine(Path(folder), int(keys), [sys.executable, __file__, "worker", orders]))
        case ["worker", orders, link, page]:
            worker(orders, link, page)
