"""
The URL of a Redis store: the server, its options, and what its errors mean.

No exception of the driver leaves the store, and no password is ever shown: neither in an error nor in a `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis.exceptions as exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.retry import Retry

from onceward._core.errors import (
    ConfigurationError,
    OncewardError,
    RecordRefused,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
)
from onceward.stores._redis_packer import CommandPacker

TIMEOUT_SECONDS = 5.0
"""How long a call waits for the server: far above any script of ours, below HTTP timeouts."""
TIMEOUT_SECONDS_MAX = 3600.0

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
_DRIVERS_OWN = frozenset(("db", "client_name", "socket_keepalive"))
"""Options that are handed to redis-py, besides those that begin with `ssl_`."""
_WORDS_SHOWN = 200

_parsed: Callable[[str], dict[str, Any]] = parse_url


class DriverConnection(Protocol):
    """What we use of a connection of redis-py."""

    def connect(self) -> None:
        """Connect and log in."""

    def disconnect(self) -> None:
        """Hang up."""

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
        """Send them."""

    def read_response(self, disable_decoding: bool = False) -> Any:
        """Read the next reply; raises it if it is an error."""


class RedisOptions(NamedTuple):
    """What can be chosen about a Redis store."""

    durable: bool = True
    prefix: str = "onceward"
    timeout_seconds: float = TIMEOUT_SECONDS
    cluster: bool = False


class RedisAddress(NamedTuple):
    """A server and how to talk to it."""

    driver: dict[str, Any]
    """For redis-py."""
    options: RedisOptions

    @property
    def name(self) -> str:
        """Host and port: what may be shown."""
        return f"{self.driver.get('host', 'localhost')}:{self.driver.get('port', 6379)}"

    def at(self, host: str, port: int) -> RedisAddress:
        """Another server of the same Cluster."""
        return self._replace(driver={**self.driver, "host": host, "port": port})

    def connection(self) -> DriverConnection:
        """A connection, not connected yet. It tries once: sending again is for the store to decide."""
        kind = self.driver.get("connection_class", Connection)
        seconds = self.options.timeout_seconds
        try:
            made: DriverConnection = kind(
                **{name: value for name, value in self.driver.items() if name != "connection_class"},
                protocol=2,
                command_packer=CommandPacker(),
                retry=Retry(NoBackoff(), 0),
                socket_timeout=seconds,
                socket_connect_timeout=seconds,
            )
        except (TypeError, ValueError, exceptions.RedisError) as error:
            raise ConfigurationError(f"redis-py does not take these options: {redact(str(error), self)}") from None
        return made


class Redirection(NamedTuple):
    """A node of a Cluster says who has the slot: from now on, or for this once."""

    for_good: bool
    host: str
    """Empty: the same host."""
    port: int


def parse(url: str) -> RedisAddress:
    """The server and the options in a URL such as `redis://localhost:6379/0?prefix=shop`."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("redis", "rediss") or "://" not in url:
        raise ConfigurationError("not the URL of a Redis server; write redis://localhost:6379/0")
    options, rest = _options(parts.query)
    cleaned = urlunsplit((parts.scheme.lower(), parts.netloc, parts.path, urlencode(rest), ""))
    if not re.fullmatch(r"/?\d*", parts.path):
        raise ConfigurationError(
            "the path of a Redis URL is the number of a database, such as redis://localhost:6379/0"
        )
    try:
        driver = _parsed(cleaned)
    except ValueError:
        raise ConfigurationError("this is not the URL of a Redis server; write redis://localhost:6379/0") from None
    if options.cluster and driver.pop("db", 0):
        raise ConfigurationError("a Redis Cluster has one database, number 0: leave the number out")
    return RedisAddress(driver, options)


