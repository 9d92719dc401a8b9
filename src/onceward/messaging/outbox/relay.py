"""
`Relay`: delivers the messages of an outbox, at least once, under the same id every time.

    relay = Relay("postgresql://.../shop", {"billing": HttpEndpoint("https://...", secrets=[...])})
    relay.run()                 # until relay.stop(), from a signal or another thread

One thread talks to the database: in one transaction it writes how tries have ended and takes the next messages. Tries
are made by threads, each endpoint with its own share of them, so that a slow one holds up nobody else. For an endpoint
that answers fast a few more are taken than there are threads, so that these need not wait for the database. Any number
of relays may run at once, in any number of processes.

What if it dies? Before a take is committed: nothing was taken. After: the lease runs out, and another relay tries again
with the same id. After a delivery that nobody wrote down: it is delivered again, and the receiver knows the id.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from onceward._core.backoff import Backoff, wait_after_server
from onceward._core.circuit import BreakerRefusal as Held
from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward._core.events import EventType
from onceward.messaging.outbox import message_queue
from onceward.messaging.outbox.delivery import CallableEndpoint
from onceward.messaging.outbox.message import (
    Delivered,
    DeliveryFailed,
    DeliveryOutcome,
    DeliveryRefused,
    Endpoint,
    EndpointGone,
    Message,
)
from onceward.messaging.outbox.message_queue import LeaseRequest, MessageLease, TryResult
from onceward.messaging.outbox.outbox_admin import OutboxControls
from onceward.messaging.outbox.tables import open_outbox
from onceward.retry.breaker import Breaker, checked_name
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.event_stream import EVENT_STREAM
from onceward.stores.tables.runner import TablesRunner
from onceward.stores.tables.sql_steps import read_tables, transact

log = logging.getLogger("onceward.relay")

MINUTE, HOUR = 60.0, 3_600.0
SCHEDULE = (5.0, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR)
"""
The longest wait before each further try, in seconds: Standard Webhooks' own, ten tries in about three days at most.

Full jitter: the wait is anything up to that, so that an endpoint that comes back is not met by everybody at once.
"""
RETAIN = 7 * 24 * HOUR
"""Seconds that a delivered message is kept: longer than all tries together, so that an id of one's own stays known."""
CONCURRENCY = 8
"""Tries at one endpoint at the same time."""
AHEAD_SECONDS = 0.25
"""Work that is taken ahead of an endpoint's threads: what they do in so long, by how long the last tries took."""
AHEAD_MAX = 8
"""Messages ahead, for each thread: enough that one turn of the database is worth its commit."""
IDLE = 0.5
"""Seconds between two looks when there is nothing to do."""
MARGIN = 30.0
"""Seconds that a lease is longer than a try may take: for a pause of the process, and for a busy database."""
PURGE_EVERY = 60.0
REASON_CHARACTERS_MAX = 500
WAIT_MAX = 24 * HOUR
"""The most that an endpoint's own wish counts."""

failpoints.declare("relay.deliver.before", "just before a message is handed to its endpoint")
failpoints.declare("relay.deliver.after", "just after an endpoint had a message, and nobody has written it down")


class _Route:
    """An endpoint, its breaker, and what it has in hand."""

    def __init__(self, name: str, endpoint: Endpoint, breaker: Breaker) -> None:
        self.name = name
        self.endpoint = endpoint
        self.breaker = breaker
        self.busy = 0
        """Messages taken and not yet written down. Only the relay's own thread changes it."""
        self.threads = 0
        """Threads that try. This and the next one are changed under the relay's guard."""
        self.waiting: deque[_Try] = deque()
        """Taken, and without a thread so far."""
        self.seconds = AHEAD_SECONDS
        """How long a try takes, the latest counting most. Until that is known, nothing is taken ahead."""

    def hands(self, concurrency: int, *, ahead: bool) -> int:
        """How many messages it may have in hand."""
        if not ahead:
            return concurrency
        each = min(AHEAD_MAX, int(AHEAD_SECONDS / max(self.seconds, 1e-6)) - 1)
        return concurrency * (1 + max(0, each))


class _Try(NamedTuple):
    """One try at delivering."""

    lease: MessageLease
    route: _Route
    ticket: int | Held | None
    until: float
    """On the monotonic clock: from then on it is too late to begin, since the lease might run out under way."""


class _FinishedTry(NamedTuple):
    """A try that is over; without an outcome it was not made."""

    tried: _Try
    outcome: DeliveryOutcome | None
    is_late: bool = False
    """It was too late to begin: its lease runs out by itself, and may have already."""


