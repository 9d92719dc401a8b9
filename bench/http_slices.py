"""
Time slices of HTTP requests against one server process. Runs in the worker's process, which is the client.

The time that counts is the wall's; the CPU time is the server's alone. Between its slices a server is stopped.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.http_app import CHARGES, STATE
from bench.http_load import Answer, Connections, request_of
from bench.interleave import ROOT
from bench.work import SETTLED, Work
from bench.worker import Broken, mark

CONNECTIONS = 32
CHECKED = 3


class Server:
    """A server process, and what it has done so far."""

    def __init__(self, folder: Path, place: str, address: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "bench.http_server", place, str(folder), address]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Broken("the server did not start")
        self.port = int(line)

    def state(self) -> dict[str, int]:
        """Effects so far, and resident memory."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", STATE)
            found: dict[str, int] = json.loads(connection.getresponse().read())
            return found
        finally:
            connection.close()

    def cpu(self) -> float:
        """CPU seconds of the process, all of its threads (Linux: every process has a clock of its own)."""
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def go_on(self) -> None:
        """Run again."""
        os.kill(self._process.pid, signal.SIGCONT)

    def pause(self) -> None:
        """Do nothing until told to go on."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class HttpSlices:
    """One server and its clients. `separate` means nothing here."""

    def __init__(self, folder: Path, place: str, separate: str, address: str) -> None:
        self._marks = place != "bench.http_app:bare"
        self._work, self._numbers = Work(), itertools.count()
        self._server = Server(folder, place, address)
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._connections = Connections(self._loop, self._server.port, CONNECTIONS)
        self._settled: list[bytes] = []
        self._turn = itertools.count()

    def check(self) -> None:
        """One effect per key, the same answer ever after; and settle the keys to replay."""
        if self._marks:
            request, answers = self._fresh(), list[Answer]()
            for _ in range(CHECKED + 1):
                self._connections.run(_times(1, lambda: request), answers.append)
            if self._server.state()["effects"] != 1:
                raise Broken(f"{self._server.state()['effects']} effects for one key asked {CHECKED + 1} times")
            if any(one.body != answers[0].body or one.status != 201 for one in answers):
                raise Broken("a replay gave another answer")
        self._settled = [self._fresh() for _ in range(SETTLED)]
        waiting = iter(self._settled)
        self._measured("fresh_http", lambda: next(waiting, None))
        for case in ("fresh_http", "replay_http"):  # Connections, plans, whatever comes first: not timed.
            self._measured(case, _times(500, self._next(case)))

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """As many requests as fit; the CPU time is the server's."""
        self._server.go_on()
        self._server.state()  # It is awake.
        until, following = time.perf_counter() + seconds, self._next(case)
        begin, cpu = time.perf_counter(), self._server.cpu()
        done = self._measured(case, lambda: following() if time.perf_counter() < until else None)
        elapsed, cpu = time.perf_counter() - begin, self._server.cpu() - cpu
        self._server.pause()
        return {"operations": done, "seconds": elapsed, "cpu": cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """So many requests, between marks."""
        self._server.go_on()
        mark()
        done = self._measured(case, _times(operations, self._next(case)))
        mark()
        return {"operations": done}

    def close(self) -> None:
        """Let go."""
        self._connections.close()
        self._server.go_on()
        self._server.close()

    def _measured(self, case: str, next_request: Callable[[], bytes | None]) -> int:
        """Run it; the effects must add up, and every answer must say whether it is a replay."""
        replays, wrong = case == "replay_http" and self._marks, list[Answer]()

        def take(answer: Answer) -> None:
            if answer.status != 201 or answer.replayed != replays:
                wrong.append(answer)

        before = self._server.state()["effects"]
        done = self._connections.run(next_request, take)
        effects = self._server.state()["effects"] - before
        if wrong:
            raise Broken(f"{len(wrong)} wrong answers of {done}, the first {wrong[0]}")
        if effects != (0 if replays else done):
            raise Broken(f"{effects} effects in {done} requests")
        return done

    def _next(self, case: str) -> Callable[[], bytes]:
        if case == "fresh_http":
            return self._fresh
        settled, turn = self._settled, self._turn
        return lambda: settled[next(turn) % SETTLED]

    def _fresh(self) -> bytes:
        return request_of(self._work, CHARGES, f"charge-{next(self._numbers):012d}")


def _times(number: int, make: Callable[[], bytes]) -> Callable[[], bytes | None]:
    left = itertools.count(number, -1)
    return lambda: make() if next(left) > 0 else None
