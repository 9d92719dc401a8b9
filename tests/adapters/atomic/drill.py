"""
The kill drill of atomic mode: real client processes, killed with SIGKILL at every step, and then asked again.

    python drill.py      is the nursery: a warm process that forks a client for each line it reads

A line is `{"client", "url", "keys", "kill_at"}`; the answers are the client's pid, its steps if it got to its end, and
how it ended. Forking a warm process takes milliseconds, where starting Python takes most of a second.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from adapters.atomic.drill_clients import CLIENTS, CONTROLS, SCOPE, Client
from onceward import Gate
from onceward.runtime import failpoints

SECONDS_MAX = 20


class Figures(NamedTuple):
    """What a drill came to."""

    client: str
    kills: int
    both: int
    neither: int
    half: int
    """A row without its record, or a record without its row."""
    after_retry: int
    """Keys with one row and one settled record, once each had been tried again."""

    def __str__(self) -> str:
        return (
            f"{self.client:20} {self.kills:4} kills: {self.both:4} both, {self.neither:4} neither, {self.half} half; "
            f"after a retry {self.after_retry} have one of each"
        )


# --- the nursery ---


def serve() -> None:
    """Fork a client for every line that comes in."""
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _client(order)
        _say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        _say({"ended": os.waitstatus_to_exitcode(status)})


def _client(order: dict[str, Any]) -> None:
    """In the child: operate once, and be killed at that step."""
    steps: list[str] = []

    def hit(label: str) -> None:
        steps.append(label)
        if len(steps) == order["kill_at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        client = {**CLIENTS, **CONTROLS}[order["client"]]()
        client.connect(order["url"], hit)
        for name in failpoints.CATALOGUE:
            failpoints.arm(name, lambda name=name: hit(name))  # type: ignore[misc]
        errors = [error for key in order["keys"] if (error := _operate(client, key)) is not None]
        _say({"steps": steps, "error": "; ".join(errors)})
        os._exit(0)
    except BaseException as error:
        _say({"error": f"{type(error).__name__}: {error}"})
        os._exit(1)


def _operate(client: Client, key: str) -> str | None:
    try:
        client.operate(key)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


# --- the drill ---


class Ended(NamedTuple):
    """How a client ended."""

    code: int
    steps: list[str]
    error: str


class Nursery:
    """The warm process, from outside."""

    def __init__(self, script: str = __file__) -> None:
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def start(self, client: str, url: str, keys: list[str], kill_at: int = 0) -> int:
        """Fork a client that is killed at that step (0: at none); its pid."""
        assert self._process.stdin is not None
        order = {"client": client, "url": url, "keys": keys, "kill_at": kill_at}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._early: list[dict[str, Any]] = []
        while "pid" not in (message := self._hear()):
            self._early.append(message)
        pid: int = message["pid"]
        return pid

    def wait(self) -> Ended:
        """How the client that was started ended."""
        heard = {key: value for message in self._early for key, value in message.items()}
        while "ended" not in heard:
            heard.update(self._hear())
        return Ended(heard["ended"], heard.get("steps", []), heard.get("error", ""))

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the nursery is gone")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(SECONDS_MAX)


class Drill:
    """One client, killed over and over."""

    def __init__(self, nursery: Nursery, client: str, url: str) -> None:
        self._nursery = nursery
        self.client = client
        self._url = url
        self._keys: list[str] = []
        self._seen: list[tuple[int, int]] = []
        self._watching = url.replace("application_name=drill", "application_name=watcher")
        self._gate = Gate(self._watching, scope=SCOPE)
        self._asking: Any = (
            sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            if url.startswith("sqlite")
            else psycopg.connect(self._watching, autocommit=True)
        )

    def steps(self) -> list[str]:
        """Every place where it can be killed: what an undisturbed run goes through."""
        for number in range(2):  # The first one makes the tables.
            self._nursery.start(self.client, self._url, [f"{self.client}:whole:{number}"])
            ended = self._nursery.wait()
            assert (ended.code, ended.error) == (0, "")
        return ended.steps

    def kill_at(self, step: int) -> None:
        """Be killed at that step."""
        key = f"{self.client}:{len(self._keys)}"
        self._nursery.start(self.client, self._url, [key], step)
        self._ended(key)

    def kill_in_commit(self) -> None:
        """Be killed while the server is carrying out the commit: a deferred trigger makes that take a while."""
        key = f"{self.client}:slow:{len(self._keys)}"
        pid = self._nursery.start(self.client, self._url, [key])
        _until(lambda: self._finds(_COMMITTING))
        os.kill(pid, signal.SIGKILL)
        self._ended(key)

    def _ended(self, key: str) -> None:
        ended = self._nursery.wait()
        assert (ended.code, ended.error) == (-signal.SIGKILL, ""), ended
        if isinstance(self._asking, psycopg.Connection):
            _until(lambda: not self._finds(_CLIENTS))  # What the dead one had sent is carried out, or given up.
        self._keys.append(key)
        self._seen.append(self._look(key))

    def figures(self) -> Figures:
        """Ask again for every key that was killed, and count."""
        self._nursery.start(self.client, self._url, self._keys)
        self._nursery.wait()
        both, neither = self._seen.count((1, 1)), self._seen.count((0, 0))
        whole = sum(self._look(key) == (1, 1) for key in self._keys)
        self._gate.close()
        self._asking.close()
        kills = len(self._keys)
        return Figures(self.client, kills, both, neither, kills - both - neither, whole)

    def _finds(self, sql: str) -> bool:
        return bool(self._asking.execute(sql).fetchall())

    def _look(self, key: str) -> tuple[int, int]:
        """How many rows, how many settled records; a record that is anything else counts as two."""
        found = self._gate.records.get(key)
        records = 0 if found is None else 1 if found.state == "settled" else 2
        mark = "?" if isinstance(self._asking, sqlite3.Connection) else "%s"
        [(rows,)] = self._asking.execute(f"SELECT count(*) FROM effects WHERE name = {mark}", (key,)).fetchall()
        return rows, records


@contextmanager
def nursery(script: str = __file__) -> Iterator[Nursery]:
    """A nursery, and its end."""
    one = Nursery(script)
    try:
        yield one
    finally:
        one.close()


def _until(condition: Any) -> None:
    give_up = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up, "waited for too long"
        time.sleep(0.002)


_CLIENTS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend' AND application_name = 'drill'"
)
_COMMITTING = f"{_CLIENTS} AND query LIKE 'COMMIT%' AND wait_event = 'PgSleep'"


if __name__ == "__main__":
    serve()
