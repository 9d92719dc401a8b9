"""Callers whose clocks are a day off: leases, answers and doubt are the server's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceward import Gate, InFlight
from onceward.runtime.environment import Environment
from onceward.stores import open_store
from servers import postgres, redis

DAY_US = 24 * 3_600 * 1_000_000


class Off(Environment):
    """The host's clock, and a day."""

    def __init__(self, days: int) -> None:
        self._days = days

    def wall_us(self) -> int:
        """Microseconds since 1970, by this caller's clock."""
        return super().wall_us() + self._days * DAY_US


def _names() -> Iterator[str]:
    if postgres.wanted():
        yield "postgres"
    if redis.wanted():
        yield "redis"


@pytest.mark.parametrize("name", list(_names()))
@pytest.mark.parametrize(("holder", "rival"), [(-1, 1), (1, -1)], ids=["a rival ahead", "a rival behind"])
def test_nobody_is_overtaken_and_every_answer_is_kept(name: str, holder: int, rival: int) -> None:
    """
    Two days apart: a rival meets a live lease as live, whatever its own clock says, and replays what was settled.
    """
    url = redis.running().url() if name == "redis" else postgres.running().url("onceward")
    scope, effects, told = f"test:clock-{holder}", list[str](), list[str]()
    stores = [open_store(url, environment=Off(days)) for days in (holder, rival)]
    holding, rivalling = (Gate(store, scope=scope, lease=60, wait=0) for store in stores)
    keys = [f"k{n}" for n in range(10)]

    def effect(key: str) -> str:
        effects.append(key)
        try:
            rivalling.run(key, lambda: effects.append("overtaken"), guarantee="repeatable")
        except InFlight:
            told.append("in flight")
        return f"done {key}"

    answers = [holding.run(key, lambda key=key: effect(key), guarantee="repeatable") for key in keys]
    replays = [rivalling.run(key, lambda: "a second answer", guarantee="repeatable") for key in keys]
    for gate in (holding, rivalling):
        gate.close()
    for store in stores:
        store.close()
    lost = sum(one != other for one, other in zip(answers, replays, strict=True))
    print(f"{name}: acknowledged {len(answers)}, lost {lost}, doubled {len(effects) - len(set(effects))}")

    assert (keys, ["in flight"] * len(keys)) == (effects, told)
    assert [f"done {key}" for key in keys] == answers == replays
