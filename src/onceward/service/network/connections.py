"""
`ConnectionTable`: the connections of this process: how many there may be, which are idle, whose client reads slowly.

A connection is held on the account of its address (IPv6: of its /64), before anything is read from it. The connections
of a trusted proxy are those of many callers, and only the total bounds them. When there is no room, a connection that
waits for its next request (keep-alive) makes room: one of the same address, or, if there is nothing left at all, the
one that has waited longest.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from onceward._core.errors import RateLimitError
from onceward.service.access.accounts import HELD_WAIT_SECONDS, Account, Accounts, Hold, Resource
from onceward.service.access.addresses import Network, is_trusted_address
from onceward.service.web.problems import Overloaded

log = logging.getLogger("onceward.service")

UNSENT_BYTES_MAX = 64 << 20
"""Of responses that clients do not read. Beyond that, whoever has read for longest is cut off."""


class OpenConnection(Protocol):
    """What the table needs to know of a connection."""

    hold: Hold | None
    responses: int
    """How many were written."""

    @property
    def is_closing(self) -> bool:
        """Whether it is to be closed, once the client has everything."""

    def unsent_bytes(self) -> int:
        """Bytes of responses that the client has not taken."""

    def close_idle(self) -> None:
        """Close it: it waits for a request that may never come."""

    def cut_off(self) -> None:
        """Close it at once, whatever is unsent."""


class ConnectionTable:
    """All connections of one event loop. `counts` says how often something happened, for whoever watches."""

    def __init__(
        self,
        accounts: Accounts,
        trusted: Sequence[Network] = (),
        *,
        send_seconds: float = 60.0,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
    ) -> None:
        self.accounts = accounts
        self.counts: Counter[str] = Counter()
        self._trusted = trusted
        self.send_seconds = send_seconds
        self._unsent_max = unsent_bytes_max
        self._open: dict[OpenConnection, Hold] = {}
        self._idle: OrderedDict[OpenConnection, str] = OrderedDict()
        self._idle_of: dict[str, OrderedDict[OpenConnection, None]] = {}
        self._ended: set[OpenConnection] = set()
        """At the last look: those that have been closed, and only the client's word was missing."""
        self._unread: OrderedDict[OpenConnection, tuple[float, int]] = OrderedDict()
        """Since when a client reads, and how many responses it had then."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, address: str) -> Hold:
        """Make room for a connection; `RateLimitError` for an address that has too many, `Overloaded` if all do."""
        trusted = is_trusted_address(address, self._trusted)
        account = self.accounts.of_proxy(address) if trusted else self.accounts.of_address(address)
        try:
            return account.hold(Resource.CONNECTIONS)
        except RateLimitError as error:
            refusal = error
        if self._make_room(account):
            try:
                return account.hold(Resource.CONNECTIONS)
            except RateLimitError as error:
                refusal = error
        if self.accounts.free(Resource.CONNECTIONS):
            self.counts["refused_address"] += 1
            log.warning("connections are refused: %s has reached its limit", account.owner)
            raise refusal
        self.counts["refused_total"] += 1
        log.warning("connections are refused: %d are open, which is the limit", len(self._open))
        raise Overloaded(
            "the service has reached its limit of connections; nothing was run. Try again soon",
            retry_after_seconds=HELD_WAIT_SECONDS,
        )

    def opened(self, connection: OpenConnection, hold: Hold) -> None:
        """A connection is there, for which there was room."""
        connection.hold = hold
        self._open[connection] = hold
        self.counts["opened"] += 1

    def lost(self, connection: OpenConnection) -> None:
        """It has ended."""
        hold = self._open.pop(connection, None)
        self.busy(connection)
        self._unread.pop(connection, None)
        if hold is not None:
            hold.give_back()

    def idle(self, connection: OpenConnection) -> None:
        """It has had its response, and waits for the next request."""
        hold = self._open.get(connection)
        if hold is not None:
            self._idle[connection] = hold.owner
            self._idle_of.setdefault(hold.owner, OrderedDict())[connection] = None

    def busy(self, connection: OpenConnection) -> None:
        """A request comes in."""
        owner = self._idle.pop(connection, None)
        if owner is not None:
            self._idle_of[owner].pop(connection, None)
            if not self._idle_of[owner]:
                del self._idle_of[owner]

    def _make_room(self, account: Account) -> bool:
        own = self._idle_of.get(account.owner)
        if own is None and (self.accounts.free(Resource.CONNECTIONS) or not self._idle):
            return False
        oldest = next(iter(own or self._idle))
        self.busy(oldest)
        if oldest.hold is not None:
            oldest.hold.give_back()  # Now: it is closed when the event loop comes to it.
        oldest.close_idle()
        self.counts["idle_closed"] += 1
        return True

    def check_readers(self, clock: Callable[[], float]) -> None:
        """
        Cut off clients that do not take their responses: for too long, or while too much waits for them.

        A client that has everything, and does not say that TLS may end, is not waited for.
        """
        now, total, ended = clock(), 0, set()
        for connection in list(self._open):
            unsent = connection.unsent_bytes()
            if connection.is_closing and not unsent:
                ended.add(connection)
                if connection in self._ended:
                    connection.cut_off()
            since, responses = self._unread.get(connection, (now, connection.responses))
            if not unsent or responses != connection.responses:
                self._unread.pop(connection, None)
                since = now
            if not unsent:
                continue
            if now - since >= self.send_seconds:
                self._cut_off(connection, f"for {self.send_seconds:g} s")
                continue
            self._unread.setdefault(connection, (since, connection.responses))
            total += unsent
        self._ended = ended
        while total > self._unsent_max and self._unread:
            longest = next(iter(self._unread))
            total -= longest.unsent_bytes()
            self._cut_off(longest, "and too much was waiting")

    def _cut_off(self, connection: OpenConnection, why: str) -> None:
        self._unread.pop(connection, None)
        self.counts["readers_cut_off"] += 1
        log.warning("a client was disconnected: it did not read its response %s", why)
        connection.cut_off()
