"""The rules and the races again on PostgreSQL with every look turned off: the claim alone is the arbiter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward.stores import _postgres_wire as wire
from onceward.stores._settled_ids import SettledIds
from onceward.testing.store_suite.fixtures import *  # noqa: F403
from onceward.testing.store_suite.fixtures import pytest_generate_tests  # noqa: F401
from onceward.testing.store_suite.rows import row
from onceward.testing.store_suite.test_put import TestPuttingWhereNothingStands  # noqa: F401
from onceward.testing.store_suite.test_races import TestRacesForOnePlace  # noqa: F401
from onceward.testing.store_suite.test_rules import TestExpiry, TestReplaying, crash_before_settling, effects  # noqa: F401
from servers.postgres import PRIVATE, needed

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


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nor does a claim look inside its own statement: it inserts, and the constraint decides.

    What stands there is still read, for the answer, but after it was decided.
    """
    for name, condition in (
        ("CLAIM", b" NOT EXISTS (SELECT FROM onceward_records AS seen WHERE id = $1::bytea) AND"),
        ("INSERT", b" WHERE NOT EXISTS (SELECT FROM onceward_records AS seen WHERE id = $1::bytea)"),
        ("BATCH", b" AND NOT EXISTS (SELECT FROM seen WHERE seen.id = given.id)"),
    ):
        statement = getattr(wire, name)
        sql = statement.sql.replace(condition, b"")
        assert len(statement.sql) - len(condition) == len(sql), f"{name} looks in another way; take that away here"
        monkeypatch.setattr(wire, name, statement._replace(name=statement.name + b"_unread", sql=sql))


@pytest.mark.fault("a-claim-takes-what-stands-there")
@pytest.mark.parametrize("crowd", [1, 8])
def test_a_claim_that_did_not_look_changes_nothing(
    do: Callable[[Any], Any], store: Any, together: Callable[..., list[Any]], scope: str, crowd: int
) -> None:
    """
    Where a record stands, the insert is refused by the primary key: the claim is told who is there, and that is all.
    """

    def claim(number: int) -> Any:
        return (yield store.put(row(scope, f"k{number}"), None))

    first = together(*(claim(number) for number in range(crowd)))
    again = together(*(claim(number) for number in range(crowd)))
    after = [do(store.load(one.record.id)) for one in first]

    assert [True] * crowd == [one.landed for one in first]
    assert [(False, one.record.version) for one in first] == [(one.landed, one.record.version) for one in again]
    assert [(one.record.version, one.record.token) for one in first] == [(one.version, one.token) for one in after]


def test_a_replay_would_have_looked(do: Callable[[Any], Any], gate: Callable[..., Any], looks: list[bytes]) -> None:
    """
    The fault that is planted bites: whether to look is asked, refused, and the claim gives the first answer.
    """
    ours = gate()
    answers = [do(ours.run("k", lambda: "first")), do(ours.run("k", lambda: "second"))]

    assert answers == ["first", "first"]
    assert len(looks) >= 2
