"""
A store to judge, and what the suite needs to know about it.

    from onceward.testing.store_suite import Candidate

    CANDIDATE = Candidate(kind=KIND, url="acme:///{tmp}/store.db")

A kind (`onceward.stores.StoreKind`) says how the store is opened; opened again with the same URL, in this process or in
another one, it must be the same store. So it gets a second handle, and other processes, without being asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from onceward.stores import StoreKind
from onceward.testing.proxy import Proxy


class NetworkLine(Protocol):
    """What lies between a test and its store, in the suite's hands."""

    @property
    def url(self) -> str:
        """What to open in place of the store's own URL, so that everything goes over this line."""

    def cut(self) -> None:
        """From now on the store cannot be reached; calls that are under way get no answer."""

    def restore(self) -> None:
        """The store can be reached again."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A store to judge: its kind, and what to open."""

    kind: StoreKind
    """How it is opened. Its functions must be importable: other processes are told their names."""
    url: str
    """What is opened: `{tmp}` becomes a new folder for each test, and `{fresh}` a new name."""
    line: Callable[[str], AbstractContextManager[NetworkLine]] | None = None
    """
    From the URL of a test's store to a line that can be cut. Not needed for a URL with host and port, which gets a
    proxy (`tcp_line`), nor for a store on this machine (`StoreKind.local`), where nothing lies between.
    """
    no_line: str = ""
    """Why the line cannot be cut. The tests of an unreachable server are then skipped, for this reason."""
    connect: Callable[[str], Any] | None = None
    """
    For a store that joins callers' transactions in a way of its own: opens such a connection (one of DB-API 2) to the
    database of the store that a URL names.
    """


class TcpLine:
    """A proxy in front of a server."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        self.url = url
        self._proxy = proxy

    def cut(self) -> None:
        """See `NetworkLine.cut`."""
        self._proxy.down()

    def restore(self) -> None:
        """See `NetworkLine.restore`."""
        self._proxy.up()


@contextmanager
def tcp_line(url: str, *, host: str | None = None, port: int | None = None) -> Iterator[TcpLine]:
    """A proxy in front of the host and port of a URL (or of those given), and the URL that leads through it."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    port = port or parts.port
    if port is None:
        raise ValueError("the URL has no port: give port=")
    with Proxy(port, host or parts.hostname or "127.0.0.1") as proxy:
        yield TcpLine(parts._replace(netloc=f"{user}{at}127.0.0.1:{proxy.port}").geturl(), proxy)
