"""
The cascading retry storm: 1,000 agents, three services that call each other, and an outage of 30 seconds.

An agent asks for a payment, the payment service asks the inventory, the inventory asks for shipping. Every caller waits
two seconds and tries three times, on every layer: 27 requests where one was wanted. While the payment service is
away it takes requests in, asks the inventory, charges some of the cards, and answers nobody. Each row of the table adds
one remedy to those above it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from onceward._core.backoff import Backoff
from onceward._core.circuit import BreakerRefusal, BreakerRule, Circuit
from onceward._core.token_bucket import RATIO, TokenBucket
from onceward.runtime.environment import SeededRandom
from onceward.testing.simulator.event_queue import EventQueue
from onceward.testing.simulator.report import (
    Progress,
    ReportPlot,
    ReportTable,
    SimulationFinding,
    SimulationReport,
    ignore_progress,
)

AGENTS = 1_000
SECONDS_BETWEEN_ORDERS = 20.0
SERVICES = ("payment", "inventory", "shipping")
ATTEMPTS = 3
SECONDS = 100
OUTAGE = (20.0, 50.0)
TIMEOUT = 2.0
LOST_BUT_DONE = 0.5
"""Share of the requests that take effect although the service, being away, does not answer."""

_NETWORK = 0.01
_SERVICE, _SLOPE = 0.15, 0.008
"""Seconds of work, and what every request in flight adds: a service keeps up with 2.5 times its usual load."""
_REPLAY = 0.02
"""Seconds to find out that a key is done already."""
BREAKER = BreakerRule(threshold=5, recovery=5.0)


class Remedies(NamedTuple):
    """What is done against the storm."""

    name: str
    jitter: bool = False
    owner: bool = False
    """One layer retries, and the others do not; an attempt that nobody waits for any more is dropped."""
    keys: bool = False
    budget: bool = False
    breaker: bool = False


LADDER = (
    Remedies("3 attempts on each layer"),
    Remedies("+ full jitter", jitter=True),
    Remedies("+ one retry owner", jitter=True, owner=True),
    Remedies("+ keys", jitter=True, owner=True, keys=True),
    Remedies("+ budget", jitter=True, owner=True, keys=True, budget=True),
    Remedies("+ breaker", jitter=True, owner=True, keys=True, budget=True, breaker=True),
)


@dataclass(slots=True)
class StormTally:
    """What happened."""

    wanted: list[int] = field(default_factory=lambda: [0] * SECONDS)
    requests: dict[str, list[int]] = field(default_factory=lambda: {name: [0] * SECONDS for name in SERVICES})
    finished: list[int] = field(default_factory=lambda: [0] * SECONDS)
    parked: int = 0
    """Orders that were given up, kept for somebody to decide."""
    doubled: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SERVICES, 0))
    """Effects beyond an order's first."""

    @property
    def peak(self) -> float:
        """The busiest five seconds of any service, as a multiple of what was wanted."""
        usual = AGENTS / SECONDS_BETWEEN_ORDERS * 5
        return max(
            sum(counts[start : start + 5]) / usual for counts in self.requests.values() for start in range(SECONDS - 5)
        )

    @property
    def amplification(self) -> float:
        """Requests per order and service."""
        return sum(map(sum, self.requests.values())) / len(SERVICES) / sum(self.wanted)

    @property
    def recovered(self) -> int | None:
        """Seconds after the outage until a full ten seconds' worth of orders goes through again; None: it does not."""
        for start in range(int(OUTAGE[1]), SECONDS - 10):
            if sum(self.finished[start : start + 10]) >= 0.95 * sum(self.wanted[start : start + 10]):
                return start - int(OUTAGE[1])
        return None


