"""
A connection with a deadline and a limit of bytes, whatever the other side does.

A timeout of a socket starts anew with every byte, so a server that sends one byte a second holds a caller for ever.
Here the whole try has one deadline, and each wait gets what is left of it. `DeadlineSocket` looks enough like a socket
for `http.client` and `smtplib` to speak over it.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias

from onceward.runtime.environment import Environment

Resolver: TypeAlias = Callable[[str, int], Iterable[str]]
"""A name and a port to addresses: what DNS says."""

ADDRESSES_MAX = 8
"""Addresses of one name that are tried, one after the other, until one takes the connection."""

RESOLVING_MAX = 32
"""Names being looked up at once in this process: a lookup cannot be stopped, only left, so they must not pile up."""

CHUNK_BYTES = 65_536

_resolving = threading.BoundedSemaphore(RESOLVING_MAX)


class ResponseTooLong(OSError):
    """The other side said more than anybody wants to read."""


class Deadline:
    """A moment at which a try ends."""

    def __init__(self, environment: Environment, seconds: float) -> None:
        self._environment = environment
        self._at = environment.monotonic() + seconds

    def now(self) -> float:
        """The clock that it is on."""
        return self._environment.monotonic()

    def left(self) -> float:
        """Seconds until then; `TimeoutError` if there are none."""
        seconds = self._at - self._environment.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def sooner(self, seconds: float) -> Deadline:
        """Another that ends after so many seconds, or with this one if that is sooner."""
        return Deadline(self._environment, min(seconds, self.left()))


class DeadlineSocket:
    """A connected socket under a deadline."""

    def __init__(self, plain: socket.socket, deadline: Deadline, bytes_max: int) -> None:
        self._socket = plain
        self.deadline = deadline
        self.opened_at = deadline.now()
        self._bytes_max = self._bytes_left = bytes_max
        self._file: io.BufferedReader | None = None
        self._is_listening = True
        self.ended = False
        """Whether the other side has hung up, and somebody wanted to read on."""

    @property
    def has_heard(self) -> bool:
        """Whether any byte came since the connection was made or begun anew."""
        return self._bytes_left < self._bytes_max

    def begin_anew(self, deadline: Deadline) -> None:
        """Another exchange on this connection: its own deadline, and its own limit of bytes."""
        self.deadline, self._bytes_left = deadline, self._bytes_max

    def is_silent(self) -> bool:
        """Whether there is nothing to read: neither an end nor what nobody asked for."""
        self._is_listening = False
        try:
            if self._file is not None and self._file.peek(1):
                return False
        finally:
            self._is_listening = True
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return False
        return not can_read(self._socket)

    def secure(self, context: ssl.SSLContext, name: str) -> None:
        """Go on under TLS, with whoever can show a certificate for this name."""
        self._socket.settimeout(self.deadline.left())
        self._socket = context.wrap_socket(self._socket, server_hostname=name)

    def sendall(self, data: bytes) -> None:
        """Send it whole, in time."""
        view = memoryview(data).cast("B")
        while view:
            self._socket.settimeout(self.deadline.left())
            view = view[self._socket.send(view[:CHUNK_BYTES]) :]

    def receive_into(self, buffer: memoryview) -> int | None:
        """Some bytes, in time; 0 at the end."""
        if not self._is_listening:
            return None
        if self._bytes_left <= 0:
            raise ResponseTooLong("the response is longer than the limit")
        self._socket.settimeout(self.deadline.left())
        got = self._socket.recv_into(buffer[: self._bytes_left])
        self._bytes_left -= got
        self.ended = got == 0
        return got

    def makefile(self, _mode: str = "rb") -> io.BufferedReader:
        """For `http.client` and `smtplib`, which read lines. One for all responses: it may have read ahead."""
        if self._file is None:
            self._file = _LastingReader(_Raw(self), 8_192)
        return self._file

    def close(self) -> None:
        """Hang up, without waiting for anything."""
        self._socket.close()


class _Raw(io.RawIOBase):
    def __init__(self, line: DeadlineSocket) -> None:
        self._line = line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        return self._line.receive_into(memoryview(buffer))


class _LastingReader(io.BufferedReader):
    """Stays open when one response has ended: it is the connection's."""

    def close(self) -> None:
        pass


def can_read(plain: socket.socket) -> bool:
    """Whether a read would not wait."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(plain, select.POLLIN | select.POLLPRI)
        return bool(poll.poll(0))
    return bool(select.select([plain], [], [], 0)[0])


def system_addresses(host: str, port: int) -> list[str]:
    """What the system says: /etc/hosts, DNS. Takes the odd spellings of addresses, too, and says what they mean."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def resolve_host(resolver: Resolver, host: str, port: int, deadline: Deadline) -> list[str]:
    """The addresses of a name, in time. A lookup that takes longer is left to itself."""
    if not _resolving.acquire(timeout=deadline.left()):
        raise TimeoutError
    found: list[str] = []
    trouble: list[BaseException] = []

    def look_up() -> None:
        try:
            found.extend(resolver(host, port))
        except BaseException as error:
            trouble.append(error)
        finally:
            _resolving.release()

    thread = threading.Thread(target=look_up, name="onceward-resolve", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        _resolving.release()
        raise OSError("no thread could be started to look the name up") from None
    thread.join(deadline.left())
    if thread.is_alive():
        raise TimeoutError
    if trouble:
        raise OSError("the name cannot be resolved") from trouble[0]
    return found


def connect_to(
    addresses: list[str], port: int, *, connecting: Deadline, deadline: Deadline, bytes_max: int
) -> DeadlineSocket:
    """A line to the first of these addresses that takes one. They are addresses: nothing is looked up again."""
    tried = addresses[:ADDRESSES_MAX]
    trouble: OSError = OSError("the name has no address")
    for number, address in enumerate(tried):
        plain = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Its share of what is left: one address that is silent must not cost the others their turn.
            plain.settimeout(connecting.left() / (len(tried) - number))
            plain.connect((address, port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            plain.close()
            trouble = error
        except BaseException:
            plain.close()
            raise
        else:
            return DeadlineSocket(plain, deadline, bytes_max)
    raise trouble
