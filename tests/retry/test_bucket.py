"""Retry budgets: what each preset lets through, and that no history lets more through."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError
from onceward._core.token_bucket import (
    AWS_2026,
    FINAGLE,
    GRPC,
    RATIO,
    BudgetRule,
    TokenBucket,
    finagle_rule,
    ratio_rule,
)
from onceward.runtime.environment import SeededRandom


def retries_in_a_row(bucket: TokenBucket, now: float = 0.0, *, throttled: bool = False) -> int:
    """How many calls that only ever fail are allowed a retry."""
    granted = 0
    for _ in range(10_000):
        bucket.failed(now, first=True)
        if bucket.withdraw(now, throttled=throttled) is None:
            break
        granted += 1
    return granted


@pytest.mark.requirement("D69")
@pytest.mark.parametrize(
    ("rule_", "throttled", "burst"),
    [
        (RATIO, False, 10),
        (GRPC, False, 4),  # Ten tokens, one per failure, and more than five must be left.
        (AWS_2026, False, 35),  # 500 / 14
        (AWS_2026, True, 100),  # 500 / 5
    ],
)
def test_a_full_bucket_allows_a_burst_and_no_more(rule_: BudgetRule, throttled: bool, burst: int) -> None:
    """
    Against a server that only fails, so many retries go out, and then none.
    """
    assert burst == retries_in_a_row(TokenBucket(rule_), throttled=throttled)


@pytest.mark.requirement("D69")
@pytest.mark.parametrize(
    ("rule_", "successes", "share"),
    [
        (RATIO, 20, 1.0),
        (RATIO, 5, 0.5),
        (GRPC, 20, 1.0),
        (GRPC, 5, 0.0),  # More than a tenth of the attempts fail: no retries at all until that is over.
        (AWS_2026, 20, 1.0),
        (AWS_2026, 5, 5 / 14),
    ],
)
def test_in_the_long_run_retries_are_a_share_of_the_successes(rule_: BudgetRule, successes: int, share: float) -> None:
    """
    A thousand failures among so many successes each: so many of them are retried, once the burst is spent.
    """
    bucket = TokenBucket(rule_)
    retries_in_a_row(bucket)
    granted = 0
    for _ in range(1_000):
        for _ in range(successes):
            bucket.succeeded(0.0)
        bucket.failed(0.0, first=True)
        granted += bucket.withdraw(0.0) is not None

    assert granted == pytest.approx(1_000 * share, rel=0.02, abs=2)


def test_finagle_counts_the_calls_of_the_last_ten_seconds() -> None:
    """
    A fifth of them may be retried, and ten a second besides; what is older is forgotten.
    """
    bucket = TokenBucket(FINAGLE)
    for number in range(1_000):
        bucket.succeeded(number / 100)
    assert pytest.approx(retries_in_a_row(bucket, 9.99), rel=0.26) == 300  # A failing call is a call, and deposits too.

    fresh = TokenBucket(FINAGLE)
    for number in range(1_000):
        fresh.succeeded(number / 100)
    assert pytest.approx(fresh.levels(60.0) and fresh.tokens) == 500


def test_a_retry_that_succeeds_gives_its_cost_back_at_aws() -> None:
    """
    Five hundred, less fourteen, and fourteen back; a clean success brings one.
    """
    bucket = TokenBucket(AWS_2026)
    paid = bucket.withdraw(0.0)
    assert (paid, bucket.tokens) == (14, 486)
    bucket.succeeded(0.0, paid)
    assert bucket.tokens == 500
    bucket.withdraw(0.0)
    bucket.succeeded(0.0)

    assert bucket.tokens == 487


def test_a_refused_withdrawal_takes_nothing() -> None:
    """
    Asking again and again does not make it worse.
    """
    bucket = TokenBucket(BudgetRule(capacity=20, deposit=1, cost=14))
    bucket.withdraw(0.0)
    assert [bucket.withdraw(0.0) for _ in range(5)] == [None] * 5

    assert bucket.tokens == 6


@pytest.mark.parametrize("rule_", [RATIO, GRPC, AWS_2026, FINAGLE])
def test_a_bucket_is_the_same_after_it_was_stored(rule_: BudgetRule) -> None:
    """
    Its levels make it again, at another time on another clock.
    """
    bucket = TokenBucket(rule_)
    for second in range(7):
        bucket.succeeded(float(second))
        bucket.failed(float(second), first=True)
        bucket.withdraw(float(second))
    again = TokenBucket.from_levels(rule_, bucket.levels(6.0), 1_000.0, 0.0)

    assert bucket.tokens == pytest.approx(again.tokens)
    assert bucket.levels(6.0) == pytest.approx(again.levels(1_000.0))


def test_stored_levels_go_on_ageing() -> None:
    """
    What was stored eleven seconds ago has expired under a rule of ten.
    """
    bucket = TokenBucket(FINAGLE)
    bucket.withdraw(0.0)
    assert bucket.tokens == 495

    assert TokenBucket.from_levels(FINAGLE, bucket.levels(0.0), 50.0, 5.0).tokens == 495
    assert TokenBucket.from_levels(FINAGLE, bucket.levels(0.0), 50.0, 11.0).tokens == 500


@pytest.mark.parametrize("levels", [None, [], "x", ["x"], [1, 2], [True], [float("inf")], {"a": 1}, 7])
def test_levels_that_are_none_make_a_new_bucket(levels: Any) -> None:
    """
    A record that somebody else wrote cannot break a call.
    """
    assert TokenBucket.from_levels(RATIO, levels, 0.0, 0.0).tokens == 10


@pytest.mark.parametrize(
    "make",
    [
        lambda: ratio_rule(0, 10),
        lambda: ratio_rule(2, 10),
        lambda: ratio_rule(True, 10),
        lambda: ratio_rule(0.1, 0),
        lambda: finagle_rule(0, 10, 10),
        lambda: finagle_rule(0.2, -1, 10),
        lambda: BudgetRule(capacity=0, deposit=0),
        lambda: BudgetRule(capacity=float("inf"), deposit=1),
        lambda: BudgetRule(capacity=1, deposit=1, cost=0),
        lambda: BudgetRule(capacity=1, deposit=1, ttl=0),
    ],
)
def test_a_budget_without_bounds_is_refused(make: Any) -> None:
    """
    No tokens, endless tokens, retries that cost nothing, shares above all: refused when declared.
    """
    with pytest.raises(ConfigurationError):
        make()


class History:
    """Successes, failures and withdrawals in any order, against a count kept as a list of what happened."""

    STEPS = 40

    def __init__(self, make: type[TokenBucket], seed: int) -> None:
        self.dice = SeededRandom(seed)
        self.bucket = make(self.dice.choice([RATIO, GRPC, AWS_2026, BudgetRule(capacity=3, deposit=0.5, cost=2)]))
        self.successes, self.paid = 0, 0.0

    def run(self) -> None:
        rule = self.bucket.rule
        for _ in range(self.STEPS):
            self.dice.choice((self.succeed, self.fail, self.retry))()
            assert 0 <= self.bucket.tokens <= rule.capacity
            assert self.paid <= rule.capacity + self.successes * rule.deposit + 1e-9

    def succeed(self) -> None:
        self.bucket.succeeded(0.0)
        self.successes += 1

    def fail(self) -> None:
        self.bucket.failed(0.0, first=True)

    def retry(self) -> None:
        throttled = self.dice.random() < 0.5
        before = self.bucket.tokens
        paid = self.bucket.withdraw(0.0, throttled=throttled)
        if paid is None:
            assert before == self.bucket.tokens
            assert before <= self.bucket.rule.floor or before < self.bucket.rule.price(throttled)
        else:
            self.paid += paid
            assert before > self.bucket.rule.floor


def search(make: type[TokenBucket]) -> None:
    """Two thousand histories: a seed that fails can be had again."""
    for seed in range(2_000):
        History(make, seed).run()


def test_no_history_gets_more_out_than_was_put_in() -> None:
    """
    What retries were paid with is never more than the first filling and the deposits.
    """
    search(TokenBucket)


class Generous(TokenBucket):
    """Grants also what it does not have."""

    def allows(self, now: float, *, throttled: bool = False) -> bool:
        return True


class Leaking(TokenBucket):
    """Forgets its capacity."""

    def put(self, now: float, amount: float) -> None:
        self.tokens += amount


@pytest.mark.parametrize("fault", [Generous, Leaking])
def test_a_planted_fault_is_found(fault: type[TokenBucket]) -> None:
    """
    The search above is able to fail.
    """
    with pytest.raises(AssertionError):
        search(fault)
