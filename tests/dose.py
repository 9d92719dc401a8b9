"""
What a run of `make test` has time for: drawn with the run's seed, so that a red run can be repeated.

The mark `dose` is for a test of many cases that differ little:

    dose(2)                   two of its cases
    dose(1, each="point")     one for each value of that parameter: every point, on some store
    dose(1, of="version")     one value of that parameter with each of the others; of several that are named, together

A mark on a whole file leaves tests alone that do not have the parameter.

Of the tests with the mark `slow`, half of each file's. Others are drawn the next time, in either case. What proves a
requirement is always run.

Only `make test` asks for doses (`CASES=some`): whoever runs pytest, or plants a fault, runs everything.
`make test-cases` runs every case of the tests that have the mark `dose` or `slow`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest


def is_wanted() -> bool:
    """Whether this run is to draw."""
    return os.environ.get("CASES") == "some"


def draw(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """What is left out of these; in `items`, what is run stays in its order."""
    left_out: set[str] = set()
    most = max((len(_marks(item)) for item in items), default=0)
    for turn in range(most):  # A second mark draws from what the first one left.
        groups: dict[tuple[Any, ...], list[str]] = {}
        for item in items:
            marks = _marks(item)
            if turn < len(marks) and item.nodeid not in left_out:
                groups.setdefault(_group(item, marks[turn]), []).append(item.nodeid)
        for (number, *_), names in groups.items():
            # By name: neither the order of the tests nor which others are collected changes what is drawn.
            ordered = sorted(names)
            drawn = random.Random(f"{seed} {ordered[0]}").sample(ordered, min(number, len(ordered)))
            left_out |= {*ordered} - {*drawn}
    left_out |= _slow_left_out([item for item in items if item.nodeid not in left_out], seed)
    dropped = [item for item in items if item.nodeid in left_out]
    items[:] = [item for item in items if item.nodeid not in left_out]
    return dropped


def _slow_left_out(items: Sequence[pytest.Item], seed: int) -> set[str]:
    """Half of each file's slow tests that prove no requirement: the smaller half."""
    files: dict[str, list[str]] = {}
    for item in items:
        if any(item.iter_markers("slow")) and not any(item.iter_markers("requirement")):
            files.setdefault(item.nodeid.partition("::")[0], []).append(item.nodeid)
    return {
        name
        for file, names in files.items()
        for name in random.Random(f"{seed} {file}").sample(sorted(names), len(names) // 2)
    }


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    """Its doses, the nearest first, without those that are about parameters of others."""
    called: Any = getattr(item, "callspec", None)
    if called is None or any(mark.name == "requirement" for mark in called.marks):
        return []  # What a case proves that no other does is proved in every run.
    values, marks = called.params, item.iter_markers("dose")
    return [mark for mark in marks if not (named := _named(mark)) or not values.keys().isdisjoint(named)]


def _group(item: Any, mark: pytest.Mark) -> tuple[Any, ...]:
    """How many are drawn, and the cases that they are drawn from: those of one test with the same values."""
    values: dict[str, Any] = item.callspec.params
    named = values.keys() & {*_named(mark)}
    same = values.keys() - named if "of" in mark.kwargs else named
    # All cases of a test share the objects of its parameters.
    return (int(mark.args[0]), item.nodeid.partition("[")[0], *((name, id(values[name])) for name in sorted(same)))


def _named(mark: pytest.Mark) -> Sequence[str]:
    given: str | Sequence[str] = mark.kwargs.get("of", mark.kwargs.get("each", ()))
    return (given,) if isinstance(given, str) else given
