"""
The relay as people run it: a command, and a part of the service; to a real HTTP receiver.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from onceward import Gate
from onceward.messaging.webhooks import Secret, StandardWebhooks

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Hooks:
    """A receiver of webhooks. It is busy the first time, and then it acts once for each id."""

    def __init__(self, expected: int) -> None:
        self.heard: list[str] = []
        self.acted: dict[str, Any] = {}
        self.complete = threading.Event()
        self._expected = expected
        self._guard = threading.Lock()

    def take(self, headers: dict[str, str], body: bytes, now: float) -> int:
        verified = StandardWebhooks().verify(headers, body, [Secret.parse(SECRET)], now=now)
        with self._guard:
            self.heard.append(verified.id)
            if len(self.heard) == 1:
                return 503
            self.acted.setdefault(verified.id, json.loads(body))
            if len(self.acted) == self._expected:
                self.complete.set()
        return 200


@contextmanager
def receiving(hooks: Hooks) -> Iterator[int]:
    import time

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(hooks.take(headers, body, time.time()))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def prepared(folder: Path, port: int, database: Path) -> list[str]:
    """Messages, and a file for the relay; the ids."""
    (folder / "relay.toml").write_text(
        f"""schedule = [0.1, 0.1, 1, 1, 1]
idle = 0.05

[endpoints.billing]
kind = "http"
url = "http://127.0.0.1:{port}/hooks"
secrets_env = ["BILLING_SECRET"]
allow_private = ["127.0.0.1/32"]
allow_http = true
ports = [{port}]
"""
    )
    with Gate(f"sqlite:///{database}", scope="live:acme") as gate:
        connection = sqlite3.connect(database)
        outbox = gate.outbox(connection)
        ids = [outbox.add("billing", {"n": n}, topic="invoice.paid", aggregate="a") for n in range(3)]
        connection.commit()
        connection.close()
    return ids


def await_an_answer(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    told = b""
    while b"}" not in told:
        told += process.stdout.readline()
    with urlopen(json.loads(told)["address"] + "/health", timeout=60) as answer:
        assert answer.status == 200


@pytest.mark.slow
@pytest.mark.requirement("E37", "E03")
@pytest.mark.parametrize("command", ["relay", "serve"])
def test_a_message_reaches_a_real_receiver_under_one_id(tmp_path: Path, command: str) -> None:
    """
    Signed, tried again under the same id after a 503, in order; and a signal ends it in order.
    """
    hooks, database = Hooks(expected=3), tmp_path / "records.db"
    with receiving(hooks) as port:
        ids = prepared(tmp_path, port, database)
        flags = {
            "relay": ["relay", "run", "--config", "relay.toml", "--store", f"sqlite:///{database}"],
            "serve": ["serve", "--json", "--port", "0", "--folder", str(tmp_path), "--relay", "relay.toml"],
        }[command]
        process = subprocess.Popen(
            [sys.executable, "-m", "onceward", *flags],
            cwd=tmp_path,
            env={**os.environ, "BILLING_SECRET": SECRET},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            complete = hooks.complete.wait(60)
            if command == "serve":
                await_an_answer(process)  # Before that, it has not said what it does with a signal.
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()

    assert (complete, process.returncode) == (True, 0), said
    assert [ids[0], *ids] == hooks.heard
    assert list(hooks.acted.values()) == [{"n": 0}, {"n": 1}, {"n": 2}]
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("SELECT state, count(*) FROM onceward_outbox_messages GROUP BY state").fetchall() == [
            ("delivered", 3)
        ]
    finally:
        connection.close()
