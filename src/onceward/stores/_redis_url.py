"""
The URL of a Redis store: the server, its options, and what its errors mean.

No exception of the driver leaves the store, and no password is ever shown: neither in an error nor in a `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

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
REPLICAS_MAX = 16

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
    replicas: int = 0
    """How many replicas a put has to be on before it is acknowledged. A failover may promote any replica."""
    sentinel_username: str | None = None
    sentinel_password: str | None = None


class RedisAddress(NamedTuple):
    """A server and how to talk to it."""

    driver: dict[str, Any]
    """For redis-py."""
    options: RedisOptions
    seeds: tuple[tuple[str, int], ...] = ()
    """Hosts and ports in the URL: of one server, of nodes of a Cluster, or of Sentinels."""
    service: str = ""
    """What the Sentinels call the primary; empty: there are none."""

    @property
    def name(self) -> str:
        """Host and port: what may be shown."""
        if self.service and "host" not in self.driver:
            return f"{self.service} of the Sentinels {', '.join(f'{host}:{port}' for host, port in self.seeds)}"
        return f"{self.driver.get('host', 'localhost')}:{self.driver.get('port', 6379)}"

    def at(self, host: str, port: int) -> RedisAddress:
        """Another server of the same Cluster, or the one that the Sentinels name."""
        return self._replace(driver={**self.driver, "host": host, "port": port})

    def sentinel(self, host: str, port: int) -> RedisAddress:
        """One of the Sentinels: with its own user and password, and the rest as for the server."""
        drop = ("username", "password", "db", "client_name")
        driver = {name: value for name, value in self.driver.items() if name not in drop}
        if self.options.sentinel_password is not None:
            driver["password"] = self.options.sentinel_password
        if self.options.sentinel_username is not None:
            driver["username"] = self.options.sentinel_username
        return self._replace(driver={**driver, "host": host, "port": port})

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


class NotReplicated(exceptions.ResponseError):
    """A put was made, and is not on as many replicas as the URL asks for."""

    def __init__(self, on: int, asked: int) -> None:
        super().__init__(f"a put is on {on} of the {asked} replicas that it has to be on")


class Redirection(NamedTuple):
    """A node of a Cluster says who has the slot: from now on, or for this once."""

    for_good: bool
    host: str
    """Empty: the same host."""
    port: int


def parse(url: str) -> RedisAddress:
    """
    The servers and the options in a URL: `redis://localhost:6379/0?prefix=shop`, `redis+cluster://a:7000,b:7000`,
    `redis+sentinel://a:26379,b:26379/service/0`; with `rediss` over TLS.
    """
    parts = urlsplit(url)
    scheme, _, how = parts.scheme.lower().partition("+")
    if scheme not in ("redis", "rediss") or how not in ("", "cluster", "sentinel") or "://" not in url:
        raise ConfigurationError("not the URL of a Redis server; write redis://localhost:6379/0")
    options, rest = _options(parts.query)
    if how == "cluster":
        options = options._replace(cluster=True)
    sentinels = how == "sentinel"
    service, path = _service(parts.path) if sentinels else ("", parts.path)
    if not re.fullmatch(r"/?\d*", path):
        raise ConfigurationError(
            "the path of a Redis URL is the number of a database, such as redis://localhost:6379/0"
        )
    user, _, hosts = parts.netloc.rpartition("@")
    seeds = _seeds(hosts, 26379 if sentinels else 6379)
    if len(seeds) > 1 and not options.cluster and not sentinels:
        raise ConfigurationError(
            "several servers are nodes of a Cluster (redis+cluster://a,b) or Sentinels (redis+sentinel://a,b/service)"
        )
    if sentinels and options.cluster:
        raise ConfigurationError("a Redis Cluster needs no Sentinels: its nodes fail over by themselves")
    host, port = seeds[0]
    first = f"{f'{user}@' if user else ''}{f'[{host}]' if ':' in host else host}:{port}"
    try:
        driver = _parsed(urlunsplit((scheme, first, path, urlencode(rest), "")))
    except ValueError:
        raise ConfigurationError("this is not the URL of a Redis server; write redis://localhost:6379/0") from None
    if options.cluster and driver.pop("db", 0):
        raise ConfigurationError("a Redis Cluster has one database, number 0: leave the number out")
    if sentinels:
        driver = {name: value for name, value in driver.items() if name not in ("host", "port")}
    return RedisAddress(driver, options, seeds, service)


def _service(path: str) -> tuple[str, str]:
    """The name of the service in a URL of Sentinels, and the rest of its path: the number of the database."""
    name, _, database = path.strip("/").partition("/")
    name = unquote(name)
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise ConfigurationError(
            "a URL of Sentinels names the service that they watch: redis+sentinel://a:26379,b:26379/mymaster/0"
        )
    return name, f"/{database}"


def _seeds(hosts: str, port: int) -> tuple[tuple[str, int], ...]:
    """The hosts of a URL, with the port of those that name none."""
    found = []
    for one in hosts.split(","):
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/@]*))(?::(\d{1,5}))?", one)
        if match is None or (not one and "," in hosts) or not 0 < int(match[3] or port) < 65_536:
            raise ConfigurationError(
                "a Redis URL names hosts and ports: redis://localhost:6379/0, or several with commas"
            )
        found.append((match[1] or match[2] or "localhost", int(match[3] or port)))
    return tuple(found)


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
            case "replicas", _ if value.isdigit() and int(value) <= REPLICAS_MAX:
                options = options._replace(replicas=int(value))
            case "sentinel_username", _:
                options = options._replace(sentinel_username=value)
            case "sentinel_password", _:
                options = options._replace(sentinel_password=value)
            case _ if name in _DRIVERS_OWN or name.startswith("ssl_"):
                rest.append((name, value))
            case _:
                raise ConfigurationError(
                    f"unknown option, or a value that is not allowed: {name[:40]}. The options are "
                    "durability=durable|volatile, "
                    f"prefix=onceward, timeout=5, cluster=0|1, replicas=0..{REPLICAS_MAX}, "
                    "sentinel_username, sentinel_password, and of redis-py's own db, client_name and ssl_..."
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
    text = " ".join(text.split())
    for password in (address.driver.get("password"), address.options.sentinel_password):
        if password:
            text = text.replace(password, "***")
    return text[:_WORDS_SHOWN]


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
    if isinstance(error, NotReplicated):
        return StoreUnavailable(
            f"{words}. It may be lost in a failover: retry with the same key when replicas= replicas are connected",
            retry_after_seconds=1.0,
        )
    if "ONCEWARD" in message:
        return StoreUnavailable(f"{words}. Its keys were deleted, or it is being migrated", retry_after_seconds=1.0)
    if "WRONGTYPE" in message:
        return StoreCorrupt(f"{words}. Something else writes keys with this prefix; choose another with prefix=")
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
        return StoreUnavailable(f"{words}. Check the user and the password in the URL, and what the user may do")
    if "invalid bulk length" in message:
        return RecordRefused(
            f"{words}. It does not accept a value of this size; keep results small, or raise its limit"
        )
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


def has_left(error: Exception, version: int) -> bool:
    """Whether an error reply says that rows are not kept here in the form of this schema version."""
    return "ONCEWARD" in str(error) or (version == 1 and "WRONGTYPE" in str(error))


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
