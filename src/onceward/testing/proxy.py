"""
A TCP proxy that loses things on purpose: between a client and its server, in a test's hands. It listens on 127.0.0.1.

    with Proxy(port) as proxy:
        proxy.lose_answers(1)       the next request reaches the server; its answer is swallowed and the line is cut
        proxy.lose_requests(1)      the next request does not reach the server; the line is cut
        proxy.cut_at(b"COMMIT")     the next request with these bytes reaches the server, or not; its line is cut
        proxy.cut()                 every line is cut, now
        proxy.lead_to(port)         another server is behind it from now on, and every line is cut
        proxy.hold()                nothing is passed on any more, and no line is cut; let_go() ends that
        proxy.down()                every line is cut, and nobody gets a new one; up() ends that
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self


class Proxy:
    """Listens on a port of its own and passes bytes on, both ways, until it is told otherwise."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests = 0
        """Pieces passed on from clients."""
        self._lock = threading.Lock()
        self._answers_to_lose = 0
        self._requests_to_lose = 0
        self._flowing = threading.Event()
        self._flowing.set()
        self._is_down = False
        self._fatal: tuple[bytes, bool] | None = None
        self._doomed: set[socket.socket] = set()
        self._lines: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.let_go()
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for line in self._lines:
            line.close()

    def lead_to(self, port: int) -> None:
        """From now on to another server, as a name does that moves in a failover: every line is cut."""
        self._target = ("127.0.0.1", port)
        self.cut()

    def lose_answers(self, count: int) -> None:
        """Swallow so many answers, each with its line."""
        self._answers_to_lose = count

    def lose_requests(self, count: int) -> None:
        """Swallow so many requests, each with its line."""
        self._requests_to_lose = count

    def cut_at(self, words: bytes, *, arrives: bool) -> None:
        """Cut the line of the next request that has these bytes: before it arrives, or in place of its answer."""
        self._fatal = (words, arrives)

    @property
    def to_lose(self) -> int:
        """What has still to be lost."""
        return self._answers_to_lose + self._requests_to_lose + (self._fatal is not None)

    def cut(self) -> None:
        """Cut every line."""
        for line in list(self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def down(self) -> None:
        """Cut every line, and those to come as soon as they are made: as a server that is away."""
        self._is_down = True
        self.cut()

    def _cut_if_down(self) -> None:
        if self._is_down:
            self.cut()

    def up(self) -> None:
        """Take new lines again."""
        self._is_down = False

    def hold(self) -> None:
        """Freeze: bytes are kept back, both ways, on lines that are open and on those to come."""
        self._flowing.clear()

    def let_go(self) -> None:
        """Pass on what was kept back, and go on."""
        self._flowing.set()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_down:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._lines |= {client, server}
            self._cut_if_down()  # It may have gone down while this one was made.
            self._start(self._pass_on, client, server, True)
            self._start(self._pass_on, server, client, False)

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                if self._loses(is_request) or source in self._doomed or self._is_cut(is_request, data, sink):
                    break
                sink.sendall(data)
        for line in (source, sink):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _is_cut(self, is_request: bool, data: bytes, sink: socket.socket) -> bool:
        with self._lock:
            if not is_request or self._fatal is None or self._fatal[0] not in data:
                return False
            (_, arrives), self._fatal = self._fatal, None
        if arrives:
            self._doomed.add(sink)  # What comes from there next is the answer.
        return not arrives

    def _loses(self, is_request: bool) -> bool:
        with self._lock:
            if is_request:
                self.requests += 1
                if self._requests_to_lose:
                    self._requests_to_lose -= 1
                    return True
            elif self._answers_to_lose:
                self._answers_to_lose -= 1
                return True
        return False
