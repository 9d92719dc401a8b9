"""
The settings of `onceward serve`: from flags, the environment and one TOML file. The first that has a value wins.

    flag --port 8080        variable ONCEWARD_SERVE_PORT=8080        file: port = 8080
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward.stores import tables_url

PREFIX = "ONCEWARD_SERVE_"
DATABASES = "databases"
"""In a service's folder: where tenants' databases are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, with its default. Durations are in seconds."""

    folder: str = "onceward-data"
    """The folder of the databases and, unless a store is set, of the records and tokens."""
    store: str = ""
    """The URL of the store of records and tokens: sqlite:///... or postgresql://.... Empty: the database that `sql`
    names or, if there is none, a file in the folder."""
    sql: str = ""
    """Where tenants' databases are: the URL of a PostgreSQL database, which holds them as schemas. Empty: SQLite
    files in the folder."""
    without_sql: bool = False
    """Run without SQL: no /v1/db, and no processes that run it. For services that share a store but not a folder."""
    host: str = "127.0.0.1"
    """The address to listen on. By default, only this machine can reach it."""
    port: int = 8600
    """The port to listen on; 0 for any free port."""
    scope_by: str = "tenant"
    """Whether a tenant's tokens share its keys (`tenant`), or each token and its rotations have their own (`token`)."""
    retain: float = 86_400.0
    """How long a result is replayed to retries."""
    in_flight: str = "wait"
    """What a request gets while the first request with its key is still running SQL: the response, after waiting
    for it (`wait`); a refusal (`409`); or a notice that it is pending (`202`)."""
    in_flight_seconds: float = 30.0
    """With in_flight = wait: how long a request waits before it is refused with 409."""
    price: int = 0
    """The price of one SQL statement, in micro-units, for a tenant that pays in advance."""
    charge_failed: str = "on"
    """Whether a statement that ran and failed (a time-out, a constraint) costs its price (`on`), or nothing (`off`)."""
    statement_seconds: float = 5.0
    """How long a statement may run."""
    database_bytes: int = 1 << 30
    """How large a database may be."""
    databases_max: int = 10_000
    """How many databases a tenant may have, unless it has its own quota."""
    cpu_per_second: float = 0.5
    """Processor seconds that each tenant may use per second, on average."""
    cpu_burst: float = 20.0
    """Processor seconds that each tenant can save up for a burst."""
    writers: int = 2
    """Processes that write; a database belongs to one of them."""
    readers: int = 2
    """Processes that read."""
    worker_sandbox: str = "auto"
    """How processes that run SQL are confined: with what the system offers (`auto`); with everything, or the service
    does not start (`required`); or not at all (`off`)."""
    worker_user: str = ""
    """The user that processes with SQL run as, if the service is root: a name, or `same`. Empty: the user `nobody`."""
    ledger_verify: str = "inline"
    """Whether a delta is verified as it is booked (`inline`) or later (`queued`). It counts once it is verified."""
    ledger_late: str = "refuse"
    """What to do with a delta for a closed period: `refuse` it, or book it into the `next` open one."""
    ledger_customers: str = "any"
    """Whose deltas are booked: those of `any` customer, or only of `known` customers (see onceward ledger customer)."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is trusted."""
    flood_burst: int = 60
    """Requests without a valid token that one address may send at once; after that, one a second."""
    relay: str = ""
    """A TOML file with endpoints, to deliver the messages of the outbox in the store's database."""
    metrics: tuple[str, ...] = ()
    """Addresses or networks that may read /metrics, for Prometheus. Empty: there is no such page."""
    receive_seconds: float = 60.0
    """How long a request may take to arrive."""
    send_seconds: float = 60.0
    """How long a client may take to read a response."""
    connections: int = 2_048
    """Connections at once; fewer if the process may not open that many files."""
    connections_per_address: int = 512
    """Connections at once from one address (IPv6: from one /64). Trusted proxies may use all free connections."""
    body_bytes: int = 128 << 20
    """Bytes of request bodies held at once, for all callers together."""
    body_bytes_per_tenant: int = 32 << 20
    """Bytes of request bodies held at once, for one tenant or, for webhooks, from one address."""
    tls_certificate: str = ""
    """A PEM file with the certificate and its chain, to serve HTTPS. It is reread when it changes, and on SIGHUP."""
    tls_key: str = ""
    """A PEM file with the certificate's key, without a password, and not readable by other users."""
    journal: str = "on"
    """Whether requests that may change something are recorded in the journal (`on`), or not (`off`)."""
    journal_retain: float = 604_800.0
    """How long a note of the journal is kept."""
    hooks_threads: int = 4
    """Webhook handlers that run at once; 0 to only receive, and let another process handle events."""
    hooks_path: str = ""
    """A folder from which webhook handlers can be imported, besides installed packages."""
    mcp: bool = False
    """Offer the service's tools to agents at /mcp, with the tokens and permissions of the API."""
    dashboard: str = "on"
    """Whether there are pages for people at /dashboard, with the tokens and permissions of the API (`on`), or not
    (`off`)."""
    dashboard_values: bool = False
    """Show stored results and arguments in the dashboard to admin tokens; by default they are masked."""
    seal_keys: str = ""
    """A file of keys, one per line. Results are then stored sealed, with a key for each tenant that is itself sealed
    with these keys."""
    sealed_only: bool = False
    """Refuse to replay results that are stored unsealed. Turn it on after `onceward store reseal`."""
    shutdown_seconds: float = 20.0
    """How long to wait at shutdown for running requests."""
    first_token: str = "auto"  # noqa: S105 - a place, and no token
    """Where the first token of a new service goes: `stdout`, a file, `none` (none is made), or `auto` (the terminal if
    there is one, otherwise a file)."""
    log_level: str = "info"
    """The least severe messages to log: `debug`, `info`, `warning` or `error`."""
    log_rate_bytes: int = 16_384
    """How many bytes per second of each kind of log line are written; twenty times as much for calls that succeed.
    The log says how much was left out."""


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str], file: str | None = None) -> Settings:
    """The settings from all three sources; `ConfigurationError` names the one that has a wrong value."""
    given = _from_file(file) if file is not None else {}
    for variable in sorted(environ):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            if name not in _TYPES or variable != PREFIX + name.upper():
                known = ", ".join(PREFIX + one.upper() for one in _TYPES)
                raise ConfigurationError(f"{variable} is not a setting. The settings are {known}")
            given[name] = _Given(variable, environ[variable])
    for name, value in flags.items():
        if value is not None:
            given[name] = _Given(f"--{name.replace('_', '-')}", value)
    made = Settings(**{name: _read(name, value, where) for name, (where, value) in given.items()})
    return _checked(made, {name: where for name, (where, _) in given.items()})


