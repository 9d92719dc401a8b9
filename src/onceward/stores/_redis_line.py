"""
The socket of a Redis connection, read and written without redis-py in between.

redis-py connects, speaks TLS and logs in. After that it costs more than the server does: a reply goes through a dozen
of its functions. With hiredis there, and a socket that we can get at, commands are written to the socket, and hiredis
reads the replies. Otherwise redis-py does it, and nothing else changes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import redis.exceptions as exceptions

try:
    import hiredis
except ImportError:
    hiredis = None  # type: ignore[assignment, unused-ignore]

CHUNK = 65_536
CLOSED = "the server closed the connection"

_ERRORS: dict[str, type[exceptions.RedisError]] = {
    "NOSCRIPT": exceptions.NoScriptError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
    "LOADING": exceptions.BusyLoadingError,
    "NOPERM": exceptions.NoPermissionError,
    "NOAUTH": exceptions.AuthenticationError,
    "WRONGPASS": exceptions.AuthenticationError,
}


class RedisLine:
    """A connected socket, and what reads its replies."""

    __slots__ = ("_reader", "gets", "socket")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._reader = hiredis.Reader()
        self.gets: Callable[[], Any] = self._reader.gets
        """The next reply, False if it has not arrived yet; an error is one of hiredis: see `checked`."""

    def ask(self, packed: bytes) -> Any:
        """Send one command; its reply, which may be an error of the driver."""
        connected, reader = self.socket, self._reader
        try:
            connected.sendall(packed)
            while True:
                data = connected.recv(CHUNK)
                if not data:
                    raise exceptions.ConnectionError(CLOSED)
                reader.feed(data)
                reply = reader.gets()
                if reply is not False:
                    break
        except (OSError, hiredis.HiredisError) as error:
            raise _trouble_of(error) from None
        return _error_of(reply) if type(reply) is hiredis.ReplyError else reply

    def talk(self, packed: bytes, count: int, replies: list[Any]) -> bool:
        """Send commands and read so many replies; whether errors are among them, which are errors of the driver."""
        reader, failed = self._reader, False
        try:
            self.socket.sendall(packed)
            while count:
                reply = reader.gets()
                if reply is False:
                    self.fed(self.socket.recv(CHUNK))
                    continue
                if type(reply) is hiredis.ReplyError:
                    reply, failed = _error_of(reply), True
                replies.append(reply)
                count -= 1
            return failed
        except (OSError, hiredis.HiredisError) as error:
            raise _trouble_of(error) from None

    def fed(self, data: bytes) -> None:
        """Take what has arrived."""
        if not data:
            raise exceptions.ConnectionError(CLOSED)
        self._reader.feed(data)

    def checked(self, reply: Any) -> Any:
        """A reply; an error is one of the driver."""
        return _error_of(reply) if isinstance(reply, hiredis.ReplyError) else reply


def _error_of(reply: Exception) -> exceptions.RedisError:
    message = str(reply)
    return _ERRORS.get(message.partition(" ")[0], exceptions.ResponseError)(message)


def reads_sockets() -> bool:
    """Whether hiredis is there to read replies with."""
    return hiredis is not None


def line_of(connection: object) -> RedisLine | None:
    """The line of a connection of redis-py that has logged in; None if we cannot have it."""
    connected = getattr(connection, "_sock", None)
    return RedisLine(connected) if hiredis is not None and isinstance(connected, socket.socket) else None


def _trouble_of(error: Exception) -> exceptions.RedisError:
    """The driver's error for one of the socket's, or of the reader's."""
    if isinstance(error, TimeoutError):
        return exceptions.TimeoutError("no reply")
    if isinstance(error, OSError):
        return exceptions.ConnectionError(f"the connection broke: {error}")
    return exceptions.ConnectionError(f"what the server sends is not Redis: {error}")
