"""The simulations give the published figures, are driven by our own code, and can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward._core.backoff import Backoff
from onceward._core.circuit import Circuit
from onceward._core.token_bucket import TokenBucket
from onceward.runtime.environment import SeededRandom
from onceward.testing.simulator import collapse, jitter, policy, storm
from onceward.testing.simulator.report import SimulationReport

# Brooker's own program (2015), 100 runs: milliseconds and writes, by the back-off.
RACES = {
    50: ((1146, 692), (36319, 623), (4278, 347), (2965, 331), (2204, 374)),
    100: ((2026, 2422), (62779, 1847), (6554, 810), (4913, 795), (4563, 1002)),
}

# Brooker's own program (2022): success and load, by the failure rate.
POLICIES = {
    0.01: ((0.989, 1.0), (1.0, 1.008), (1.0, 1.011), (0.999, 1.008)),
    0.05: ((0.953, 1.0), (1.0, 1.055), (1.0, 1.052), (0.988, 1.036)),
    0.1: ((0.899, 1.0), (1.0, 1.106), (0.992, 1.096), (0.918, 1.026)),
    0.2: ((0.804, 1.0), (0.998, 1.242), (0.905, 1.134), (0.802, 1.004)),
    0.5: ((0.5, 1.0), (0.935, 1.881), (0.57, 1.143), (0.498, 1.0)),
    0.75: ((0.253, 1.0), (0.682, 2.723), (0.285, 1.143), (0.251, 1.0)),
}


@pytest.fixture(scope="module")
def policies() -> SimulationReport:
    """The policies, simulated once."""
    return policy.simulate_policy(1)


class TestJitter:
    """N clients and one row."""

    @pytest.mark.slow
    def test_the_published_races_come_out_the_same(self) -> None:
        """
        Every back-off at 50 and 100 clients: writes within 2 %, time within 5 %.
        """
        report = jitter.simulate_jitter(1, clients=(50, 100), racers=6_000)

        times, writes = report.tables
        for row, published in zip(times.rows, RACES.values(), strict=True):
            assert [ms for ms, _ in published] == pytest.approx(row[1:], rel=0.05)
        for row, published in zip(writes.rows, RACES.values(), strict=True):
            assert [count for _, count in published] == pytest.approx(row[1:], rel=0.02)
        assert report.holds

    def test_without_jitter_the_finding_falls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Negative control: if full jitter did not jitter, the report would say so.
        """
        monkeypatch.setattr(Backoff, "wait", lambda self, retries, chance, previous=0.0: self.ceiling(retries))

        assert not jitter.simulate_jitter(1, clients=(50,), racers=200).holds


class TestPolicy:
    """What retrying gains, and what it costs."""

    @pytest.mark.slow
    def test_the_published_table_comes_out_the_same(self, policies: SimulationReport) -> None:
        """
        Every policy at every failure rate, success and load: within 3 %.
        """
        success, load = policies.tables[:2]

        for row, published in zip(success.rows, POLICIES.values(), strict=True):
            assert [share for share, _ in published] == pytest.approx(row[1:], rel=0.03)
        for row, published in zip(load.rows, POLICIES.values(), strict=True):
            assert [times for _, times in published] == pytest.approx(row[1:], rel=0.03)

    @pytest.mark.parametrize("rate", [0.1, 0.5, 0.75])
    def test_three_retries_follow_their_closed_form(self, rate: float) -> None:
        """
        They succeed with 1 - p^4, at a load of 1 + p + p^2 + p^3.
        """
        share = policy.simulate_calls(rate, 100, 20.0, lambda: policy.FixedRetries(3), SeededRandom(5))

        assert share.success == pytest.approx(1 - rate**4, rel=0.02)
        assert share.load == pytest.approx(1 + rate + rate**2 + rate**3, rel=0.02)

    @pytest.mark.slow
    def test_a_budget_per_client_loses_its_hold_and_a_shared_one_does_not(self, policies: SimulationReport) -> None:
        """
        At 50 % failure and 100 calls a second in all: 10, 100 and 1,000 clients load the server 1.14, 1.45 and 1.87
        times with a budget each, and 1.1 times with one budget for all.
        """
        rows = [row for row in policies.tables[2].rows if row[0] == 0.5]

        assert pytest.approx([row[2] for row in rows], rel=0.05) == [1.14, 1.45, 1.87]
        assert all(float(row[3]) <= 1.15 for row in rows)


