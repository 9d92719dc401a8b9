"""
A sender that may die: one operation, one effect in an outside world, one armed failpoint.

    python sender.py FOLDER GUARANTEE ENDING [FAILPOINT ACTION SKIP]

The outside world is a table in a database of its own (`outside.db`), except for `atomic`, whose rows live beside the
record. ENDING is what the function does after its effect: return, or raise.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

from onceward import NOT_FOUND, Found, Gate, NothingHappened, Operation, OwnershipLost, failpoints
from onceward.environment import Environment
from onceward.stores import open_store

LEASE_SECONDS = 60


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
    """One caller of the operation."""

    def __init__(self, folder: Path, guarantee: str, ending: str, later: float = 0) -> None:
        self.folder = folder
        self.guarantee = guarantee
        self.ending = ending
        store = open_store(store_url(folder), environment=Later(later))
        self.gate = Gate(store, scope="test:crash", lease=LEASE_SECONDS, wait=0)

    def send(self) -> object:
        """Send the operation, as a retry would."""
        request = {"amount": "12.50"}
        if self.guarantee == "atomic":
            connection = sqlite3.connect(self.folder / "store.db")
            try:
                return self.gate.atomic(connection, "charge:17", lambda op: self._book(connection, op), request=request)
            finally:
                connection.close()
        probe = self._look_up if self.guarantee == "probed" else None
        return self.gate.run("charge:17", self._charge, request=request, guarantee=self.guarantee, probe=probe)

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


failpoints.declare("test.effect.after", "the effect took place, and the function has not returned")


def main(arguments: list[str]) -> None:
    """Arm, send, print the answer."""
    folder, guarantee, ending, *armed = arguments
    sender = Sender(Path(folder), guarantee, ending)
    if armed:
        failpoints.arm(armed[0], armed[1], skip=int(armed[2]))
    try:
        print(json.dumps({"answer": sender.send()}))
    except OwnershipLost as lost:
        cause = type(lost.__cause__).__name__ if lost.__cause__ is not None else None
        print(json.dumps({"lost": lost.outcome.value if lost.outcome else None, "cause": cause}))


if __name__ == "__main__":
    main(sys.argv[1:])
