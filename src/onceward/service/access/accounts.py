"""
What each tenant uses of this process, in one account: asked before the work, settled after it.

    account = accounts.of_tenant("acme")       # for who has no token yet: accounts.of_address("192.0.2.7")
    with account.hold(Resource.BODY_BYTES, 5_000_000):     # RateLimitError, and nothing was begun
        ...
    reserved = account.reserve_cpu(5.0)        # None: not now, and `cpu_wait` says for how long
    reserved.settle(0.013)                     # whatever the outcome: what was used is gone, the rest is back

*Held* things are given back when the work is over: connections, bytes of bodies, places in a line, running statements,
open databases. There is a total of each, and an account may hold at most as much as is still free of it (or its own
limit, if that is less). So one greedy tenant gets half, eight get a ninth each, and a ninth stays free for whoever is
modest, however many there are and without a table of shares.

*Spent* things come back with time: processor seconds. A bucket fills at a rate up to a burst; it can be overdrawn by
work that took longer than was reserved, and then the tenant waits until it is full enough again.

Money, and what is stored, are in the database (`balances`, `quotas`): they outlive this process.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Self

from onceward._core.errors import ConfigurationError, RateLimitError
from onceward.service.access.addresses import flood_address

ACCOUNTS_MAX = 10_000
"""Accounts that are remembered though nothing is held: about 5 MB. One with a debt is never forgotten."""
LOOKS = 8
"""Accounts that are looked at for one to forget, each time that a new one is made."""
HELD_WAIT_SECONDS = 1.0
"""What a refused caller is advised to wait: until something of its own has ended, which is mostly sooner."""


class Resource(StrEnum):
    """What an account can hold."""

    CONNECTIONS = "connections"
    BODY_BYTES = "body_bytes"
    WAITING = "waiting"
    RUNNING = "running"
    DATABASES = "databases"


_WORDS = {
    Resource.CONNECTIONS: "connections",
    Resource.BODY_BYTES: "bytes of request bodies on their way",
    Resource.WAITING: "requests waiting",
    Resource.RUNNING: "statements running",
    Resource.DATABASES: "databases open",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one account may hold at most, though more be free."""

    connections: int = 512
    body_bytes: int = 32 << 20
    waiting: int = 1_000
    running: int = 4
    databases: int = 16
    cpu_per_second: float = 0.5
    """Processor seconds that come back in a second: half a core, for as long as it likes."""
    cpu_burst: float = 20.0
    """Processor seconds that can be saved up: four statements at once that take as long as one may."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
                raise ConfigurationError(f"{field.name} of an account must be a number above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What all accounts together may hold."""

    connections: int = 2_048
    body_bytes: int = 128 << 20
    waiting: int = 8_192
    running: int = 64
    databases: int = 64


class AccountUsage(NamedTuple):
    """What an account has used, holds and has left."""

    held: dict[Resource, int]
    limits: dict[Resource, int]
    """What it may hold at most, now."""
    cpu_seconds: float
    """Used since this process began to count."""
    cpu_seconds_left: float
    """Of the burst. Below zero: a debt."""
    refused: int
    """How often it was told to wait."""


class Hold:
    """Something held; given back once, however often that is said. A context manager."""

    __slots__ = ("_account", "amount", "resource")

    def __init__(self, account: Account, resource: Resource, amount: int) -> None:
        self._account = account
        self.resource = resource
        self.amount = amount

    @property
    def owner(self) -> str:
        """Whose account it is on."""
        return self._account.owner

    def give_back(self) -> None:
        """The work is over."""
        amount, self.amount = self.amount, 0
        if amount:
            self._account.return_held(self.resource, amount)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back()


class CpuReservation:
    """Processor seconds that are set aside for one piece of work."""

    __slots__ = ("_account", "_seconds")

    def __init__(self, account: Account, seconds: float) -> None:
        self._account = account
        self._seconds: float | None = seconds

    def settle(self, used: float) -> None:
        """It took so long, whatever came of it. Again does nothing."""
        reserved, self._seconds = self._seconds, None
        if reserved is not None:
            self._account.spend_cpu(used, reserved=reserved)


