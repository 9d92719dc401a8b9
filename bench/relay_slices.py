"""
Time slices of deliveries to a receiver on this machine: by a bare HTTP client, by the endpoint alone, by the relay.

Eight at a time, messages of about 200 bytes. The receiver is a process of its own and the same for everybody:
`python -m bench.relay_slices` answers every POST with 204, and keeps the connection unless it is asked not to.
"""

from __future__ import annotations

import asyncio
import http.client
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.interleave import ROOT
from bench.worker import Broken
from onceward import Gate
from onceward.messaging.outbox import Message
from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.relay import Relay

THREADS = 8
WAITING = 4_000
"""Messages that wait when a slice begins: more than any slice delivers."""
PAYLOAD = {"invoice": 7, "note": "x" * 170}
BODY = b'{"invoice":7,"note":"' + b"x" * 170 + b'"}'
_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
_LAST = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


class RelaySlices:
    """One way to deliver."""

    def __init__(self, folder: Path, name: str, url: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._receiver = subprocess.Popen(
            [sys.executable, "-m", "bench.relay_slices"], cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        if self._receiver.stdout is None:
            raise Broken("the receiver says nothing")
        self._port = int(self._receiver.stdout.readline())
        self._endpoint = HttpEndpoint(
            f"http://127.0.0.1:{self._port}/hooks",
            secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
            allow_private=["127.0.0.1"],
            allow_http=True,
        )
        self._local = threading.local()
        self._endpoint.hold_connections(THREADS)
        self._url = url or f"sqlite:///{folder / 'app.db'}"

    def check(self) -> None:
        """A few are delivered."""
        if self.slice("deliver", 0.1)["operations"] < 1:
            raise Broken("nothing was delivered")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """As many as fit."""
        if self._name in ("sqlite", "postgres"):
            return self._relayed(seconds)
        ways = {"bare": self._bare, "bare-kept": self._bare_kept}
        return self._looped(ways.get(self._name, self._delivered), seconds)

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Not needed here."""
        raise Broken("deliveries are not counted by system calls")

    def close(self) -> None:
        """End the receiver."""
        self._endpoint.release_connections(THREADS)
        self._receiver.kill()
        self._receiver.wait()

    def _relayed(self, seconds: float) -> dict[str, Any]:
        self._fill()
        with Relay(self._url, {"receiver": self._endpoint}, concurrency=THREADS) as relay:
            before = self._count(relay)
            running = threading.Thread(target=relay.run)
            wall, cpu = time.perf_counter(), time.process_time()
            running.start()
            time.sleep(seconds)
            relay.stop()
            running.join()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            done = self._count(relay) - before
        return {"operations": done, "seconds": spent[0], "cpu": spent[1]}

    def _looped(self, deliver: Callable[[], None], seconds: float) -> dict[str, Any]:
        until = time.perf_counter() + seconds
        counts: list[int] = []

        def loop() -> None:
            count = 0
            while time.perf_counter() < until:
                deliver()
                count += 1
            counts.append(count)

        threads = [threading.Thread(target=loop) for _ in range(THREADS)]
        wall, cpu = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = time.perf_counter() - wall, time.process_time() - cpu
        return {"operations": sum(counts), "seconds": spent[0], "cpu": spent[1]}

    def _bare(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("POST", "/hooks", BODY, {"Content-Type": "application/json", "Connection": "close"})
        if connection.getresponse().status != 204:
            raise Broken("another answer than 204")
        connection.close()

    def _bare_kept(self) -> None:
        try:
            connection = self._local.connection
        except AttributeError:
            connection = self._local.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("POST", "/hooks", BODY, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 204 or response.read():
            raise Broken("another answer than 204")

    def _delivered(self) -> None:
        message = Message("msg_1", "receiver", "invoice.paid", BODY, "application/json", {}, None, 0, 1)
        self._endpoint.deliver(message)

    def _count(self, relay: Relay) -> int:
        return sum(one.messages for one in relay.message_counts() if one.state == "delivered")

    def _fill(self) -> None:
        with Gate(self._url, scope="live:bench") as gate:
            connection = self._connected()
            outbox = gate.outbox(connection)
            for number in range(WAITING):
                outbox.add("receiver", PAYLOAD, topic="invoice.paid", aggregate=f"invoice:{number}")
            connection.commit()
            connection.close()

    def _connected(self) -> Any:
        if self._name == "sqlite":
            return sqlite3.connect(self._url.removeprefix("sqlite:///"))
        import psycopg

        return psycopg.connect(self._url)


async def _receive() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            keeps = True
            while keeps:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                keeps = b"connection: close" not in head
                await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                writer.write(_ANSWER if keeps else _LAST)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_receive())