class _Given(NamedTuple):
    """A value, and where it was given."""

    where: str
    value: Any


_TYPES = {field.name: str(field.type) for field in fields(Settings)}


def _from_file(file: str) -> dict[str, _Given]:
    import tomllib

    try:
        document = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from None
    unknown = sorted(set(document) - set(_TYPES))
    if unknown:
        raise ConfigurationError(f"{file}: {unknown[0]!r} is not a setting. The settings are {', '.join(_TYPES)}")
    return {name: _Given(f"{file}: {name}", value) for name, value in document.items()}


def _read(name: str, value: Any, where: str) -> Any:
    """A value in the type of its setting."""
    kind = _TYPES[name]
    try:
        if kind == "int":
            if isinstance(value, bool | float):
                raise TypeError
            return int(value)
        if kind == "float":
            if isinstance(value, bool):
                raise TypeError
            return float(value)
        if kind == "bool":
            if isinstance(value, bool):
                return value
            return {"true": True, "false": False}[str(value).lower()]
        if kind.startswith("tuple"):
            if isinstance(value, list) and not all(isinstance(one, str) for one in value):
                raise TypeError
            return tuple(value.replace(",", " ").split()) if isinstance(value, str) else tuple(value)
        if not isinstance(value, str):
            raise TypeError
    except (TypeError, ValueError, KeyError):
        words = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}
        raise ConfigurationError(
            f"{where} must be {words.get(kind, 'a list of texts')}, not {str(value)[:40]!r}"
        ) from None
    return value


_ABOVE_ZERO = (
    "retain",
    "in_flight_seconds",
    "statement_seconds",
    "database_bytes",
    "databases_max",
    "cpu_per_second",
    "cpu_burst",
    "writers",
    "readers",
    "flood_burst",
    "journal_retain",
    "shutdown_seconds",
    "receive_seconds",
    "send_seconds",
    "connections",
    "connections_per_address",
    "log_rate_bytes",
)
BODY_BYTES_LEAST = 10_000_000
"""Below that, the longest body that is taken could not be sent: one caller has at most half of what is free."""
_CHOICES = {
    "scope_by": ("tenant", "token"),
    "charge_failed": ("on", "off"),
    "journal": ("on", "off"),
    "dashboard": ("on", "off"),
    "in_flight": ("wait", "409", "202"),
    "worker_sandbox": ("auto", "required", "off"),
    "ledger_verify": ("inline", "queued"),
    "ledger_late": ("refuse", "next"),
    "ledger_customers": ("any", "known"),
}
_LEVELS = ("debug", "info", "warning", "error")


