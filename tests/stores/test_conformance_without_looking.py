"""The whole suite again with the look before the write turned off: the constraint alone is the arbiter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward.runtime.environment import REAL
from onceward.testing.store_suite.suite import *  # noqa: F403

STORES = ("sqlite:///{tmp}/store.db?read_first=0",)

pytestmark = [pytest.mark.requirement("E17"), pytest.mark.dose(1, of="place")]


@pytest.mark.requirement("B03")
def test_with_nothing_remembered_and_nothing_read_first_one_row_stands(
    do: Callable[[Any], Any], gate: Callable[..., Any], together: Callable[..., list[Any]]
) -> None:
    """
    Every caller has a gate of its own, and none looks before it writes: the constraint holds the row count at one.
    """
    effects: list[str] = []
    gates = [gate(environment=REAL) for _ in range(8)]

    def call(ours: Any) -> Any:
        return (yield ours.run("k", lambda: effects.append("one")))

    together(*(call(ours) for ours in gates))

    assert effects == ["one"]
    assert len(do(gates[0].records.list())) == 1
