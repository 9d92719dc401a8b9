"""
Time slices of requests against `onceward serve`, or against the bare application on the same server.

The time that counts is the wall's; the CPU time is that of the server and its workers. Between its slices a server is
stopped. Runs in the worker's process, which is the client: it costs the same for everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench.http_load import Answer, Connections
from bench.interleave import ROOT
from bench.service_app import CREATE, INSERT, READ, SELECT, WRITE
from bench.worker import Broken

CONNECTIONS = 32
SETTLED = 200
BODY = "x" * 100
DATABASE = "/v1/db/demo/bench"
CASES = ("write", "replay", "read", "plain")
_HEAD = (
    "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}"
    "Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
)


class Server:
    """A server process and, if it has any, its workers."""

    def __init__(self, command: list[str], folder: Path) -> None:
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        told = b""
        assert self._process.stdout is not None
        while b"}" not in told:
            piece = self._process.stdout.read1(4096)  # type: ignore[attr-defined]
            if not piece:
                raise Broken(f"the server did not start: {(folder / 'log').read_text()[-500:]}")
            told += piece
        document = json.loads(told)
        self.token: str = document["token"] or ""
        self.port = urlsplit(document["address"]).port or 0

    def cpu(self) -> float:
        """CPU seconds of the server and of the processes that it started."""
        children = Path(f"/proc/{self._process.pid}/task")
        found = {self._process.pid}
        for task in children.iterdir():
            with contextlib.suppress(OSError):
                found |= set(map(int, (task / "children").read_text().split()))
        # Linux: every process has a clock of its own.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in found)

    def signal(self, number: int) -> None:
        """Stop it, or let it go on."""
        os.kill(self._process.pid, number)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class ServiceSlices:
    """One server and its clients: `bare`, `empty`, `hand`, `ours` or `ours-unnoted`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._ours, self._empty = name.startswith("ours"), name == "empty"
        self._keys = self._ours or name == "hand"
        """Whether it knows keys."""
        folder = folder.resolve()
        ours = ["-m", "onceward", "serve", "--json", "--port", "0", "--folder", str(folder)]
        ours += ["--first-token", "stdout"]
        ours += ["--journal", "off"] if name == "ours-unnoted" else []
        self._server = Server(
            [sys.executable, *(ours if self._ours else ["-m", "bench.service_app", str(folder), name])], folder
        )
        self._file = folder / ("databases/test-demo/bench.db" if self._ours else "bare.db")
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._connections = Connections(self._loop, self._server.port, CONNECTIONS)
        self._numbers, self._turn = itertools.count(), itertools.count()
        self._settled: list[str] = []

    def check(self) -> None:
        """One row per key, however often it is sent, and the same answer; then the keys that are replayed."""
        if self._ours:
            self._one(_request("PUT", DATABASE, {}, self._authorization), 201)
            self._one(self._sql({"sql": CREATE}), 200)
        if self._keys:
            answers = [self._one(self._write("check"), 200) for _ in range(4)]
            if [one.replayed for one in answers] != [False, True, True, True]:
                raise Broken("a key that was sent again is no replay")
            if len({one.body for one in answers}) != 1 or self._rows() != 1:
                raise Broken(f"{self._rows()} rows for one key")
        self._settled = [f"settled-{number}" for number in range(SETTLED)]
        for key in self._settled:
            self._one(self._write(key), 200)
        for case in CASES[:2] if self._empty else CASES:  # Workers, connections, compiled statements: not timed.
            self._measured(case, _times(300, self._next(case)))

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """As many requests as fit."""
        self._server.signal(signal.SIGCONT)
        self._connections.close()  # The server's patience with idle ones has ended while it was stopped.
        self._connections = Connections(self._loop, self._server.port, CONNECTIONS)
        self._one(self._read("settled-0"), 200)  # It is awake.
        until, following = time.perf_counter() + seconds, self._next(case)
        begin, cpu = time.perf_counter(), self._server.cpu()
        done = self._measured(case, lambda: following() if time.perf_counter() < until else None)
        elapsed, cpu = time.perf_counter() - begin, self._server.cpu() - cpu
        self._server.signal(signal.SIGSTOP)
        return {"operations": done, "seconds": elapsed, "cpu": cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Not asked for here."""
        raise Broken(f"nothing is counted in {case} ({operations})")

    def close(self) -> None:
        """Let go."""
        self._connections.close()
        self._server.signal(signal.SIGCONT)
        self._server.close()

    def _measured(self, case: str, next_request: Callable[[], bytes | None]) -> int:
        """Run it; every answer says what it should, and the rows of the file itself add up."""
        replays, wrong = case == "replay" and self._keys, list[Answer]()

        def take(answer: Answer) -> None:
            if answer.status != 200 or answer.replayed != replays:
                wrong.append(answer)

        before = self._rows()
        done = self._connections.run(next_request, take)
        written = self._rows() - before
        if wrong:
            raise Broken(f"{len(wrong)} wrong answers of {done}, the first {wrong[0]}")
        if written != (0 if replays or self._empty or case == "read" else done):
            raise Broken(f"{written} rows in {done} requests")
        return done

    def _rows(self) -> int:
        with contextlib.closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as connection:
            found: int = connection.execute("SELECT count(*) FROM charges").fetchone()[0]
            return found

    def _next(self, case: str) -> Callable[[], bytes]:
        """
        What is sent. The bare application knows no keys: whatever is to be replayed or is keyed elsewhere is a write to
        it.
        """
        if case == "read":
            return lambda: self._read(self._settled[next(self._turn) % SETTLED])
        if case == "replay" and self._keys:
            return lambda: self._write(self._settled[next(self._turn) % SETTLED])
        keyed = case != "plain"
        return lambda: self._write(f"{case}-{next(self._numbers):09d}", keyed=keyed)

    def _one(self, request: bytes, status: int) -> Answer:
        answers: list[Answer] = []
        self._connections.run(_times(1, lambda: request), answers.append)
        if answers[0].status != status:
            raise Broken(f"answered {answers[0]}")
        return answers[0]

    def _write(self, key: str, *, keyed: bool = True) -> bytes:
        more = f"Idempotency-Key: {key}\r\n" if keyed and self._keys else ""
        if self._ours:
            return self._sql({"sql": INSERT, "params": [key, BODY]}, more)
        return _request("POST", WRITE, {"params": [key, BODY]}, self._authorization + more)

    def _read(self, key: str) -> bytes:
        if self._ours:
            return self._sql({"sql": SELECT, "params": [key]})
        return _request("POST", READ, {"params": [key]}, self._authorization)

    def _sql(self, document: Any, more: str = "") -> bytes:
        return _request("POST", f"{DATABASE}/query", document, self._authorization + more)

    @property
    def _authorization(self) -> str:
        return f"Authorization: Bearer {self._server.token}\r\n" if self._keys else ""


def _request(method: str, path: str, document: Any, more: str = "") -> bytes:
    body = json.dumps(document, separators=(",", ":"))
    return (_HEAD.format(method=method, path=path, more=more, size=len(body)) + body).encode()


def _times(number: int, make: Callable[[], bytes]) -> Callable[[], bytes | None]:
    left = itertools.count(number, -1)
    return lambda: make() if next(left) > 0 else None
