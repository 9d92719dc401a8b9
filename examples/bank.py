"""
A very small bank, for the demo and the examples: a real HTTP server on this machine, in memory.

    POST /charges    {"order": "o-17", "amount": "12.50"}    ->  {"charge": "ch_1", ...}

Like real payment providers, it honours an `Idempotency-Key` header if one is sent: the same key gets the first charge
again. Without the header, every request is a new charge.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

SECONDS_PER_REQUEST_MAX = 30


class Bank(ThreadingHTTPServer):
    """The server. `with Bank() as bank:` serves from a thread of its own, at `bank.url`."""

    daemon_threads = True
    victim: subprocess.Popen[bytes] | None = None
    """A process that is killed (`kill -9`) as soon as the next charge is booked, before it can hear of it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Counter)  # Port 0: any free one.
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests = 0
        self.charges: list[dict[str, Any]] = []
        self._by_key: dict[str, dict[str, Any]] = {}
        self._one_at_a_time = threading.Lock()

    def __enter__(self) -> Bank:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self.server_close()

    def charge(self, order: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Take the money, unless this key has been seen."""
        with self._one_at_a_time:
            self.requests += 1
            if key is not None and key in self._by_key:
                return self._by_key[key]
            charge = {"charge": f"ch_{len(self.charges) + 1}", **order}
            self.charges.append(charge)
            if key is not None:
                self._by_key[key] = charge
            if self.victim is not None:
                self.victim.kill()
                self.victim.wait()
                self.victim = None
            return charge


class _Counter(BaseHTTPRequestHandler):
    """Where the requests come in."""

    server: Bank

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(201, self.server.charge(order, self.headers.get("Idempotency-Key")))

    def do_GET(self) -> None:
        self._answer(200, {"requests": self.server.requests, "charges": self.server.charges})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        with suppress(OSError):  # Whoever asked is dead.
            self.wfile.write(payload)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: the examples tell what happens."""


def charge(url: str, order: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    """Ask a bank for a charge, with or without a key."""
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key is not None else {})
    request = Request(f"{url}/charges", data=json.dumps(order).encode(), headers=headers)
    with urlopen(request, timeout=SECONDS_PER_REQUEST_MAX) as answer:
        charged: dict[str, Any] = json.load(answer)
    return charged


def statement(url: str) -> dict[str, Any]:
    """What a bank has seen: how many requests, and which charges."""
    with urlopen(f"{url}/charges", timeout=SECONDS_PER_REQUEST_MAX) as answer:
        seen: dict[str, Any] = json.load(answer)
    return seen


if __name__ == "__main__":
    # As a process of its own: says its address, serves until its standard input is closed.
    with Bank() as bank:
        print(bank.url, flush=True)
        sys.stdin.read()