class Relay(OutboxControls):
    """Delivers messages. Safe for threads: `stop` may be called from anywhere, `run` and `step` from one of them."""

    def __init__(
        self,
        url: str,
        endpoints: Mapping[str, Endpoint | Callable[[Message], Any]],
        *,
        schedule: Sequence[float] = SCHEDULE,
        retain: float = RETAIN,
        concurrency: int = CONCURRENCY,
        idle: float = IDLE,
        margin: float = MARGIN,
        threshold: int = 5,
        recovery: float = 30.0,
        environment: Environment = REAL,
    ) -> None:
        self._schedule = _checked_schedule(schedule)
        self._retain_us = _micros(_positive("retain", retain))
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 256:
            raise ConfigurationError("concurrency must be 1 to 256: how many tries run at one endpoint at once")
        self._concurrency = concurrency
        self._idle = _positive("idle", idle)
        self._margin = _positive("margin", margin)
        self._environment = environment
        self._routes = {
            name: _Route(
                name,
                _checked_endpoint(name, endpoint),
                Breaker(f"relay:{name}", threshold=threshold, recovery=recovery, environment=environment),
            )
            for name, endpoint in endpoints.items()
        }
        self._backoff = Backoff(base=min(1.0, self._idle), cap=30.0)
        super().__init__(TablesRunner(open_outbox(url, environment, create=True)))
        self._threads = ThreadPoolExecutor(max(1, concurrency * len(self._routes)), thread_name_prefix="onceward-relay")
        self._done: list[_FinishedTry] = []
        """Tries that are over, and whose end is not written yet."""
        self._changed = threading.Event()
        """Set when a try is over, and to stop."""
        self._guard = threading.Lock()
        self._stopping = False
        self._closed = False
        self._runs = False
        """Whether `run` runs: only then is anything taken ahead, since it is there to take up what comes after."""
        for route in self._routes.values():
            if (hold := getattr(route.endpoint, "hold_connections", None)) is not None:
                hold(concurrency)
        self._purged_at = environment.monotonic() - PURGE_EVERY

    # --- delivering ---

    def run(self) -> None:
        """Deliver until `stop` is called; then let tries that are under way end, and write down how."""
        self._runs = True
        failures = 0
        while not self._stopping:
            try:
                found = self._turn()
                self._tidy()
                failures = 0
            except StoreUnavailable as error:
                # What has ended stays in hand, and is written when the database is back.
                wait = self._backoff.wait(failures, self._environment.chance())
                failures += 1
                log.warning("the outbox cannot be reached; trying again in %.1f s: %s", wait, error)
                self._environment.wait(self._changed, wait)
                continue
            if not found:
                self._environment.wait(self._changed, self._idle)
            elif not self._has_room():
                self._environment.wait(self._changed, self._margin)
        self._runs = False
        try:
            self._finish()
        except StoreUnavailable as error:
            log.warning(
                "the outcome of the last deliveries could not be recorded, so they will be made again: %s", error
            )

    def step(self) -> int:
        """Take what is due, try it, and write down how that ended; how many were tried."""
        taken = self._turn()
        self._finish()
        self._tidy()
        return taken

    def stop(self) -> None:
        """Make `run` return, soon and in order. Nothing is lost by not calling it."""
        self._stopping = True
        self._changed.set()

    def close(self) -> None:
        """Let tries that are under way end, and let go of the database."""
        self.stop()
        with suppress(OncewardError):
            self._finish()
        self._threads.shutdown()
        for route in self._routes.values():
            if not self._closed and (release := getattr(route.endpoint, "release_connections", None)) is not None:
                release(self._concurrency)
        self._closed = True
        super().close()

    def _turn(self) -> int:
        """Write down what has ended, take what is due, and begin to try it; how many were taken."""
        self._changed.clear()
        with self._guard:
            done = list(self._done)
        ended = [self._ended(one.tried, one.outcome) for one in done if not one.is_late]
        idle = Counter(one.tried.route.name for one in done)
        tickets = {} if self._stopping else self._tickets(idle)
        wants = [
            LeaseRequest(route.name, many, _micros(route.endpoint.seconds_max + self._margin))
            for route, many, _ in tickets.values()
        ]
        began = self._environment.monotonic()
        try:
            turn = self._exchanged(ended, wants)
        except BaseException:
            self._give_back(tickets, [])
            raise
        with self._guard:
            del self._done[: len(done)]
        for one in done:
            one.tried.route.busy -= 1
        self._tell(ended, turn)
        self._give_back(tickets, turn.taken)
        for lease in turn.taken:
            route, _, ticket = tickets[lease.message.to]
            route.busy += 1
            self._hand_over(_Try(lease, route, ticket, began + self._margin))
        return len(turn.taken)

    def _exchanged(self, ended: Sequence[TryResult], wants: Sequence[LeaseRequest]) -> message_queue.LeaseBatch:
        """One transaction; none at all if there is nothing to say and nothing to take."""
        names = [want.endpoint for want in wants]
        if not ended and not self._tables.run(read_tables(lambda: message_queue.is_due(names))):
            return message_queue.LeaseBatch([], [], [])
        attempts_max = len(self._schedule) + 1
        return self._tables.run(
            transact("relay.turn", lambda: message_queue.settle_and_lease(ended, wants, attempts_max))
        )

    def _tickets(self, idle: Mapping[str, int]) -> dict[str, tuple[_Route, int, int | Held | None]]:
        """Endpoints that may be called now: how often, and the breaker's ticket. `idle` hands have just become free."""
        found: dict[str, tuple[_Route, int, int | Held | None]] = {}
        for route in self._routes.values():
            is_closed = route.breaker.state == "closed"
            many = self._hands(route) - route.busy + idle.get(route.name, 0)
            if many <= 0:
                continue
            ticket = route.breaker.admit()
            if not isinstance(ticket, Held):
                found[route.name] = (route, many if is_closed else 1, ticket)  # A probe is one call.
        return found

    def _give_back(self, tickets: Mapping[str, tuple[_Route, int, Any]], taken: Sequence[MessageLease]) -> None:
        used = {lease.message.to for lease in taken}
        for name, (route, _, ticket) in tickets.items():
            if name not in used:
                route.breaker.report(ticket, "ended")

    def _hand_over(self, tried: _Try) -> None:
        """To a thread of its endpoint, or to whichever of them is free first."""
        route = tried.route
        with self._guard:
            if route.threads == self._concurrency:
                route.waiting.append(tried)
                return
            route.threads += 1
        self._threads.submit(self._try_on, tried)

    def _try_on(self, tried: _Try) -> None:
        """In a thread of an endpoint: this message, and then those that wait for a thread."""
        route, following = tried.route, tried
        is_ahead = False
        while True:
            ended = self._try(following, is_ahead=is_ahead)
            with self._guard:
                self._done.append(ended)
                if not route.waiting:
                    route.threads -= 1
                    break
                following, is_ahead = route.waiting.popleft(), True
                few_left = len(route.waiting) <= self._concurrency
            if few_left:  # Otherwise there is enough to do, and a turn later has more to write at once.
                self._changed.set()
        self._changed.set()

    def _try(self, tried: _Try, *, is_ahead: bool) -> _FinishedTry:
        """Hand the message over, whatever comes of it."""
        route, began = tried.route, self._environment.monotonic()
        if began >= tried.until:
            route.breaker.report(tried.ticket, "ended")
            return _FinishedTry(tried, None, is_late=True)
        if is_ahead and (self._stopping or route.breaker.state != "closed"):
            return _FinishedTry(tried, None)  # Nobody has begun with it: it is given back.
        failpoints.hit("relay.deliver.before")
        try:
            outcome = _checked_outcome(route.endpoint.deliver(tried.lease.message))
        except Exception as error:
            outcome = _checked_outcome(DeliveryFailed(f"the endpoint raised {type(error).__name__}"))
        failpoints.hit("relay.deliver.after")
        route.seconds += (self._environment.monotonic() - began - route.seconds) / 4
        route.breaker.report(tried.ticket, _breaker_report(outcome))
        return _FinishedTry(tried, outcome)

    def _ended(self, tried: _Try, outcome: DeliveryOutcome | None) -> TryResult:
        if outcome is None:
            return TryResult(tried.lease, None, 0, dead=False)
        retries = tried.lease.message.attempt - 1
        if not isinstance(outcome, DeliveryFailed):
            return TryResult(tried.lease, outcome, 0, isinstance(outcome, DeliveryRefused))
        if retries >= len(self._schedule):
            return TryResult(tried.lease, outcome, 0, dead=True)
        own = self._environment.chance() * self._schedule[retries]
        asked = min(outcome.retry_after or 0.0, WAIT_MAX)
        return TryResult(tried.lease, outcome, _micros(wait_after_server(asked, own)), dead=False)

    def _has_room(self) -> bool:
        return any(route.busy < self._hands(route) for route in self._routes.values())

    def _hands(self, route: _Route) -> int:
        return route.hands(self._concurrency, ahead=self._runs and route.breaker.state == "closed")

    def _finish(self) -> None:
        """Wait for the tries that are under way, and write down how they ended; take nothing more."""
        before, self._stopping = self._stopping, True
        try:
            while any(route.busy for route in self._routes.values()):
                self._turn()
                with self._guard:
                    waits = not self._done and any(route.busy for route in self._routes.values())
                if waits:
                    self._changed.wait()
        finally:
            self._stopping = before

    def _tidy(self) -> None:
        now = self._environment.monotonic()
        if now - self._purged_at >= PURGE_EVERY:
            many = self._tables.run(transact("relay.purge", lambda: message_queue.purge(self._retain_us)))
            if many < message_queue.PURGE_LIMIT:
                self._purged_at = now

    def _tell(self, ended: Sequence[TryResult], turn: message_queue.LeaseBatch) -> None:
        lost = {one.lease.seq for one in turn.lost}
        for one in ended:
            message, outcome = one.lease.message, one.outcome
            if outcome is None:
                continue
            how = "lost" if one.lease.seq in lost else _word_for(one)
            EVENT_STREAM.note(EventType.RELAYED, message.to, how, attempt=message.attempt)
            if one.lease.seq in lost:
                log.warning("%s to %s: the lease had run out, and another relay has it", message.id, message.to)
            elif isinstance(outcome, EndpointGone):
                log.error(
                    "%s is gone, and disabled until you run `onceward relay enable`: %s", message.to, outcome.reason
                )
            elif one.dead and not isinstance(outcome, Delivered):
                log.error(
                    "%s to %s is dead after %d tries: %s", message.id, message.to, message.attempt, outcome.reason
                )
            elif isinstance(outcome, DeliveryFailed):
                log.info("%s to %s failed, try %d: %s", message.id, message.to, message.attempt, outcome.reason)
        for lease in turn.given_up:
            log.error("%s to %s is dead: relays took it and never reported back", lease.message.id, lease.message.to)
            EVENT_STREAM.note(EventType.RELAYED, lease.message.to, "dead", attempt=lease.message.attempt)