class Storm:
    """The services, and what stands in front of them."""

    def __init__(self, remedies: Remedies, dice: SeededRandom) -> None:
        self.remedies = remedies
        self.dice = dice
        self.events = EventQueue()
        self.told = StormTally()
        self.backoff = Backoff() if remedies.jitter else None
        self.budgets = {name: TokenBucket(RATIO) for name in SERVICES} if remedies.budget else {}
        self.circuits = {name: Circuit(BREAKER) for name in SERVICES} if remedies.breaker else {}
        self.in_flight = dict.fromkeys(SERVICES, 0)

    def run(self) -> StormTally:
        """Let it rage."""
        for _ in range(AGENTS):
            self._order_later()
        self.events.run(SECONDS)
        return self.told

    def count(self, counts: list[int]) -> None:
        """One more in this second."""
        if self.events.now < SECONDS:
            counts[int(self.events.now)] += 1

    def is_away(self, service: str) -> bool:
        """Whether a service is in its outage."""
        return service == SERVICES[0] and OUTAGE[0] <= self.events.now < OUTAGE[1]

    def trip(self) -> float:
        """Seconds to a service, or back."""
        return self.dice.expovariate(1 / _NETWORK)

    def _order_later(self) -> None:
        self.events.after(self.dice.expovariate(1 / SECONDS_BETWEEN_ORDERS), self._order)

    def _order(self) -> None:
        self._order_later()
        self.count(self.told.wanted)
        _Call(self, set(), 0, self._ended).attempt(0.0)

    def _ended(self, well: bool) -> None:
        if well:
            self.count(self.told.finished)
        else:
            self.told.parked += 1


class _Call:
    """One layer calling the next for one order: its attempts, one after the other."""

    __slots__ = ("_done", "_ended", "_layer", "_paid", "_retries", "_serial", "_service", "_storm", "_ticket")

    def __init__(self, storm: Storm, done: set[str], layer: int, ended: Callable[[bool], None]) -> None:
        self._storm = storm
        self._done = done
        """The services that this order has had its effect in."""
        self._layer = layer
        self._service = SERVICES[layer]
        self._ended = ended
        self._retries = 0
        self._serial = 0
        """Tells the answer that is waited for from those that come too late."""
        self._ticket = 0
        self._paid: float | None = None

    def attempt(self, wait: float) -> None:
        """Send it, after a while."""
        self._serial += 1
        self._storm.events.after(wait, self._send, self._serial)

    def _send(self, serial: int) -> None:
        storm = self._storm
        if storm.circuits:
            admitted = storm.circuits[self._service].admit(storm.events.now)
            if isinstance(admitted, BreakerRefusal):
                self._ended(False)  # An open circuit is never retried.
                return
            self._ticket = admitted
        storm.count(storm.told.requests[self._service])
        storm.events.after(TIMEOUT, self._failed, serial)
        storm.events.after(storm.trip(), self._arrive, serial)

    def _arrive(self, serial: int) -> None:
        """The service takes it in, and first asks the next one."""
        if self._layer + 1 == len(SERVICES):
            self._work(serial, True)
        else:
            _Call(self._storm, self._done, self._layer + 1, lambda well: self._work(serial, well)).attempt(0.0)

    def _work(self, serial: int, well: bool) -> None:
        storm = self._storm
        if storm.remedies.owner and serial != self._serial:
            return  # The deadline that came with it has passed: nobody is waiting.
        if storm.is_away(self._service):
            if well and storm.dice.random() < LOST_BUT_DONE:
                self._take_effect()
        elif not well:
            storm.events.after(storm.trip(), self._failed, serial)
        else:
            storm.in_flight[self._service] += 1
            known = storm.remedies.keys and self._service in self._done
            took = _REPLAY if known else _SERVICE + _SLOPE * storm.in_flight[self._service]
            storm.events.after(took, self._worked, serial)

    def _worked(self, serial: int) -> None:
        self._storm.in_flight[self._service] -= 1
        self._take_effect()
        self._storm.events.after(self._storm.trip(), self._answered, serial)

    def _take_effect(self) -> None:
        if self._service not in self._done:
            self._done.add(self._service)
        elif not self._storm.remedies.keys:
            self._storm.told.doubled[self._service] += 1

    def _answered(self, serial: int) -> None:
        if serial != self._serial:
            return
        self._serial += 1
        storm = self._storm
        if storm.circuits:
            storm.circuits[self._service].succeeded(self._ticket, storm.events.now)
        if storm.budgets:
            storm.budgets[self._service].succeeded(storm.events.now, self._paid)
        self._ended(True)

    def _failed(self, serial: int) -> None:
        if serial != self._serial:
            return
        self._serial += 1
        storm = self._storm
        if storm.circuits:
            storm.circuits[self._service].failed(self._ticket, storm.events.now)
        if not self._may_retry():
            self._ended(False)
            return
        wait = storm.backoff.wait(self._retries, storm.dice.random()) if storm.backoff is not None else 0.0
        self._retries += 1
        self.attempt(wait)

    def _may_retry(self) -> bool:
        storm = self._storm
        if self._retries + 1 >= ATTEMPTS or (storm.remedies.owner and self._layer > 0):
            return False
        if not storm.budgets:
            return True
        storm.budgets[self._service].failed(storm.events.now, first=self._retries == 0)
        self._paid = storm.budgets[self._service].withdraw(storm.events.now)
        return self._paid is not None