class TestCollapse:
    """A spike of five seconds."""

    @pytest.mark.slow
    def test_blind_retries_stay_down_and_a_budget_comes_back(self) -> None:
        """
        After the spike blind retries stay below half of the offered load, and a budget returns to 95 % of it.
        """
        report = collapse.simulate_collapse(runs=3)

        assert [finding.sentence for finding in report.findings if not finding.holds] == []

    def test_a_budget_that_never_refuses_does_not_come_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Negative control: with a budget that pays for everything, the report says that it does not hold.
        """
        monkeypatch.setattr(TokenBucket, "withdraw", lambda self, now, throttled=False: 0.0)

        assert not collapse.simulate_collapse(runs=1).holds


class TestStorm:
    """1,000 agents and one outage."""

    @pytest.mark.slow
    def test_the_storm_rages_without_remedies_and_is_a_non_event_with_all_of_them(self) -> None:
        """
        Ten times the usual load, and cards charged twice; then hardly more load than usual, and none charged twice.
        """
        blind, whole = (
            storm.Storm(remedies, SeededRandom(1)).run() for remedies in (storm.LADDER[0], storm.LADDER[-1])
        )

        assert blind.amplification > 5
        assert blind.recovered is None
        assert blind.doubled["payment"] > 0
        assert whole.peak < 1.5
        assert whole.recovered is not None
        assert whole.doubled == {"payment": 0, "inventory": 0, "shipping": 0}

    def test_every_order_is_accounted_for(self) -> None:
        """
        Done, parked or under way in the last seconds: none is lost.
        """
        told = storm.Storm(storm.LADDER[-1], SeededRandom(3)).run()

        under_way = sum(told.wanted) - sum(told.finished) - told.parked
        assert 0 <= under_way <= sum(told.wanted[-10:])


class _Reached(Exception):
    """Our own code was asked."""


@pytest.mark.parametrize(
    ("owner", "method", "simulation"),
    [
        (Backoff, "wait", lambda: jitter.simulate_jitter(1, clients=(10,), racers=10)),
        (TokenBucket, "withdraw", lambda: policy.simulate_calls(0.5, 10, 10.0, policy.BudgetPolicy, SeededRandom(1))),
        (Circuit, "admit", lambda: policy.simulate_calls(0.5, 10, 10.0, policy.BreakerPolicy, SeededRandom(1))),
        (Backoff, "wait", lambda: collapse.simulate_collapse(runs=1)),
        (TokenBucket, "withdraw", lambda: collapse.simulate_collapse(runs=1)),
        (Backoff, "wait", lambda: storm.Storm(storm.LADDER[1], SeededRandom(1)).run()),
        (TokenBucket, "withdraw", lambda: storm.Storm(storm.LADDER[-1], SeededRandom(1)).run()),
        (Circuit, "admit", lambda: storm.Storm(storm.LADDER[-1], SeededRandom(1)).run()),
    ],
)
def test_a_simulation_drives_the_code_that_users_run(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, simulation: Callable[[], Any]
) -> None:
    """
    Back-off, budget and breaker are the project's own, and no copies: break one, and the simulation breaks.
    """

    def reached(*_: Any, **__: Any) -> None:
        raise _Reached

    monkeypatch.setattr(owner, method, reached)

    with pytest.raises(_Reached):
        simulation()


def test_the_same_seed_gives_the_same_figures_and_another_seed_others() -> None:
    """
    Reproducible, and not by being always the same.
    """
    first, again, other = (
        jitter.simulate_jitter(seed, clients=(10, 20), racers=40).document() for seed in (11, 11, 12)
    )

    assert first == again
    assert first["tables"] != other["tables"]