def _word_for(ended: TryResult) -> str:
    """How a try ended, in one word for listeners."""
    if isinstance(ended.outcome, Delivered):
        return "delivered"
    if isinstance(ended.outcome, EndpointGone):
        return "gone"
    return "dead" if ended.dead else "failed"


def _checked_outcome(outcome: Any) -> DeliveryOutcome:
    match outcome:
        case Delivered():
            return Delivered(_printable(outcome.detail))
        case DeliveryFailed() | DeliveryRefused() | EndpointGone():
            return outcome._replace(reason=_printable(outcome.reason))
    return DeliveryFailed(f"the endpoint answered {type(outcome).__name__}, and not how the delivery ended")


def _printable(reason: str) -> str:
    """An endpoint's reason, as every database and log can store it: an odd character must not stop a relay."""
    return "".join(char if char.isprintable() else " " for char in reason[:REASON_CHARACTERS_MAX])


def _breaker_report(outcome: DeliveryOutcome) -> str:
    """The outcome for the endpoint's breaker: a refused message says nothing about the endpoint."""
    if isinstance(outcome, DeliveryFailed):
        return "failed"
    return "succeeded" if isinstance(outcome, Delivered) else "ended"


def _checked_endpoint(name: str, endpoint: Any) -> Endpoint:
    checked_name(f"relay:{name}")
    if hasattr(endpoint, "deliver"):
        found: Endpoint = endpoint
    elif callable(endpoint):
        found = CallableEndpoint(endpoint)
    else:
        raise ConfigurationError(
            f"the endpoint {name} must be a function of a message, or have `deliver` and `seconds_max`"
        )
    _positive(f"seconds_max of {name}", found.seconds_max)
    return found


def _checked_schedule(schedule: Sequence[float]) -> tuple[float, ...]:
    if not isinstance(schedule, list | tuple) or len(schedule) > 100:
        raise ConfigurationError("schedule must list the longest wait before each retry, such as [5, 300, 1800]")
    return tuple(_positive("schedule", wait) for wait in schedule)


def _positive(what: str, seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 366 * 24 * HOUR:
        raise ConfigurationError(f"{what} must be a number of seconds, above 0 and at most a year; not {seconds!r}")
    return float(seconds)


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
