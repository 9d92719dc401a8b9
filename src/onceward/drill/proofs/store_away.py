"""
The store is away in the middle of an operation: after its effect, before its answer is stored.

For PostgreSQL and Redis "away" is a proxy of ours that cuts the line; the server is left alone. A SQLite file has no
line: there another connection holds its write lock for longer than the gate waits, on a file of our own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward.drill.bench import Bench, until
from onceward.drill.database import is_postgres, is_sqlite
from onceward.drill.proof import ONE_EFFECT, PROCESSES, Claim, Numbers, Proof
from onceward.stores._store_kinds import scheme_of
from onceward.testing.proxy import Proxy

_PATIENCE_SECONDS = 60.0


class Line(NamedTuple):
    """What lies between the drill and a store."""

    url: str
    """What to open in place of the store."""
    cut: Callable[[], None]
    restore: Callable[[], None]


def _run(bench: Bench) -> Numbers:
    early, late = bench.key("away-before"), bench.key("away-in-the-middle")
    told = 0
    with _line(bench) as line:
        gate = bench.gate(line.url, guarantee="keyed")
        cuts: list[str] = [late]

        def charge(key: str) -> Callable[[Any], str]:
            def run(operation: Any) -> str:
                bench.book.happen(key, None if operation is None else operation.downstream_key())
                if key in cuts:
                    cuts.remove(key)
                    line.cut()
                    if operation is None:
                        raise StoreUnavailable("the answer is lost")
                return "charged"

            return run

        gate.records.get(early)
        line.cut()
        try:
            bench.send(gate, early, charge(early))
        except OncewardError:
            told += 1
        line.restore()
        before = bench.book.count(early)
        try:
            bench.send(gate, late, charge(late))
        except OncewardError:
            told += 1
        line.restore()
        answers = [_once_back(lambda key=key: bench.send(gate, key, charge(key))) for key in (early, late)]  # type: ignore[misc]
    return {
        "operations": 2,
        "effects": bench.book.count(),
        "toldAway": told,
        "effectsWhileAway": before,
        "answers": answers.count("charged"),
    }


def _once_back(send: Callable[[], tuple[Any, bool]]) -> Any:
    """The answer, asked for until the store is back."""
    found: list[Any] = []

    def sent() -> bool:
        try:
            found.append(send()[0])
        except StoreUnavailable:
            return False
        return True

    return found[0] if until(_PATIENCE_SECONDS, sent) else None


@contextmanager
def _line(bench: Bench) -> Iterator[Line]:
    if is_sqlite(bench.url):
        with _locked_file(bench) as line:
            yield line
        return
    host, port, through = _address(bench.url)
    with Proxy(port, host) as proxy:
        bench.said.append("the drill's own proxy in front of the server; the server itself was not touched")
        yield Line(through(proxy.port), proxy.down, proxy.up)


@contextmanager
def _locked_file(bench: Bench) -> Iterator[Line]:
    """A file of our own, whose write lock another connection takes for as long as it is "away"."""
    url = bench.own_file("away.db")
    bench.said.append("a temporary SQLite file: a file has no connection to cut, so its write lock is held instead")
    bench.gate(url).records.get("made")
    with closing(sqlite3.connect(bench.folder / "away.db", isolation_level=None, check_same_thread=False)) as other:

        def cut() -> None:
            other.execute("BEGIN EXCLUSIVE")

        def restore() -> None:
            if other.in_transaction:
                other.execute("ROLLBACK")

        yield Line(f"{url}?busy=0.1", cut, restore)
        restore()


def _address(url: str) -> tuple[str, int, Callable[[int], str]]:
    """Host and port of a server, and how its URL leads through a port of this machine."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    if is_postgres(url):
        from onceward.stores._postgres_url import parse

        given = parse(url).parameters
        host = str(given.get("hostaddr") or given.get("host") or os.environ.get("PGHOST") or "")
        port = str(given.get("port") or os.environ.get("PGPORT") or 5432)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        # The name stays, for certificates; the address is ours.
        named = {"host": host, "hostaddr": "127.0.0.1"}

        def through(ours: int) -> str:
            words = {**query, **named, "port": str(ours)}
            text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in words.items())
            return f"postgresql://{user}{at}{parts.path}?{text}"

        return host, int(port), through
    host, number = parts.hostname or "127.0.0.1", parts.port or 6379
    return host, number, lambda ours: parts._replace(netloc=f"{user}{at}127.0.0.1:{ours}").geturl()


def cannot_be_cut(url: str) -> str:
    """Why there is no line to a store that could be cut; empty if there is one."""
    if is_sqlite(url):
        return ""
    if is_postgres(url):
        host, _, _ = _address(url)
        if not host or host.startswith("/") or "," in host:
            return "the server is reached by a socket file or by several names, so no proxy can be put in front of it"
        return ""
    if scheme_of(url) == "redis":
        return "" if "cluster=1" not in url else "a Cluster has several servers, and one proxy covers only one of them"
    if scheme_of(url) == "rediss":
        return "the server's certificate does not name the proxy"
    return "the drill cannot cut the connection to such a store"


STORE_AWAY = Proof(
    name="store-away",
    shows="the store is unreachable before and during an operation: callers get an error, and retries have one effect",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("both callers get an error", lambda n: n["toldAway"] == 2),
        Claim("nothing starts while the store is unreachable", lambda n: n["effectsWhileAway"] == 0),
        Claim("once it is back, both callers get their result", lambda n: n["answers"] == 2),
    ),
    needs=frozenset({PROCESSES}),
)
