"""
The URL of a PostgreSQL store: server, database, our options, and what a connection is opened with.

Options that begin with `onceward_` are ours and are taken out before libpq sees the URL; everything else is libpq's.
What we add for libpq gives way to what the URL says.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from onceward._core.errors import ConfigurationError

SCHEMES = ("postgresql", "postgres")

POOL_SIZE = 8
"""Connections of one process. Concurrent writes share one of them; the others are for those who wait for a lock."""
PARTITIONS_MAX = 256
"""A statement about every record looks into all of them."""
POOL_SIZE_MAX = 1_000
LOOKS_MAX = 2
"""Reads of looks under way at once: while one is on its way, those who were answered by the other are served."""
LOCK_SECONDS = 5.0
"""How long a call waits for a row that another transaction holds, or for a free connection: below HTTP timeouts."""
ANSWER_SECONDS = 10.0
"""
How long a server may be silent, beyond the wait for a lock, before its connection is given up: far above any statement
of ours, and so short that with the wait for a lock (5 s) and a new connection (5 s) a call ends below HTTP timeouts.
"""
ANSWER_SECONDS_MIN = 0.5
SECONDS_MAX = 3_600.0

_LIBPQ = {
    "connect_timeout": "5",
    # A primary that became a standby, or a host of several that is one, must not be written to.
    "target_session_attrs": "read-write",
    # A machine that is gone without a word is noticed after seconds, and not after a quarter of an hour. One that is
    # there and silent is not noticed by TCP: for that, see ANSWER_SECONDS.
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "application_name": "onceward",
}
_STARTUP = (
    # Puts are right at every isolation level, and need no second try at this one.
    r"-c default_transaction_isolation=read\ committed "
    # Our statements find rows by key, whatever the key: a plan made for any value serves, and never reads the table.
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off "
    # Whoever sees this has our session for itself: no pooler stands between, and statements may be prepared.
    "-c onceward.direct=on"
)


class PostgresTarget(NamedTuple):
    """Where to connect, and how."""

    parameters: dict[str, Any]
    """For libpq. Holds the password, so it is never shown."""
    name: str
    """What errors call it: host, port and database, without user or password."""
    pool_size: int = POOL_SIZE
    lock_seconds: float = LOCK_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    may_relax: bool = False
    direct: bool = True
    partitions: int = 0
    """Into how many the table of records is divided when it is made; 0: it is one."""
    batches: int = 1
    """How many batches may be under way at once, each on a connection of its own."""

    @property
    def looks(self) -> int:
        """Reads of looks on an event loop that may be under way: each has a connection; one is left for who waits."""
        return max(0, min(LOOKS_MAX, self.pool_size - self.batches - 1))

    @property
    def lock_timeout(self) -> str:
        """For PostgreSQL, in its unit; 0 would mean for ever."""
        return _milliseconds(self.lock_seconds)


@cache
def _milliseconds(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def parse(url: str) -> PostgresTarget:
    """What a URL such as `postgresql://user@host/database?onceward_pool=4` says."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in SCHEMES or "://" not in url:
        raise ConfigurationError("not the URL of a PostgreSQL database; write postgresql://user@host/database")
    target = PostgresTarget({}, "")
    theirs = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name.startswith("onceward_"):
            target = _with_option(target, name, value)
        else:
            theirs.append(f"{quote(name, safe='')}={quote(value, safe='')}")
    if parts.fragment:
        raise ConfigurationError("a '#' in a PostgreSQL URL is written %23")
    plain = f"postgresql://{parts.netloc}{parts.path}" + (f"?{'&'.join(theirs)}" if theirs else "")
    try:
        given = conninfo_to_dict(plain)
    except ProgrammingError:
        # Its message may quote the URL, and with it the password.
        raise ConfigurationError(
            "libpq cannot read this store's URL; write postgresql://user:password@host:5432/database, with special "
            "characters in the password percent-encoded"
        ) from None
    # Our words are sent as UTF-8, whatever the database is kept in.
    parameters: dict[str, Any] = {**_LIBPQ, **given, "client_encoding": "UTF8"}
    if target.direct:
        parameters["options"] = f"{given.get('options') or ''} {_STARTUP}".strip()
    return target._replace(parameters=parameters, name=_name_of(given))


def _with_option(target: PostgresTarget, name: str, value: str) -> PostgresTarget:
    match name.removeprefix("onceward_"), value:
        case "pool", _ if value.isascii() and value.isdigit() and 2 <= int(value) <= POOL_SIZE_MAX:
            return target._replace(pool_size=int(value))
        case "lock_timeout", _ if (seconds := _seconds(value)) is not None:
            return target._replace(lock_seconds=seconds)
        case "answer_timeout", _ if (seconds := _seconds(value)) is not None and seconds >= ANSWER_SECONDS_MIN:
            return target._replace(answer_seconds=seconds)
        case "settle", "durable" | "relaxed":
            return target._replace(may_relax=value == "relaxed")
        case "bouncer", "0" | "1":
            return target._replace(direct=value == "0")
        case "partitions", _ if value.isascii() and value.isdigit() and 2 <= int(value) <= PARTITIONS_MAX:
            return target._replace(partitions=int(value))
        case "batches", "1" | "2":
            return target._replace(batches=int(value))
        case _:
            raise ConfigurationError(
                f"unknown option, or a value that is not allowed: {name[:40]}. The options are "
                f"onceward_pool=2..{POOL_SIZE_MAX}, "
                f"onceward_lock_timeout=SECONDS and onceward_answer_timeout=SECONDS (at least {ANSWER_SECONDS_MIN}; "
                f"both at most {SECONDS_MAX:.0f}), onceward_settle=durable|relaxed, onceward_bouncer=0|1, "
                f"onceward_batches=1|2 and onceward_partitions=2..{PARTITIONS_MAX}"
            )


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 < seconds <= SECONDS_MAX else None


def _name_of(given: dict[str, Any]) -> str:
    """Where this leads, from the URL or from libpq's own variables; of user and password not a word."""
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = given.get("port") or os.environ.get("PGPORT")
    database = given.get("dbname") or os.environ.get("PGDATABASE") or "named like the user"
    return f"PostgreSQL at {host}{f':{port}' if port else ''}, database {database}"
