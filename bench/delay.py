"""
A wire with a length: a proxy that passes everything on, both ways, so much later.

    python -m bench.delay PORT SECONDS      prints its own port; ends when stdin does

In a process of its own, because threads of the process that is measured would be measured too. Bytes that were sent
together arrive together, and what is sent later does not wait for what was sent before: a delay, not a bottleneck.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.interleave import ROOT

Piece = tuple[float, bytes]


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """The port of such a proxy, each way so long."""
    command = [sys.executable, "-m", "bench.delay", str(port), str(seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


def main() -> None:
    """Listen until stdin ends."""
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(listener, port, seconds), daemon=True).start()
    sys.stdin.read()


def _accept(listener: socket.socket, port: int, seconds: float) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for source, sink in ((client, server), (server, client)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pieces: queue.SimpleQueue[Piece] = queue.SimpleQueue()
            threading.Thread(target=_take, args=(source, pieces, seconds), daemon=True).start()
            threading.Thread(target=_give, args=(sink, pieces), daemon=True).start()


def _take(source: socket.socket, pieces: queue.SimpleQueue[Piece], seconds: float) -> None:
    data = b"first"
    while data:
        try:
            data = source.recv(65536)
        except OSError:
            data = b""
        pieces.put((time.monotonic() + seconds, data))


def _give(sink: socket.socket, pieces: queue.SimpleQueue[Piece]) -> None:
    while True:
        due, data = pieces.get()
        time.sleep(max(0.0, due - time.monotonic()))
        with suppress(OSError):
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)


if __name__ == "__main__":
    main()
