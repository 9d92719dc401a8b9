"""
What the examples of web frameworks share: a real uvicorn on a free port, and clients that send the same thing twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import uvicorn


class Got(NamedTuple):
    """An answer."""

    status: int
    body: Any
    replayed: bool


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an ASGI application while the block runs; its address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none")  # Port 0: any free one.
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not come up")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def post(url: str, body: dict[str, Any], key: str, token: str) -> Got:
    """Send a request under a key."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, "Authorization": f"Bearer {token}"}
    request = Request(url, json.dumps(body).encode(), headers)
    try:
        with urlopen(request, timeout=30) as answer:
            return Got(answer.status, json.load(answer), answer.headers["Idempotency-Replayed"] == "true")
    except HTTPError as refusal:
        with refusal:
            return Got(refusal.code, json.load(refusal), refusal.headers["Idempotency-Replayed"] == "true")


def send_duplicates(url: str) -> int:
    """What impatient clients do: the same charge ten times at once, and variations. The number of requests."""
    with ThreadPoolExecutor(10) as clients:
        at_once = list(clients.map(lambda _: post(url, {"amount": 1250}, "o-17", "token-acme"), range(10)))
    print(f"10 at once: {sorted(one.status for one in at_once)}, {sum(one.replayed for one in at_once)} replayed")
    other = post(url, {"amount": 9900}, "o-17", "token-acme")
    refusal = other.body.get("error", other.body)  # Stripe's shape, or problem+json.
    print(f"another amount under the same key: {other.status} {refusal['code']}, retry {refusal['retry']}")
    rival = post(url, {"amount": 1250}, "o-17", "token-globex")
    print(f"the same key from somebody else: {rival.status} {rival.body}")
    again = post(url, {"amount": 1250}, "o-17", "token-acme")
    print(f"much later: {again.status} {again.body}, replayed {again.replayed}")
    return len(at_once) + 3