def _options(query: str) -> tuple[RedisOptions, list[tuple[str, str]]]:
    """Ours, and those that are for redis-py."""
    options, rest = RedisOptions(), []
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name, value:
            case "durability", "durable" | "volatile":
                options = options._replace(durable=value == "durable")
            case "prefix", _ if _PREFIX.fullmatch(value):
                options = options._replace(prefix=value)
            case "timeout", _:
                options = options._replace(timeout_seconds=_seconds(value))
            case "cluster", "0" | "1":
                options = options._replace(cluster=value == "1")
            case _ if name in _DRIVERS_OWN or name.startswith("ssl_"):
                rest.append((name, value))
            case _:
                raise ConfigurationError(
                    f"unknown option, or a value that is not allowed: {name[:40]}. The options are "
                    "durability=durable|volatile, "
                    "prefix=onceward, timeout=5, cluster=0|1, and of redis-py's own db, client_name and ssl_..."
                )
    return options, rest


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= TIMEOUT_SECONDS_MAX:
        raise ConfigurationError(f"timeout= is a number of seconds up to {TIMEOUT_SECONDS_MAX:.0f}, not {value[:40]!r}")
    return seconds


def redact(text: str, address: RedisAddress) -> str:
    """A message of the server or the driver without the password, on one line, cut short."""
    password = address.driver.get("password")
    text = " ".join(text.split())
    return (text.replace(password, "***") if password else text)[:_WORDS_SHOWN]


def translate_error(error: Exception, address: RedisAddress) -> OncewardError:
    """The error to raise for one of the driver's, or for an error reply."""
    if isinstance(error, OncewardError):
        return error
    # Before Redis 7, what a command inside a script says is wrapped in words about the script: look for its own.
    message = str(error)
    words = f"the Redis server {address.name}: {redact(message, address)}"
    if isinstance(error, exceptions.OutOfMemoryError) or "OOM command not allowed" in message:
        return StoreFull(f"{words}. Nothing was started; raise maxmemory or purge, then retry with the same key")
    if redirection(error) is not None:
        return ConfigurationError(f"{address.name} is a node of a Redis Cluster: add cluster=1 to the store's URL")
    if "WRONGTYPE" in message:
        return StoreCorrupt(f"{words}. Something else writes under our prefix; choose another with prefix=")
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
        return StoreUnavailable(f"{words}. Check the user and the password in the URL, and what the user may do")
    if "invalid bulk length" in message:
        return RecordRefused(f"{words}. It takes no value of this size; keep results small, or raise its limit")
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable(f"{words}. It is loading its data; retry when it is done", retry_after_seconds=1.0)
    if isinstance(error, exceptions.ReadOnlyError) or "READONLY" in message:
        return StoreUnavailable(f"{words}. It is a replica: connect to the primary", retry_after_seconds=1.0)
    if isinstance(error, exceptions.TimeoutError):
        return StoreUnavailable(
            f"{words}. It was silent for timeout={address.options.timeout_seconds:g} s: it may be frozen. The "
            "connection was closed, and what was sent may have landed: retry with the same key",
            retry_after_seconds=1.0,
        )
    return StoreUnavailable(f"{words}. Retry with the same key when it is back", retry_after_seconds=1.0)


def may_send_again(error: Exception) -> bool:
    """Whether the connection broke, so that a retry is worth it. A timeout or a refusal is not retried."""
    answered = (exceptions.TimeoutError, exceptions.AuthenticationError, exceptions.BusyLoadingError)
    return isinstance(error, exceptions.ConnectionError) and not isinstance(error, answered)


def redirection(reply: Any) -> Redirection | None:
    """Where a reply redirects us, if it does. Some versions of the driver have a class for it, others only the text."""
    if not isinstance(reply, exceptions.ResponseError):
        return None
    words = str(reply).split()
    if isinstance(reply, exceptions.AskError):
        words = ["MOVED" if isinstance(reply, exceptions.MovedError) else "ASK", *words]
    if len(words) != 3 or words[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = words[2].rpartition(":")
    return Redirection(words[0] == "MOVED", host, int(port))
