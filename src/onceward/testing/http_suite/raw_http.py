"""
An HTTP client on bare sockets: it can send malformed requests, cut connections and leave responses unread.

One request per connection. Every read is limited, in bytes and in time.
"""

from __future__ import annotations

import http.client
import io
import json
import select
import socket
import ssl
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError, OncewardError
from onceward.runtime.environment import REAL, Environment

RESPONSE_BYTES_MAX = 16 * 1024 * 1024
"""Of one response's body: far more than is worth replaying."""

CODE_CHARACTERS_MAX = 60
"""Of a stranger's code in a sentence of ours."""

_PORTS = {"http": 80, "https": 443}


class TargetUnreachable(OncewardError):
    """The target does not take connections, or has no response for a plain request."""

    code = "target_unreachable"


class NoTargetResponse(Exception):
    """A request was sent, and no whole response came."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server listens."""

    scheme: str
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """As the `Host` header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_header}"


def read_url(url: str) -> tuple[Origin, str]:
    """An address as a server and a path with its query."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"that is not an address: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigurationError("an address looks like http://host:port/path (or https://)")
    if not parts.hostname.isascii():
        raise ConfigurationError("write the host's name in ASCII (xn--...)")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            "credentials do not belong in an address; give --header 'Authorization: Bearer $TOKEN'"
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ConfigurationError("the path has characters that must be percent-escaped")
    return Origin(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port), path


@dataclass(frozen=True)
class TargetResponse:
    """What came back, whole."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    at: float
    """When its last byte came, on the environment's clock."""

    @property
    def succeeded(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        """The value of a header; several are joined, as HTTP allows."""
        found = [value for known, value in self.headers if known.lower() == name.lower()]
        return ", ".join(found) if found else None

    @property
    def media_type(self) -> str:
        """The content type without its parameters."""
        return (self.header("Content-Type") or "").partition(";")[0].strip().lower()

    @cached_property
    def json(self) -> Any:
        """The body as JSON, or None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def code(self) -> str | None:
        """The machine's own word: `{"code": ...}` or `{"error": {"code": ...}}`."""
        for place in (self.json, self.json.get("error") if isinstance(self.json, dict) else None):
            if isinstance(place, dict) and isinstance(place.get("code"), str):
                return cast(str, place["code"])
        return None

    def __str__(self) -> str:
        return f"{self.status} {self.code[:CODE_CHARACTERS_MAX]}" if self.code else str(self.status)


class TargetConnection:
    """One connection for one request; the response can be read, begun or left."""

    def __init__(self, origin: Origin, seconds: float, environment: Environment = REAL) -> None:
        self._environment = environment
        self._seconds = seconds
        self._ends = environment.monotonic() + seconds
        try:
            self._socket = socket.create_connection((origin.host, origin.port), timeout=seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if origin.scheme == "https":
                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=origin.host)
        except OSError as error:
            raise TargetUnreachable(f"{origin} cannot be reached: {error.strerror or error}") from error
        except UnicodeError:
            raise TargetUnreachable(f"{origin} cannot be reached: that is not a host name") from None

    def send(self, request: bytes) -> None:
        """Send a whole request. A server that stops listening half-way may have answered already."""
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(request)
        except (TimeoutError, OSError):
            return

    def read_response(self, method: str) -> TargetResponse:
        """Read the whole response, and close."""
        try:
            # A `socket` here is only asked for a file to read from.
            response = http.client.HTTPResponse(cast(socket.socket, _Readable(self)), method=method)
            response.begin()
            body = response.read(RESPONSE_BYTES_MAX + 1)
        except TimeoutError:
            raise NoTargetResponse(f"no response within {self._seconds:g} s") from None
        except http.client.IncompleteRead:
            raise NoTargetResponse("the response ended before it was whole") from None
        except (http.client.HTTPException, OSError) as error:
            raise NoTargetResponse(f"the connection ended without a response ({type(error).__name__})") from None
        finally:
            self.close()
        if len(body) > RESPONSE_BYTES_MAX:
            raise NoTargetResponse(f"the response has more than {RESPONSE_BYTES_MAX:,} bytes")
        if response.length:
            raise NoTargetResponse("the response ended before it was whole")
        return TargetResponse(response.status, tuple(response.getheaders()), body, self._environment.monotonic())

    def wait_for_first_byte(self) -> None:
        """Wait for the first byte of the response: from then on the server has one."""
        try:
            self._socket.settimeout(self._left())
            if self._socket.recv(1):
                return
        except OSError:
            pass
        raise NoTargetResponse("the connection ended without a response")

    def is_silent(self) -> bool:
        """Whether nothing has come yet."""
        return not select.select([self._socket], [], [], 0)[0]

    def reset(self) -> None:
        """Cut the connection, as a client does that crashed: nothing more is read, nor said."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def receive_into(self, buffer: Any) -> int:
        """Read what there is, up to the moment at which the whole exchange must have ended."""
        self._socket.settimeout(self._left())
        return self._socket.recv_into(buffer)

    def _left(self) -> float:
        left = self._ends - self._environment.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Readable(io.RawIOBase):
    """A connection as a file: a time limit for all reads together, which a socket does not know."""

    def __init__(self, connection: TargetConnection) -> None:
        self._connection = connection

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._connection.receive_into(buffer)
