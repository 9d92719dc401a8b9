"""Which cases `make test` draws (`tests/dose.py`)."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dose

ROOT = Path(__file__).resolve().parents[2]
STORES, POINTS = ("sqlite", "postgres", "redis"), ("before", "effect", "after", "end")


class Case:
    """What pytest collects, as far as it matters here."""

    def __init__(self, name: str, values: dict[str, str], *marks: pytest.MarkDecorator, proves: bool = False) -> None:
        self.nodeid = f"tests/test_x.py::{name}[{'-'.join(values.values())}]" if values else f"tests/test_x.py::{name}"
        self._marks = [one.mark for one in marks]
        own = [pytest.mark.requirement("A01").mark] if proves else []
        if values:
            self.callspec = SimpleNamespace(params=values, marks=own)

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self._marks if mark.name == name)


def cases(*marks: pytest.MarkDecorator, name: str = "test_a") -> list[Any]:
    """A test with every point on every store."""
    pairs = itertools.product(POINTS, STORES)
    return [Case(name, {"point": point, "store": store}, *marks) for point, store in pairs]


def drawn(items: list[Any], seed: int = 1) -> list[Any]:
    """Those that are run; each is either run or told as left out."""
    everything, left_out = list(items), dose.draw(items, seed)
    assert [one for one in everything if one not in left_out] == items
    return items


def test_so_many_are_drawn() -> None:
    """
    By the seed: the same for the same one, others for others. In a while, each is.
    """
    mark = pytest.mark.dose(2)
    runs = [{one.nodeid for one in drawn(cases(mark), seed)} for seed in range(100)]

    assert {len(one) for one in runs} == {2}
    assert {one.nodeid for one in drawn(cases(mark), 7)} == runs[7]
    assert set.union(*runs) == {one.nodeid for one in cases()}


def test_each_value_has_its_cases_and_of_a_value_one_is_drawn() -> None:
    """
    Every point on some store; or one store, chosen again for each point. A name that a test does not have is nothing.
    """
    points = [one.callspec.params["point"] for one in drawn(cases(pytest.mark.dose(1, each="point")))]
    stores = [one.callspec.params["point"] for one in drawn(cases(pytest.mark.dose(2, of=("store", "colour"))))]

    assert points == [*POINTS]
    assert stores == sorted([*POINTS, *POINTS], key=POINTS.index)
    assert len(drawn(cases(pytest.mark.dose(1, of="colour")))) == len(cases())


def test_what_is_drawn_of_a_test_does_not_depend_on_others() -> None:
    """
    Nor on their order: workers and a second look draw the same.
    """
    mark = pytest.mark.dose(1, each="store")
    alone = {one.nodeid for one in drawn(cases(mark))}
    among = [*cases(mark, name="test_b"), *reversed(cases(mark)), Case("test_c", {}, mark)]

    assert {one.nodeid for one in drawn(among) if "test_a" in one.nodeid} == alone
    assert among[-1].nodeid.endswith("test_c")


def test_a_case_that_proves_a_requirement_by_itself_is_always_run() -> None:
    """
    It is not among those that are drawn.
    """
    mark = pytest.mark.dose(1)
    proof = Case("test_a", {"point": "proof", "store": "redis"}, mark, proves=True)

    assert all(proof in drawn([*cases(mark), proof], seed) for seed in range(20))


@pytest.mark.fault("no-slow-test-is-left-out", "a-slow-proof-is-left-out")
def test_of_slow_tests_half_is_drawn_and_every_proof() -> None:
    """
    Of each file; the larger half of an odd number, so that one alone is always run. In a while, each is.
    """

    def slow() -> list[Any]:
        proofs = [Case("test_proof", {}, pytest.mark.slow, pytest.mark.requirement("A01"))]
        return [*(Case(f"test_{number}", {}, pytest.mark.slow) for number in range(5)), *proofs, Case("test_quick", {})]

    runs = [{one.nodeid for one in drawn(slow(), seed)} for seed in range(100)]
    always = {one.nodeid for one in slow()[5:]}

    assert all(always <= run and len(run - always) == 3 for run in runs)
    assert set.union(*runs) == {one.nodeid for one in slow()}


def test_only_make_test_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And `make test-cases` runs all of what it draws from.
    """
    dry = ["make", "-n", "test", "test-cases"]
    printed = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    monkeypatch.setenv("CASES", "some")
    asked = dose.is_wanted()
    monkeypatch.delenv("CASES")

    assert (asked, dose.is_wanted()) == (True, False)
    assert [line for line in printed.splitlines() if "CASES=some" in line and "-q tests" in line] != []
    assert [line for line in printed.splitlines() if "-m 'dose or slow' tests" in line and "CASES" not in line] != []
