"""
A receiver of webhooks on a real socket, that answers whatever a test wants: also what no HTTP server would.

    with Receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as receiver:
        ...
        receiver.requests[0].headers["webhook-id"]

The answer is bytes, or a function that is handed the connection once the request has been read.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Self, TypeAlias


class Request(NamedTuple):
    """A request, as it came."""

    line: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    server_name: str | None
    """What TLS was asked for."""


Answer: TypeAlias = bytes | Callable[[socket.socket], None]


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    """A plain answer."""
    lines = [f"HTTP/1.1 {status} So", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Receiver:
    """Listens on 127.0.0.1 until the block ends."""

    def __init__(self, answer: Answer, *, tls: ssl.SSLContext | None = None, family: int = socket.AF_INET) -> None:
        host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[Request] = []
        self.connections = 0
        self.ended = threading.Event()
        """Set while no connection is open: whoever called has hung up."""
        self.answer = answer
        self._tls = tls
        self._names: list[str] = []
        self._lines: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        if tls is not None:
            tls.sni_callback = lambda _line, name, _context: self._names.append(name)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in list(self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def go_on(self, line: socket.socket, *answers: bytes) -> None:
        """Answer this request and those that follow on the same connection; after the last answer, hang up."""
        line.sendall(answers[0])
        for one in answers[1:]:
            if not self.take_one_more(line):
                return
            line.sendall(one)

    def take_one_more(self, line: socket.socket) -> bool:
        """Another request on the same connection; False if the caller hung up instead."""
        request = self._read(line)
        if request.line:
            self.requests.append(request)
        return bool(request.line)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self.ended.clear()
            line.settimeout(60)
            self._lines.add(line)
            self._start(lambda line=line: self._hold(line))

    def _hold(self, line: socket.socket) -> None:
        plain = line
        try:
            with suppress(OSError, ValueError):
                if self._tls is not None:
                    line = self._tls.wrap_socket(line, server_side=True)
                self.requests.append(self._read(line))
                if isinstance(self.answer, bytes):
                    line.sendall(self.answer)
                else:
                    self.answer(line)
        finally:
            line.close()
            plain.close()
            self._lines.discard(plain)
            self.ended.set()

    def _read(self, line: socket.socket) -> Request:
        with line.makefile("rb") as file:
            first = file.readline().decode()
            headers = {}
            while (one := file.readline().decode().rstrip("\r\n")) != "":
                name, _, value = one.partition(":")
                headers[name.lower()] = value.strip()
            body = file.read(int(headers.get("content-length", "0")))
        return Request(first.rstrip("\r\n"), headers, body, self._names[-1] if self._names else None)
