"""
The outbox in the transactions of SQLAlchemy and Django: one text, every library, driver, colour and database.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from desks import KINDS, MATRIX, Caller, Desk, in_play
from playing import Scenario, play

from onceward import ConfigurationError, Gate, KeyReused
from onceward.messaging.outbox.tables import open_outbox
from onceward.runtime.environment import REAL

MESSAGES = "onceward_outbox_messages"


class Spoiled(Exception):
    """The caller's own work went wrong."""


@pytest.fixture(params=in_play(MATRIX), ids=str)
def at_all(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario with every driver under every target."""
    return lambda scenario: play(request.param, tmp_path, scenario)


@pytest.fixture(params=in_play(KINDS), ids=str)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario with every kind."""
    return lambda scenario: play(request.param, tmp_path, scenario)


def tables(desk: Desk) -> None:
    open_outbox(desk.place.url, REAL, create=True).close()
    desk.place.ask(f"DELETE FROM {MESSAGES}")


async def add(caller: Caller, payload: Any = None, **options: Any) -> str:
    given = {"topic": "charge.made", "aggregate": "customer:1", **options}
    return str(await caller.did(caller.desk.gate.outbox(caller.target).add("billing", payload, **given)))


def kept(desk: Desk) -> list[Any]:
    rows = desk.place.ask(f"SELECT id, endpoint, topic, aggregate, payload, headers FROM {MESSAGES} ORDER BY seq")
    return [tuple(bytes(one) if isinstance(one, memoryview) else one for one in row) for row in rows]


@pytest.mark.requirement("E37")
def test_a_message_commits_with_the_rows_or_not_at_all(at_all: Callable[[Scenario], None]) -> None:
    """
    Rolled back, there is neither; committed, both, with the id that was told; the same id again is the same message.
    """

    async def scenario(desk: Desk) -> None:
        tables(desk)
        async with desk.caller() as caller:
            with pytest.raises(Spoiled):
                async with caller.transaction():
                    await caller.charge()
                    await add(caller, {"a": 1})
                    raise Spoiled
            undone = (desk.place.rows(), kept(desk))
            async with caller.transaction():
                await caller.charge()
                made = await add(caller, {"b": 2, "a": "ü"}, headers={"X-Trace": "t-1"})
                mine = await add(caller, b"\x00\xff", id="mine", aggregate=None)
                again = await add(caller, b"\x00\xff", id="mine", aggregate=None)

            assert undone == (0, [])
            assert (desk.place.rows(), mine, again) == (1, "mine", "mine")
            assert [
                (made, "billing", "charge.made", "customer:1", '{"a":"ü","b":2}'.encode(), '{"X-Trace":"t-1"}'),
                ("mine", "billing", "charge.made", None, b"\x00\xff", "{}"),
            ] == kept(desk)

    at_all(scenario)


def test_an_id_of_ones_own_stands_for_one_content(at: Callable[[Scenario], None]) -> None:
    """
    The same id with another payload is refused, whether the first has been committed or not, and changes nothing.
    """

    async def scenario(desk: Desk) -> None:
        tables(desk)
        async with desk.caller() as caller:
            with pytest.raises(KeyReused, match="an id of its own"):
                async with caller.transaction():
                    await add(caller, 1, id="mine")
                    await add(caller, 2, id="mine")
            async with caller.transaction():
                await add(caller, 1, id="mine")
            for changed in ({"payload": 2}, {"topic": "other"}, {"aggregate": None}, {"headers": {"X-A": "b"}}):
                with pytest.raises(KeyReused):
                    async with caller.transaction():
                        await add(caller, **{"payload": 1, "id": "mine", **changed})

            assert [(row[0], row[4]) for row in kept(desk)] == [("mine", b"1")]

    at(scenario)


@pytest.mark.requirement("E37")
def test_a_message_in_an_atomic_operation_goes_with_its_record(at: Callable[[Scenario], None]) -> None:
    """
    Inside gate.atomic, a message is added when the operation runs, and not when it replays or fails.
    """

    async def scenario(desk: Desk) -> None:
        tables(desk)
        async with desk.caller() as caller:

            async def work() -> int:
                await caller.charge()
                await add(caller, 1)
                return 7

            async def failing() -> int:
                await work()
                raise Spoiled

            with pytest.raises(Spoiled):
                await caller.atomic("charge:1", failing)
            undone = (desk.place.rows(), len(kept(desk)))
            answers = [await caller.atomic("charge:1", work) for _ in range(2)]

            assert (undone, answers) == ((0, 0), [7, 7])
            assert (desk.place.rows(), len(kept(desk))) == (1, 1)

    at(scenario)


def test_a_connection_that_commits_each_statement_is_refused(at: Callable[[Scenario], None]) -> None:
    """
    In autocommit a message would commit alone, whatever becomes of the rows; it is refused, and none is written.
    """

    async def scenario(desk: Desk) -> None:
        tables(desk)
        if desk.kind.target == "django":
            async with desk.caller() as caller:
                with pytest.raises(ConfigurationError, match=r"transaction\.atomic"):
                    await add(caller)
        else:
            desk.engine = desk.engine.execution_options(isolation_level="AUTOCOMMIT")
            async with desk.caller() as caller:
                with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                    await add(caller)

        assert kept(desk) == []

    at(scenario)


def test_a_connection_to_another_database_is_refused(tmp_path: Path) -> None:
    """
    The relay looks in the gate's database: a message elsewhere would never be found.
    """
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/other.db")
    with (
        Gate(f"sqlite:///{tmp_path}/app.db", scope="live:acme") as gate,
        engine.connect() as connection,
        pytest.raises(ConfigurationError, match="in one database"),
    ):
        gate.outbox(connection).add("billing", 1, topic="t")
    engine.dispose()
