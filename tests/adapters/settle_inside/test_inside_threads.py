"""
A function that blocks, in a thread of an awaiting gate: a framework's workers, and Django's views.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from counters import BARE, OPTIONS, BareDesk, charge, settle
from desks import CREATED, Caller, Desk, Kind, in_play, straight
from django_desk import DjangoDesk

from onceward import AsyncGate, ConfigurationError, Operation
from onceward.errors import NotSettled
from servers.postgres import running, wanted

BLOCKING = in_play(
    [
        *(kind for kind in BARE if not kind.awaits),
        Kind("Session", "sqlite+pysqlite"),
        Kind("Session", "postgresql+psycopg"),
        Kind("django", "sqlite"),
        Kind("django", "postgresql"),
    ]
)


def _desk(kind: Kind, folder: Path) -> Desk:
    made: type[Desk] = BareDesk if kind in BARE else DjangoDesk if kind.target == "django" else Desk
    return made(kind, folder)


@pytest.mark.parametrize("kind", BLOCKING, ids=str)
def test_a_blocking_connection_settles_under_an_awaiting_gate(kind: Kind, tmp_path: Path) -> None:
    """
    In a worker thread, with a blocking connection: committed together, undone together.
    """

    async def undoes(caller: Caller, operation: Operation) -> None:
        try:
            async with caller.transaction():
                await caller.charge()
                await settle(caller, operation)
                raise LookupError
        except LookupError:
            return

    async def whole(desk: Desk) -> None:
        async with AsyncGate(desk.place.gate_url(), scope="live:acme") as gate:

            async def call(key: str, work: Any) -> Any:
                async def function(operation: Operation) -> None:
                    async with desk.caller() as caller:
                        await work(caller, operation)

                in_a_thread = lambda operation: asyncio.to_thread(lambda: straight(function(operation)))  # noqa: E731
                return await gate.run(key, in_a_thread, **OPTIONS)

            assert [await call("order:1", charge) for _ in range(2)] == [CREATED, CREATED]
            with pytest.raises(NotSettled):
                await call("order:2", undoes)

        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled", "order:2": "released"})

    desk = _desk(kind, tmp_path)
    try:
        asyncio.run(whole(desk))
    finally:
        straight(desk.close())


def test_a_connection_of_the_other_colour_is_named(tmp_path: Path) -> None:
    """
    The error says which method to use.
    """

    class AsyncSession:
        pass

    async def whole() -> None:
        async with AsyncGate(f"sqlite:///{tmp_path}/app.db", scope="acme") as gate:

            async def wrong(operation: Operation) -> None:
                operation.settle_inside(AsyncSession(), 1)

            with pytest.raises(ConfigurationError, match=r"await operation\.settle_inside_async"):
                await gate.run("order:1", wrong, **OPTIONS)

    asyncio.run(whole())


@pytest.mark.skipif(not wanted(), reason="STORES leaves postgres out")
def test_rows_in_another_database_are_refused(tmp_path: Path) -> None:
    """
    The record could not commit with them: refused, and in doubt, because they may be there already.
    """
    server = running()
    server.execute("DROP DATABASE IF EXISTS elsewhere WITH (FORCE)")
    server.execute("CREATE DATABASE elsewhere")

    async def whole(desk: Desk) -> None:
        async with AsyncGate(desk.place.gate_url(), scope="live:acme") as gate:

            async def wrong(operation: Operation) -> None:
                import psycopg

                async with await psycopg.AsyncConnection.connect(server.url("elsewhere")) as connection:
                    await connection.execute("CREATE TABLE charges (amount TEXT)")
                    await operation.settle_inside_async(connection, 1)

            with pytest.raises(ConfigurationError, match="in one database"):
                await gate.run("order:1", wrong, **OPTIONS)

        assert desk.place.states() == {"order:1": "in_doubt"}

    desk = _desk(Kind("psycopg", "postgresql"), tmp_path)
    try:
        asyncio.run(whole(desk))
    finally:
        straight(desk.close())
        server.execute("DROP DATABASE elsewhere WITH (FORCE)")


@pytest.mark.skipif(not wanted(), reason="STORES leaves postgres out")
def test_a_connection_in_autocommit_is_refused(tmp_path: Path) -> None:
    """
    Its rows are committed one by one: refused, and in doubt.
    """
    import psycopg

    desk = _desk(Kind("psycopg", "postgresql"), tmp_path)

    def wrong(operation: Operation) -> None:
        with psycopg.connect(desk.place.url, autocommit=True) as connection:
            connection.execute("INSERT INTO charges VALUES (1, '1')")
            operation.settle_inside(connection, 1)

    with pytest.raises(ConfigurationError, match="autocommit"):
        desk.gate.run("order:1", wrong, **OPTIONS)

    assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "in_doubt"})
    straight(desk.close())


@pytest.mark.skipif(not wanted(), reason="STORES leaves postgres out")
def test_an_aborted_transaction_is_refused_and_released(tmp_path: Path) -> None:
    """
    A statement had failed and the error was swallowed: nothing can be committed any more.
    """
    import psycopg

    desk = _desk(Kind("psycopg", "postgresql"), tmp_path)

    def wrong(operation: Operation) -> None:
        with psycopg.connect(desk.place.url) as connection:
            connection.execute("INSERT INTO charges VALUES (1, '1')")
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT nonsense")
            operation.settle_inside(connection, 1)

    with pytest.raises(Exception, match="can only be rolled back"):
        desk.gate.run("order:1", wrong, **OPTIONS)

    assert (desk.place.rows(), desk.place.states()) == (0, {"order:1": "released"})
    straight(desk.close())