class Account:
    """The account of one tenant, or of one address."""

    def __init__(self, owner: str, allowance: Allowance, pool: Accounts, *, is_shared: bool = False) -> None:
        self.owner = owner
        self.allowance = allowance
        self._is_shared = is_shared
        self._pool = pool
        self._held = dict.fromkeys(Resource, 0)
        self._most = {one: int(getattr(allowance, one)) for one in Resource}
        self._clock, self._burst, self._per_second = pool.monotonic, allowance.cpu_burst, allowance.cpu_per_second
        self._cpu = allowance.cpu_burst
        self._cpu_at = pool.monotonic()
        self._cpu_used = 0.0
        self._refused = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        return not any(self._held.values()) and self.cpu_left() >= self.allowance.cpu_burst

    def limit_of(self, resource: Resource) -> int:
        """What it may hold of a resource now: its own limit, or as much as is still free if that is less."""
        free, own = self._pool.free(resource), self._most[resource]
        if self._is_shared:
            return self._held[resource] + free
        return own if own < free else free

    def hold(self, resource: Resource, amount: int = 1) -> Hold:
        """Hold something until the work is over; `RateLimitError` if that is too much now."""
        found = self.try_hold(resource, amount)
        if found is not None:
            return found
        raise self.refusal(
            f"too much at once: this tenant or address has {self._held[resource]} {_WORDS[resource]}, needs {amount} "
            f"more and may have {self.limit_of(resource)} now; nothing was run. Send it again when some of them have "
            "ended",
            HELD_WAIT_SECONDS,
        )

    def try_hold(self, resource: Resource, amount: int = 1) -> Hold | None:
        """Hold something until the work is over; None if that is too much now."""
        pool = self._pool
        with pool.guard:
            if self._held[resource] + amount > self.limit_of(resource):
                return None
            self._held[resource] += amount
            pool.held[resource] += amount
        return Hold(self, resource, amount)

    def refusal(self, message: str, wait_seconds: float) -> RateLimitError:
        """The error that asks for a pause; it is counted."""
        with self._pool.guard:
            self._refused += 1
        return RateLimitError(message, retry_after_seconds=wait_seconds)

    def return_held(self, resource: Resource, amount: int) -> None:
        """For `Hold`."""
        pool = self._pool
        with pool.guard:
            self._held[resource] -= amount
            pool.held[resource] -= amount

    def cpu_left(self) -> float:
        """Processor seconds that are saved up; below zero, a debt."""
        now = self._clock()
        since, self._cpu_at = self._cpu_at, now
        if now > since:
            saved = self._cpu + (now - since) * self._per_second
            self._cpu = saved if saved < self._burst else self._burst
        return self._cpu

    def reserve_cpu(self, seconds: float) -> CpuReservation | None:
        """Set seconds aside before work that may take so long; None if there are not so many now."""
        seconds = min(seconds, self.allowance.cpu_burst)  # Or it could never run.
        if self.cpu_left() < seconds:
            return None
        self._cpu -= seconds
        return CpuReservation(self, seconds)

    def cpu_wait(self, seconds: float) -> float:
        """In how many seconds so much can be reserved, if nothing else is."""
        wanted = seconds if seconds < self._burst else self._burst
        if self._cpu >= wanted:
            return 0.0  # Since it was last looked at, it has only become more.
        missing = wanted - self.cpu_left()
        return missing / self._per_second if missing > 0 else 0.0

    @property
    def is_in_debt(self) -> bool:
        """Whether more was used than has come back."""
        return self._cpu < 0 and self.cpu_left() < 0

    def spend_cpu(self, used: float, *, reserved: float = 0.0) -> None:
        """Processor seconds are gone."""
        self.cpu_left()
        self._cpu = min(self._burst, self._cpu + reserved - used)
        self._cpu_used += used

    def usage(self) -> AccountUsage:
        """What it has used, holds and has left."""
        with self._pool.guard:
            limits = {one: self.limit_of(one) for one in Resource}
            return AccountUsage(dict(self._held), limits, self._cpu_used, self.cpu_left(), self._refused)


class Accounts:
    """Everybody's accounts in this process. Safe for threads."""

    def __init__(
        self,
        clock: Callable[[], float],
        allowance: Allowance | None = None,
        totals: Totals | None = None,
        *,
        accounts_max: int = ACCOUNTS_MAX,
    ) -> None:
        self.monotonic = clock
        self.guard = threading.RLock()
        self.totals = totals or Totals()
        self.held = dict.fromkeys(Resource, 0)
        self._most = {one: int(getattr(self.totals, one)) for one in Resource}
        self._allowance = allowance or Allowance()
        self._accounts_max = accounts_max
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def of_tenant(self, tenant: str) -> Account:
        """A tenant's account."""
        return self._account(f"tenant:{tenant}")

    def of_address(self, address: str) -> Account:
        """The account of an address (IPv6: of its /64), for who has no token, or has not shown it yet."""
        return self._account(f"address:{flood_address(address)}")

    def of_proxy(self, address: str) -> Account:
        """The account of a trusted proxy, whose connections are many callers': all that is free is for them."""
        return self._account(f"proxy:{flood_address(address)}", is_shared=True)

    def free(self, resource: Resource) -> int:
        """How much of a resource nobody holds."""
        free = self._most[resource] - self.held[resource]
        return free if free > 0 else 0

    def __len__(self) -> int:
        return len(self._accounts)

    def _account(self, owner: str, *, is_shared: bool = False) -> Account:
        with self.guard:
            found = self._accounts.get(owner)
            if found is None:
                found = self._accounts[owner] = Account(owner, self._allowance, self, is_shared=is_shared)
                self._forget_idle()
            self._accounts.move_to_end(owner)
            return found

    def _forget_idle(self) -> None:
        """Forget the one unseen for longest, if nothing is lost by it. A few are looked at; the rest can wait."""
        if len(self._accounts) <= self._accounts_max:
            return
        for owner in list(islice(self._accounts, LOOKS)):
            if self._accounts[owner].is_idle:
                del self._accounts[owner]
                return
            self._accounts.move_to_end(owner)