def _checked(made: Settings, sources: Mapping[str, str]) -> Settings:
    """Refuse a value that cannot work; the error names the flag, variable or file."""

    def refuse(name: str, words: str) -> NoReturn:
        value = str(getattr(made, name))[:40]
        raise ConfigurationError(f"{sources.get(name, name)} must be {words}, not {value!r}")

    for name in _ABOVE_ZERO:
        if not 0 < getattr(made, name) < 10**12:
            refuse(name, "a number above zero")
    for name in ("body_bytes", "body_bytes_per_tenant"):
        if not BODY_BYTES_LEAST <= getattr(made, name) < 10**12:
            refuse(name, f"at least {BODY_BYTES_LEAST} bytes")
    if not 0 <= made.port <= 65_535:
        refuse("port", "a number from 0 to 65535")
    if not 0 <= made.hooks_threads <= 1_000:
        refuse("hooks_threads", "a number from 0 to 1000")
    if made.price < 0:
        refuse("price", "zero or more micro-units")
    for name in ("folder", "host"):
        if not getattr(made, name).strip() or "\0" in getattr(made, name):
            refuse(name, f"the {name} of the service")
    for name, choices in _CHOICES.items():
        if getattr(made, name) not in choices:
            refuse(name, " or ".join(choices))
    if not made.first_token.strip() or "\0" in made.first_token:
        refuse("first_token", "auto, stdout, none or a file")
    if made.relay and not Path(made.relay).is_file():
        refuse("relay", "a TOML file with endpoints")
    for name, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if getattr(made, name) and not Path(getattr(made, name)).is_file():
            refuse(name, "a PEM file")
        if getattr(made, name) and not getattr(made, other):
            raise ConfigurationError(f"{sources.get(name, name)} needs {other}, too: both, or neither")
    if made.hooks_path and not Path(made.hooks_path).is_dir():
        refuse("hooks_path", "a folder")
    if made.seal_keys and not Path(made.seal_keys).is_file():
        refuse("seal_keys", "a file with keys, one on each line")
    if made.sealed_only and not made.seal_keys:
        raise ConfigurationError(f"{sources.get('sealed_only', 'sealed_only')} needs seal_keys, too")
    if made.log_level not in _LEVELS:
        refuse("log_level", f"one of {', '.join(_LEVELS)}")
    if made.worker_user:
        _check_user(made.worker_user, sources.get("worker_user", "worker_user"))
    if made.store:
        _check_store(made.store, sources.get("store", "store"))
    if made.sql and made.without_sql:
        raise ConfigurationError(
            f"{sources.get('without_sql', 'without_sql')} and sql contradict each other: leave one of them out"
        )
    if made.sql:
        _check_sql(made.sql, sources.get("sql", "sql"))
    _check_networks(made.trusted_proxies, sources.get("trusted_proxies", ""))
    _check_networks(made.metrics, sources.get("metrics", ""), "who may read /metrics")
    return made


def _check_store(url: str, where: str) -> None:
    """Check the store's URL. Errors do not repeat it: it may contain a password."""
    try:
        beside = tables_url(url)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    if beside is None:
        raise ConfigurationError(
            f"{where} must be sqlite:///... or postgresql://..., or a store from another package that can hold "
            "tables, because tokens and tenants are kept beside the records"
        )


def _check_sql(url: str, where: str) -> None:
    """Check where databases are to be. Errors do not repeat it: it may contain a password."""
    if urlsplit(url).scheme.lower() not in ("postgresql", "postgres"):
        raise ConfigurationError(f"{where} must be postgresql://..., or left out for SQLite files in the folder")
    for package in ("psycopg", "pgparse"):
        if find_spec(package) is None:
            raise ConfigurationError(f"{where} needs {package}: pip install 'onceward[serve,sql-postgres]'")
    from onceward.stores._postgres_url import parse  # Here: most services keep their databases in files.

    try:
        parse(url)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _check_user(name: str, where: str) -> None:
    from onceward.service.sql.worker_user import find_worker_user  # Here: most services name nobody.

    try:
        find_worker_user(name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _check_networks(texts: tuple[str, ...], where: str, what: str = "a trusted proxy") -> None:
    from onceward.service.access import trusted_networks  # Here, so that `onceward --help` does not wait for it.

    try:
        trusted_networks(texts, what)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def store_url_of(made: Settings) -> str:
    """The store's URL: the one in the settings; where the databases are; or a file in the folder."""
    return made.store or made.sql or f"sqlite:///{Path(made.folder).resolve()}/records.db"


def is_stateless(made: Settings) -> bool:
    """Whether a service keeps nothing in its folder: everything is in PostgreSQL, or in a store of another package."""
    return (
        bool(made.sql or made.without_sql) and urlsplit(tables_url(store_url_of(made)) or "").scheme.lower() != "sqlite"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
