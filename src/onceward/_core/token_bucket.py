"""
Retry budgets: retries as a share of the traffic, so that a failing server is not also sent a multiple of its load.

Back-off only defers load. A budget reduces it: tokens come in with calls that succeed, and go out with retries. When
they are gone, calls still go out, and their retries do not.

    rule       a retry costs          comes in                          a retry needs
    ratio      1                      0.1 per success                   1 token; at most 10 are kept
    grpc       1 per failed attempt   0.1 per success                   more than half of the 10 tokens
    aws2026    14; throttled: 5       1 per clean success; a retry      its cost; 500 at most
                                      that succeeds gives its cost back
    finagle    5                      1 per call, for 10 s; and         its cost
                                      50 that are always there (10/s)

`TokenBucket` is one bucket: plain arithmetic on a time that it is handed. It is not safe for threads by itself, and
knows no clock; the shell in `onceward.retry` has both, and a simulation brings its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onceward._core.errors import ConfigurationError

SLICES = 10
"""Parts that a window of time is counted in: what is in the oldest expires at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """What retries cost and what pays for them. Tokens; see the table above."""

    capacity: float
    """The most that is kept, and what there is at first. With `ttl`: what is always there besides the deposits."""
    deposit: float
    """What one call brings in."""
    cost: float = 1.0
    """What a retry takes out."""
    throttled_cost: float | None = None
    """What a retry takes out after a rate limit, where that differs."""
    floor: float = 0.0
    """A retry needs more than this to be left (before it is paid for)."""
    per_failure: float = 0.0
    """What every failed attempt takes out, whether it is retried or not."""
    refunds: bool = False
    """Whether a call that succeeds after a retry gets that retry's cost back (and brings nothing in)."""
    every_call: bool = False
    """Whether every call brings the deposit in, and not only one that succeeds."""
    ttl: float | None = None
    """Seconds after which deposits (and withdrawals) expire. None: they do not."""

    def __post_init__(self) -> None:
        amounts = (self.capacity, self.deposit, self.cost, self.throttled_cost or 0.0, self.floor, self.per_failure)
        if any(isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one < 1e9 for one in amounts):
            raise ConfigurationError("the amounts of a budget are numbers of tokens, 0 or more and finite")
        if self.capacity == 0 and self.deposit == 0:
            raise ConfigurationError("a budget with no tokens and no deposits allows nothing; use attempts=1 instead")
        if self.cost == 0 and self.per_failure == 0:
            raise ConfigurationError("a budget whose retries cost nothing limits nothing; set cost or per_failure")
        if self.ttl is not None and not 0 < self.ttl <= 3_600:
            raise ConfigurationError("ttl is a number of seconds, more than 0 and at most an hour")

    def price(self, throttled: bool) -> float:
        """What a retry costs."""
        return self.throttled_cost if throttled and self.throttled_cost is not None else self.cost


RATIO = BudgetRule(capacity=10, deposit=0.1)
GRPC = BudgetRule(capacity=10, deposit=0.1, cost=0, per_failure=1, floor=5)
AWS_2026 = BudgetRule(capacity=500, deposit=1, cost=14, throttled_cost=5, refunds=True)
FINAGLE = BudgetRule(capacity=500, deposit=1, cost=5, every_call=True, ttl=10)


def ratio_rule(ratio: float, burst: float) -> BudgetRule:
    """Retries are at most `ratio` of the successes, plus a `burst` at the beginning."""
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ConfigurationError("ratio is the share of retries in the traffic: more than 0, at most 1 (0.1 is usual)")
    if isinstance(burst, bool) or not isinstance(burst, int | float) or burst < 1:
        raise ConfigurationError(
            "burst is how many retries are allowed at once. It must be at least 1, or no retry would ever be allowed"
        )
    return BudgetRule(capacity=burst, deposit=ratio)


def finagle_rule(ratio: float, per_second: float, ttl: float) -> BudgetRule:
    """Retries are at most `ratio` of the calls of the last `ttl` seconds; `per_second` are always allowed."""
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ConfigurationError(
            "ratio is the share of retries in the traffic: more than 0, at most 1 (0.2 is Finagle's)"
        )
    cost = 1 / ratio
    return BudgetRule(capacity=per_second * ttl * cost, deposit=1, cost=cost, every_call=True, ttl=ttl)


