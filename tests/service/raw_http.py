"""Bare connections: a client that sends what no client would, stops in the middle, or does not read."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from service_support import Heard, Served

PATIENCE_SECONDS = 60.0
"""Only for what hangs."""


class RawConnection:
    """One connection to a service."""

    def __init__(self, address: str, *, source: str = "127.0.0.1", buffer: int = 0) -> None:
        where = urlsplit(address)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.bind((source, 0))
        self.socket.connect((where.hostname, where.port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, *parts: bytes) -> Self:
        """All of it, or as much as the other side takes before it closes."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(b"".join(parts))
        return self

    def head(self, method: str, path: str, token: str = "", **headers: str) -> Self:
        """A request up to the end of its head."""
        lines = [f"{method} {path} HTTP/1.1", "Host: here", *([f"Authorization: Bearer {token}"] if token else [])]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return self.send("\r\n".join((*lines, "", "")).encode())

    def answer(self) -> Heard | None:
        """The next answer; None if the connection ends without one, or nothing comes."""
        try:
            read = b""
            while b"\r\n\r\n" not in read:
                piece = self.socket.recv(65_536)
                if not piece:
                    return None
                read += piece
            head, _, body = read.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            while len(body) < int(headers["content-length"]):
                body += self.socket.recv(65_536)
            return Heard(int(first.split()[1]), headers, body)
        except (ConnectionResetError, TimeoutError):
            return None

    def has_ended(self) -> bool:
        """Wait for the other side to close it, whatever it says before; whether it did."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True


def push(crowd: list[RawConnection], body: bytes) -> None:
    """Send a body on every connection, as far as the other side takes it."""
    left = {one: memoryview(body) for one in crowd}
    for _ in range(50):
        for one, rest in left.items():
            with suppress(OSError):  # It is full, or has ended.
                left[one] = rest[one.socket.send(rest, socket.MSG_DONTWAIT) :]


def answered(crowd: list[RawConnection], count: int) -> list[RawConnection]:
    """Wait until so many connections have an answer, or have ended: those."""

    def found() -> list[RawConnection] | None:
        ready = select.select([one.socket for one in crowd], [], [], 0.1)[0]
        return [one for one in crowd if one.socket in ready] if len(ready) >= count else None

    return list(until(found))


def memory_of(pid: int) -> int:
    """Megabytes that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def until(seen: Callable[[], Any]) -> Any:
    """Ask until there is something; what is seen."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        found = seen()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never happened")


def log_lines(served: Served, words: str) -> list[dict[str, Any]]:
    """Lines of a service's log that have these words in them."""
    return [json.loads(line) for line in served.log.splitlines() if words in line and line.startswith("{")]
