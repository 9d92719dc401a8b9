"""
A sender that may die: one operation, one effect in an outside world, one armed failpoint.

    python sender.py FOLDER COLOUR GUARANTEE ENDING [FAILPOINT ACTION SKIP]

The outside world is a table in a database of its own (`outside.db`), except for `atomic`, whose rows live beside the
record. COLOUR is whether it blocks or awaits. ENDING is what the function does after its effect: return, or raise.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from onceward import NOT_FOUND, AsyncGate, Found, Gate, Operation, OwnershipLost
from onceward.errors import NothingHappened
from onceward.gate.record_view import RecordView
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.stores import open_async_store, open_store

LEASE_SECONDS = 60
COLOURS = ("blocking", "awaiting")


class Later(Environment):
    """The host's clock, some seconds later: leases have lapsed without anybody waiting for them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def wall_us(self) -> int:
        """Microseconds since 1970, some seconds later."""
        return super().wall_us() + int(self._seconds * 1e6)


def prepare(folder: Path) -> None:
    """Make the outside world, and the caller's own table beside the records."""
    with sqlite3.connect(folder / "outside.db") as outside:
        outside.execute("CREATE TABLE charges (downstream_key TEXT, operation TEXT)")
        outside.execute("CREATE UNIQUE INDEX honoured ON charges (downstream_key) WHERE downstream_key IS NOT NULL")
    outside.close()
    open_store(store_url(folder)).close()
    with sqlite3.connect(folder / "store.db") as ours:
        ours.execute("CREATE TABLE charges (downstream_key TEXT, operation TEXT)")
    ours.close()


def store_url(folder: Path) -> str:
    """Where the records live."""
    return f"sqlite:///{folder / 'store.db'}"


def effects(folder: Path, guarantee: str) -> int:
    """How many charges the world has seen."""
    connection = sqlite3.connect(folder / ("store.db" if guarantee == "atomic" else "outside.db"))
    (count,) = connection.execute("SELECT count(*) FROM charges").fetchone()
    connection.close()
    return int(count)


class Sender:
    """One caller of the operation, of either colour."""

    def __init__(self, folder: Path, colour: str, guarantee: str, ending: str, later: float = 0) -> None:
        self.folder = folder
        self.awaits = colour == "awaiting"
        self.guarantee = guarantee
        self.ending = ending
        store: Any = (open_async_store if self.awaits else open_store)(store_url(folder), environment=Later(later))
        made: Any = AsyncGate if self.awaits else Gate
        self.gate = made(store, scope="test:crash", lease=LEASE_SECONDS, wait=0)
        self._loop = asyncio.new_event_loop()

    def send(self) -> object:
        """Send the operation, as a retry would."""
        request = {"amount": "12.50"}
        if self.guarantee == "atomic":
            connection = sqlite3.connect(self.folder / "store.db")
            book = self._coloured(lambda operation: self._book(connection, operation))
            try:
                return self._do(self.gate.atomic(connection, "charge:17", book, request=request))
            finally:
                connection.close()
        probe = self._coloured(self._look_up) if self.guarantee == "probed" else None
        charge = self._coloured(self._charge)
        return self._do(self.gate.run("charge:17", charge, request=request, guarantee=self.guarantee, probe=probe))

    def record(self) -> RecordView | None:
        """What is recorded of it."""
        found: RecordView | None = self._do(self.gate.records.get("charge:17"))
        return found

    def close(self) -> None:
        """Leave."""
        self._do(self.gate.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _coloured(self, fn: Callable[[Operation], Any]) -> Callable[[Operation], Any]:
        async def awaiting(operation: Operation) -> Any:
            await asyncio.sleep(0)
            return fn(operation)

        return awaiting if self.awaits else fn

    def _do(self, made: Any) -> Any:
        return self._loop.run_until_complete(_finished(made)) if inspect.isawaitable(made) else made

    def _charge(self, operation: Operation) -> dict[str, object]:
        if self.ending == "refuse":
            raise NothingHappened
        key = operation.downstream_key() if self.guarantee == "keyed" else None
        outside = sqlite3.connect(self.folder / "outside.db")
        with outside:
            if self.guarantee == "repeatable":
                outside.execute("DELETE FROM charges")  # Harmless to run again: it sets, it does not add.
            outside.execute("INSERT OR IGNORE INTO charges VALUES (?, ?)", (key, operation.key))
        outside.close()
        failpoints.hit("test.effect.after")
        if self.ending == "time-out":
            raise TimeoutError("no answer")
        return {"status": "created"}

    def _book(self, connection: sqlite3.Connection, operation: Operation) -> dict[str, object]:
        if self.ending == "refuse":
            raise NothingHappened
        connection.execute("INSERT INTO charges VALUES (NULL, ?)", (operation.key,))
        failpoints.hit("test.effect.after")
        if self.ending == "time-out":
            raise TimeoutError("no answer")
        return {"status": "created"}

    def _look_up(self, operation: Operation) -> object:
        outside = sqlite3.connect(self.folder / "outside.db")
        found = outside.execute("SELECT 1 FROM charges WHERE operation = ?", (operation.key,)).fetchone()
        outside.close()
        return Found({"status": "created"}) if found else NOT_FOUND


async def _finished(made: Awaitable[Any]) -> Any:
    return await made


failpoints.declare("test.effect.after", "the effect took place, and the function has not returned")


def main(arguments: list[str]) -> None:
    """Arm, send, print the answer."""
    folder, colour, guarantee, ending, *armed = arguments
    sender = Sender(Path(folder), colour, guarantee, ending)
    if armed:
        failpoints.arm(armed[0], armed[1], skip=int(armed[2]))
    try:
        print(json.dumps({"answer": sender.send()}))
    except OwnershipLost as lost:
        cause = type(lost.__cause__).__name__ if lost.__cause__ is not None else None
        print(json.dumps({"lost": lost.outcome.value if lost.outcome else None, "cause": cause}))
    finally:
        sender.close()


if __name__ == "__main__":
    main(sys.argv[1:])
