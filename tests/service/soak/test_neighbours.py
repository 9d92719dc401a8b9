"""Attackers beside honest tenants in a small dose, and that it goes red when it should. `make soak` judges times."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from soak.neighbours.attacks import ATTACKS
from soak.neighbours.outcome import Outcome, Round, Use, percentile
from soak.processes import Memory
from soak.subject import judge

ROOT = Path(__file__).resolve().parents[3]
DOSE = (
    *("--scenario", "neighbours", "--pairs", "1", "--seconds", "2", "--rate", "8", "--ratio", "0"),
    *("--cpu-burst", "1.5", "--clients-each", "2"),
)
"""Times are for `make soak`: they depend on how busy the machine is. Attackers have little saved up, and end soon."""
SHORT = ("databases", "json", "keys", "connections")
LONG = ("reads", "instructions", "writes", "memory")
"""Attacks with statements that run until a limit ends them, which the end of a soak waits for."""


def soaked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A soak in a process of its own."""
    command = [sys.executable, "-m", "soak", *DOSE, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.slow
def test_nothing_of_the_honest_fails_and_everybody_has_its_own_account(request: pytest.FixtureRequest) -> None:
    """
    Attackers with tokens of their own, beside two honest tenants: every answer of theirs is right, every write is
    there once, the service's memory is bounded, and what the attackers use is on their own accounts.

    One of the attacks that take long, another in each run; `make soak` has all eight at once.
    """
    seed = request.config.getoption("randomly_seed", 0)
    run = soaked("--attacks", *SHORT, random.Random(str(seed)).choice(LONG))

    assert run.returncode == 0, run.stdout + run.stderr
    assert "failed=0 lost=0 doubled=0\nheld\n" in run.stdout


@pytest.mark.slow
def test_without_accounts_it_does_not_hold() -> None:
    """The control: a service in which everybody's use is on the account of all, and limited by nothing."""
    run = soaked("--accounts", "off", "--attacks", "keys", "databases")

    assert run.returncode == 1, run.stdout + run.stderr
    assert re.search(r"account: [0-9.]+ processor seconds are on an account, and [0-9.]+ were used", run.stdout)


def a_round(kind: str, p99: float = 0.01, **changes: object) -> Round:
    """A round in which all went well."""
    cpu = {"service": 1.0, "workers": 2.0}
    return Round(kind, 100, [], 0.005, p99, p99, Memory(60, 130), cpu)._replace(**changes)  # type: ignore[arg-type]


def good(*ratios: float) -> Outcome:
    """An outcome that holds, unless the ratios are too high."""
    rounds = [one for ratio in ratios or (1.0,) for one in (a_round("honest"), a_round("attack", 0.01 * ratio))]
    used = 4.0
    uses = {"honest0": Use(0.2, 0), "neighbour0": Use(0.1, 0), "attacker-reads": Use(used, 0)}
    uses["attacker-keys"] = Use(0.0, 3)
    return Outcome(
        rounds=rounds, effects=judge({"a": 1}, {"a"}, {"a"}), uses=uses, used={"service": 1.0, "workers": used}
    )


def test_the_median_of_the_ratios_is_judged() -> None:
    """One round in which the machine was busy does not decide; most of them do. With no limit, none does."""
    assert good(1.5, 2.0, 40.0).holds
    assert not good(1.5, 3.1, 40.0).holds
    assert good(1.5, 2.0, 40.0).ratios == [1.5, 2.0, 40.0]
    relaxed = good(10.0)
    relaxed.ratio_max = 0
    assert relaxed.holds


def test_each_thing_that_is_wrong_is_enough() -> None:
    """A failure, a lost or doubled row, memory, an account."""
    changed = []
    for change in (
        {"rounds": [a_round("honest"), a_round("attack", failures=["honest0 write: 503"])]},
        {"effects": judge({"a": 2}, {"a"}, {"a"})},
        {"effects": judge({}, {"a"}, {"a"})},
        {"effects": None},
        {"rounds": [a_round("honest"), a_round("attack", memory=Memory(5000, 130))]},
        {"rounds": [a_round("attack", memory=Memory(60 + 40 * number, 130)) for number in range(6)]},
        {"uses": {"honest0": Use(0.2, 1), "neighbour0": Use(0.1, 0), "attacker-reads": Use(9.0, 0)}},
        {"uses": {"honest0": Use(5.0, 0), "neighbour0": Use(0.1, 0), "attacker-reads": Use(4.0, 0)}},
        {"uses": {"honest0": Use(0.2, 0), "neighbour0": Use(0.1, 0), "attacker-reads": Use(0.5, 0)}},
        {"uses": {"honest0": Use(0.2, 0), "attacker-reads": Use(0.0, 0), "attacker-keys": Use(9.0, 0)}},
        {"used": {"service": 1.0, "workers": 1.0}},
        {"used": {"service": 1.0, "workers": 20.0}},
        {"rounds": []},
    ):
        outcome = good()
        for name, value in change.items():
            setattr(outcome, name, value)
        changed.append(outcome.holds)

    assert good().holds
    assert changed == [False] * 13


def test_a_connection_that_was_closed_is_use_that_was_limited() -> None:
    """Who only connects has no account by its token: what it held is closed."""
    outcome = good()
    outcome.uses["attacker-connections"] = Use(0.0, 0)
    before = outcome.wrong_accounts
    outcome.heard["attacker-connections"] = Counter(closed=40)

    assert len(before) == 1
    assert outcome.wrong_accounts == []


def test_every_attack_is_of_one_of_the_two_kinds() -> None:
    """A new one is not forgotten here."""
    assert {*SHORT, *LONG} == {*ATTACKS}


def test_a_percentile_is_a_value_that_was_seen() -> None:
    """The smallest that so many are not above; of nothing, none."""
    assert percentile([float(number) for number in range(1, 101)], 0.99) == 99.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert math.isnan(percentile([], 0.5))