class TokenBucket:
    """One bucket under a rule. Times are seconds on any clock that does not go back."""

    __slots__ = ("_slice", "_slices", "_width", "rule", "tokens")

    def __init__(self, rule: BudgetRule) -> None:
        self.rule = rule
        self.tokens: float = rule.capacity
        """What there is, as of the last move."""
        self._width = rule.ttl / SLICES if rule.ttl is not None else 0.0
        self._slices: list[float] | None = [0.0] * SLICES if rule.ttl is not None else None
        self._slice = 0

    def succeeded(self, now: float, paid: float | None = None) -> None:
        """A call ended well; `paid` is what its last retry cost (None: it needed none)."""
        self.put(now, self.worth(paid))

    def worth(self, paid: float | None) -> float:
        """What a call that ended well brings in."""
        rule = self.rule
        if paid is None:
            return rule.deposit
        if rule.refunds:
            return paid
        return 0.0 if rule.every_call else rule.deposit  # Such a call was counted when its first attempt failed.

    def failed(self, now: float, *, first: bool) -> None:
        """An attempt failed in a way that could be retried; `first`: it was the call's first attempt."""
        rule = self.rule
        if rule.per_failure:
            self.tokens = max(0.0, self.tokens - rule.per_failure)
        if first and rule.every_call:
            self.put(now, rule.deposit)

    def allows(self, now: float, *, throttled: bool = False) -> bool:
        """Whether `withdraw` would be granted."""
        self._age(now)
        rule = self.rule
        return self.tokens > rule.floor and self.tokens >= rule.price(throttled)

    def withdraw(self, now: float, *, throttled: bool = False) -> float | None:
        """Pay for a retry. Returns what it cost, or None if there is not enough; then nothing is taken."""
        if not self.allows(now, throttled=throttled):
            return None
        price = self.rule.price(throttled)
        self.put(now, -price)
        return price

    def put(self, now: float, amount: float) -> None:
        """Put tokens in, or take them out; never more than the capacity, never less than none."""
        slices = self._slices
        if slices is None:
            self.tokens = min(self.rule.capacity, max(0.0, self.tokens + amount))
            return
        self._age(now)
        slices[self._slice % SLICES] += amount
        self.tokens = max(0.0, self.tokens + amount)

    def levels(self, now: float) -> list[float]:
        """What there is, as numbers that can be stored: the tokens, or the slices from the newest to the oldest."""
        self._age(now)
        if self._slices is None:
            return [self.tokens]
        return [self._slices[(self._slice - back) % SLICES] for back in range(SLICES)]

    @classmethod
    def from_levels(cls, rule: BudgetRule, levels: Any, now: float, age: float) -> TokenBucket:
        """A bucket from stored numbers that are `age` seconds old. From anything else: a new bucket."""
        bucket = cls(rule)
        wanted = 1 if bucket._slices is None else SLICES
        if not _are_numbers(levels, wanted):
            bucket._age(now)
            return bucket
        if bucket._slices is None:
            bucket.tokens = min(rule.capacity, max(0.0, float(levels[0])))
            return bucket
        bucket._slice = int(now / bucket._width)
        passed = int(age / bucket._width)
        for back, amount in enumerate(levels):
            if back + passed < SLICES:
                bucket._slices[(bucket._slice - back - passed) % SLICES] = float(amount)
        bucket.tokens = max(0.0, rule.capacity + sum(bucket._slices))
        return bucket

    def _age(self, now: float) -> None:
        """Let go of what has expired."""
        slices = self._slices
        if slices is None:
            return
        current = int(now / self._width)
        passed = current - self._slice
        if passed <= 0:
            return
        for step in range(1, min(passed, SLICES) + 1):
            slices[(self._slice + step) % SLICES] = 0.0
        self._slice = current
        self.tokens = max(0.0, self.rule.capacity + sum(slices))


def _are_numbers(levels: Any, wanted: int) -> bool:
    return (
        isinstance(levels, Sequence)
        and len(levels) == wanted
        and all(isinstance(one, int | float) and not isinstance(one, bool) and abs(one) < 1e12 for one in levels)
    )