def simulate_storm(seed: int = 1, *, progress: Progress = ignore_progress) -> SimulationReport:
    """The same outage, with one remedy more each time."""
    told: dict[str, StormTally] = {}
    for done, remedies in enumerate(LADDER):
        progress(done, len(LADDER))
        told[remedies.name] = Storm(remedies, SeededRandom(seed)).run()
    blind, keyed, whole = (told[LADDER[number].name] for number in (0, 3, -1))
    return SimulationReport(
        "storm",
        f"{AGENTS:,} agents, {' -> '.join(SERVICES)}; the payment service is down for 30 seconds",
        seed,
        [_table(told)],
        [
            _plot("Requests to the shipping service, at the end of the chain", "requests a second", told, "requests"),
            _plot("Orders that go through", "orders a second", told, "finished"),
        ],
        [
            SimulationFinding("without remedies some service sees at least 5 times its usual load", blind.peak >= 5),
            SimulationFinding("without remedies the system does not recover after the outage", blind.recovered is None),
            SimulationFinding("without keys some cards are charged more than once", blind.doubled["payment"] > 0),
            SimulationFinding("with keys nothing happens twice", sum(keyed.doubled.values()) == 0),
            SimulationFinding("with all remedies the load never reaches 1.5 times the usual", whole.peak < 1.5),
            SimulationFinding(
                "with all remedies, orders go through again within 10 seconds of the outage's end",
                whole.recovered is not None and whole.recovered <= 10,
            ),
        ],
    )


def _table(told: dict[str, StormTally]) -> ReportTable:
    headings = (
        "remedies",
        "orders",
        "done",
        "parked",
        "requests per order",
        "peak load",
        "double payments",
        "double reservations",
        "recovered after, s",
    )
    rows: list[tuple[str | int | float, ...]] = [
        (
            name,
            sum(one.wanted),
            sum(one.finished),
            one.parked,
            round(one.amplification, 2),
            round(one.peak, 1),
            one.doubled["payment"],
            one.doubled["inventory"],
            "never" if one.recovered is None else one.recovered,
        )
        for name, one in told.items()
    ]
    return ReportTable("each row adds one remedy to those above it", headings, rows)


def _plot(title: str, y: str, told: dict[str, StormTally], what: str) -> ReportPlot:
    lines = []
    for name, one in told.items():
        counts = one.finished if what == "finished" else one.requests[SERVICES[-1]]
        lines.append((name, [(second + 0.5, float(count)) for second, count in enumerate(counts)]))
    return ReportPlot(title, "seconds", y, lines, OUTAGE)
