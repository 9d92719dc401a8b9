"""How long to wait: arithmetic, so that every promise about it can be computed."""

from __future__ import annotations

import random

import pytest

from onceward import ConfigurationError
from onceward._core.backoff import Backoff, random_fraction, wait_after_server


@pytest.mark.requirement("D51")
def test_the_ceilings_double_from_a_tenth_of_a_second_to_ten_seconds() -> None:
    """
    0.1, 0.2, 0.4 ... and never more than 10 seconds, however many retries there were.
    """
    backoff = Backoff()

    assert [pytest.approx(backoff.ceiling(n)) for n in range(9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert backoff.ceiling(100_000) == 10


@pytest.mark.requirement("D50", "C33")
def test_full_jitter_is_spread_evenly_below_its_ceiling() -> None:
    """
    Ten thousand waits at one ceiling: from almost none to almost all of it, half of it on average, never past it.
    """
    chance, backoff = random.Random(7), Backoff()
    waits = [backoff.wait(3, chance.random()) for _ in range(10_000)]

    assert 0 <= min(waits) < 0.01
    assert 0.79 < max(waits) < 0.8
    assert pytest.approx(sum(waits) / len(waits), rel=0.02) == 0.4


@pytest.mark.requirement("D56")
def test_a_thousand_clients_do_not_come_back_together() -> None:
    """
    Their waits at a ceiling of a second are spread so that no ten milliseconds hold more than a twentieth of them.
    """
    chance, backoff = random.Random(1), Backoff(base=1, cap=1)
    buckets = [0] * 100
    for _ in range(1_000):
        buckets[int(backoff.wait(0, chance.random()) * 100)] += 1

    assert max(buckets) <= 50


def test_without_jitter_a_thousand_clients_do_come_back_together() -> None:
    """
    The negative control of the test above: the same count sees the herd.
    """
    chance, backoff = random.Random(1), Backoff(base=1, cap=1, jitter="none", reason="to show the herd")

    assert {backoff.wait(0, chance.random()) for _ in range(1_000)} == {1.0}


def test_the_other_shapes_keep_to_their_bounds() -> None:
    """
    Equal jitter is never less than half of the ceiling; decorrelated is between the base and thrice the wait before.
    """
    chance = random.Random(3)
    equal, decorrelated = Backoff(jitter="equal"), Backoff(jitter="decorrelated")
    halves = [equal.wait(2, chance.random()) for _ in range(1_000)]
    walks = [decorrelated.wait(2, chance.random(), previous=0.5) for _ in range(1_000)]

    assert min(halves) >= 0.2 and max(halves) <= 0.4
    assert min(walks) >= 0.1 and 1.4 < max(walks) <= 1.5
    assert max(decorrelated.wait(9, chance.random(), previous=10) for _ in range(1_000)) <= 10


@pytest.mark.requirement("D57")
@pytest.mark.parametrize("reason", ["", "  "])
def test_no_jitter_needs_a_reason(reason: str) -> None:
    """
    A deterministic back-off is possible only for somebody who says why.
    """
    with pytest.raises(ConfigurationError, match="say why"):
        Backoff(jitter="none", reason=reason)


@pytest.mark.parametrize(
    "options",
    [
        {"base": 0},
        {"base": -1},
        {"base": float("nan")},
        {"base": float("inf")},
        {"base": True},
        {"base": "0.1"},
        {"cap": 3_601},
        {"base": 11},
        {"jitter": "some"},
    ],
)
def test_a_back_off_that_cannot_work_is_refused(options: dict[str, object]) -> None:
    """
    Nothing, less than nothing, no number, no end, an unknown shape: refused when it is declared.
    """
    with pytest.raises(ConfigurationError):
        Backoff(**options)  # type: ignore[arg-type]


@pytest.mark.requirement("C41")
def test_a_servers_wait_is_a_floor_and_not_an_appointment() -> None:
    """
    At least what was asked for, our own growing back-off on top; a wait that is no wait is none.
    """
    assert wait_after_server(5, 0.25) == 5.25
    assert [wait_after_server(asked, 0.25) for asked in (0, -3, float("nan"), float("inf"))] == [0.25] * 4


def test_chance_is_a_number_from_zero_to_almost_one() -> None:
    """
    All bytes zero is 0, all bytes set is just below 1.
    """
    assert random_fraction(bytes(7)) == 0
    assert 0.999 < random_fraction(b"\xff" * 7) < 1
