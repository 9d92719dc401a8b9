"""The rules and the races again on Redis with every look turned off: the claim alone is the arbiter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward.stores._settled_ids import SettledIds
from onceward.testing.store_suite.fixtures import *  # noqa: F403
from onceward.testing.store_suite.fixtures import pytest_generate_tests  # noqa: F401
from onceward.testing.store_suite.test_put import TestPuttingWhereNothingStands  # noqa: F401
from onceward.testing.store_suite.test_races import TestRacesForOnePlace  # noqa: F401
from onceward.testing.store_suite.test_rules import TestExpiry, TestReplaying, crash_before_settling, effects  # noqa: F401
from servers.redis import PRIVATE, needed

needed()

STORES = (PRIVATE,)

pytestmark = pytest.mark.requirement("E17")


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What would have been looked at: nothing is."""
    asked: list[bytes] = []

    def never(self: SettledIds, id: bytes) -> bool:
        asked.append(id)
        return False

    monkeypatch.setattr(SettledIds, "__contains__", never)
    return asked


def test_a_replay_would_have_looked(do: Callable[[Any], Any], gate: Callable[..., Any], looks: list[bytes]) -> None:
    """
    The fault that is planted bites: whether to look is asked, refused, and the claim gives the first answer.
    """
    ours = gate()
    answers = [do(ours.run("k", lambda: "first")), do(ours.run("k", lambda: "second"))]

    assert answers == ["first", "first"]
    assert len(looks) >= 2
