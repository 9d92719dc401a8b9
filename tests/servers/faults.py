"""
A small HTTP server that fails in one chosen way per request, on a real socket, and remembers what it was sent.

    with FaultServer("reset_after_read", respond(200, body=b"{}")) as server:
        ...                         the first request is read, and the line is reset; all later ones are answered
        server.requests             the bytes of each request that was read, in order
        server.refuse()             from now on nobody listens; `listen()` ends that, on the same port

Modes: "reset_before_read", "reset_after_read", "reset_for_good" (after reading; nobody listens from then on),
"close_after_read" (without a word), "stall" (until the server ends),
"truncate" (less body than promised), "trickle" (a byte at a time, for ever); `respond(...)` and `say(bytes)` (read
once, send these bytes, close). "refuse" as the only mode: nobody listens from the start.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def wire(self) -> bytes:
        """As it is sent."""
        head = [f"HTTP/1.1 {self.status} Said"]
        head += [f"{name}: {value}" for name, value in self.headers]
        head += [f"Content-Length: {len(self.body)}", "Connection: close", "", ""]
        return "\r\n".join(head).encode("latin-1") + self.body


class Words(NamedTuple):
    """Bytes that are said to whoever says something."""

    data: bytes


def respond(status: int = 200, headers: dict[str, str] | Iterable[tuple[str, str]] = (), body: bytes = b"{}") -> Answer:
    """Answer properly."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Answer(status, (("Content-Type", "application/json"), *pairs), body)


def say(data: bytes) -> Words:
    """Read once, whatever comes; send these bytes; close."""
    return Words(data)


Mode = str | Answer | Words

MODES = frozenset(
    {
        "refuse",
        "reset_before_read",
        "reset_after_read",
        "reset_for_good",
        "close_after_read",
        "stall",
        "truncate",
        "trickle",
    }
)


class FaultServer:
    """Listens on a port of its own; each request takes the next mode, and the last mode stays."""

    def __init__(self, *script: Mode, tls: ssl.SSLContext | None = None) -> None:
        for mode in script:
            if isinstance(mode, str) and mode not in MODES:
                raise ValueError(f"no such mode: {mode}")
        self._script: tuple[Mode, ...] = script or (respond(),)
        self._tls = tls
        self._turn = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._listener: socket.socket | None = None
        self._lines: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.requests: list[bytes] = []
        """Each request that was read, whole."""
        # Bound and not listening: refused, and nobody else gets the port meanwhile.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port: int = self._holder.getsockname()[1]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        if self._script != ("refuse",):
            self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.refuse()
        self._holder.close()
        for line in list(self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def listen(self) -> None:
        """Take connections."""
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(64)
        self._start(self._accept, self._listener)

    def refuse(self) -> None:
        """Take none from now on."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            self._lines.add(line)
            self._start(self._serve, line)

    def _next_mode(self) -> Mode:
        with self._lock:
            mode = self._script[min(self._turn, len(self._script) - 1)]
            self._turn += 1
        return mode

    def _serve(self, line: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is None:
                self._play(line, self._next_mode())
            else:
                with self._tls.wrap_socket(line, server_side=True) as shaken:
                    self._play(shaken, self._next_mode())
        self._lines.discard(line)
        line.close()

    def _play(self, line: socket.socket, mode: Mode) -> None:
        if mode == "reset_before_read":
            return _reset(line)
        if isinstance(mode, Words):
            line.recv(65_536)
            return line.sendall(mode.data)
        request = _read_request(line)
        if request is None:
            return None
        self.requests.append(request)
        if isinstance(mode, Answer):
            line.sendall(mode.wire())
        elif mode == "reset_after_read":
            _reset(line)
        elif mode == "reset_for_good":
            self.refuse()
            _reset(line)
        elif mode == "stall":
            self._over.wait()
        elif mode == "truncate":
            line.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n" + b'{"id": 1'
            )
        elif mode == "trickle":
            self._trickle(line)
        return None

    def _trickle(self, line: socket.socket) -> None:
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not self._over.wait(0.02):
            line.sendall(b" ")


def _reset(line: socket.socket) -> None:
    """Closing with a linger of zero sends RST in place of FIN."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def _read_request(line: socket.socket) -> bytes | None:
    """One request, headers and body; None if the other side hangs up before it is whole."""
    data = b""
    while not _is_whole(data):
        piece = line.recv(65_536)
        if not piece:
            return None
        data += piece
    return data


def _is_whole(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    fields = dict(one.lower().split(b":", 1) for one in head.split(b"\r\n")[1:] if b":" in one)
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(fields.get(b"content-length", b"0"))


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose queue is full: a connection to it is neither made nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(listener.getsockname())
            waiting.append(one)
        try:
            yield listener.getsockname()[1]
        finally:
            for one in waiting:
                one.close()
