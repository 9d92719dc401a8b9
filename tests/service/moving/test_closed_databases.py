"""A database that was closed for a move takes nothing more, whoever knows it: no key runs on both sides."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from moving_support import CUSTOMER, NAME, SCOPE, asked, customer, moved, open_shop, place_of

from onceward.runtime.environment import Environment
from onceward.service.sql import Keyed, SqlError, SqliteEngine
from onceward.service.sql.moving import close_database, export_database, reopen_database
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.schema_records import SchemaRecords

pytestmark = pytest.mark.dose(1, of="version")


@pytest.mark.fault("closed-files-take-writes")
def test_a_closed_file_takes_no_writes(folder: Path) -> None:
    """
    In a service that has it open already, with and without a key, in a batch and as a new table; reads go on. A key
    that ran before is not answered here any more, either: its database is elsewhere.
    """

    async def story() -> tuple[list[Any], Any]:
        async with SqliteEngine(folder / "databases", writers=1, readers=1, slow=1) as engine:
            await engine.query(*NAME, "INSERT INTO notes VALUES ('before', 1)")
            await asyncio.to_thread(close_database, place_of(folder))
            refused = []
            for sql, key in (
                ("INSERT INTO notes VALUES ('after', 1)", None),
                ("INSERT INTO notes VALUES ('after', 1)", Keyed(SCOPE, "after")),
                ("CREATE TABLE late (n INT)", None),
                (CUSTOMER, Keyed(SCOPE, "customer-1")),
            ):
                with pytest.raises(SqlError) as error:
                    await engine.query(*NAME, sql, customer(1) if sql == CUSTOMER else None, identity=key)
                refused.append(error.value)
            with pytest.raises(SqlError):
                await engine.batch(*NAME, ["INSERT INTO notes VALUES ('after', 1)"])
            return refused, await engine.query(*NAME, "SELECT count(*) FROM notes WHERE word = 'after'")

    refused, count = asyncio.run(story())

    assert {one.kind for one in refused} == {"readonly"}
    assert "closed: it is moving" in str(refused[0])
    assert "the same key" in str(refused[0].hint)
    assert count.rows == [[0]]


def test_a_file_is_opened_again(folder: Path) -> None:
    """
    When it was not moved after all; closing and opening twice is harmless.
    """
    for _ in range(2):
        close_database(place_of(folder))
    assert [reopen_database(place_of(folder)) for _ in range(2)] == [True, False]
    with open_shop(folder) as shop:
        shop.query("INSERT INTO notes VALUES ('again', 1)")


class Waits(Environment):
    """Tells when somebody waits."""

    def __init__(self) -> None:
        self.noticed = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.noticed.set()
        super().sleep(seconds)


class TestOnPostgresql:
    """The role gets another name."""

    @pytest.mark.fault("closed-schemas-take-writes")
    def test_a_service_that_knows_it_is_refused(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        Its engine remembers the schema, and the server refuses the role; opened again, everything is as it was.
        """
        moved(folder, url, tmp_path / "there.jsonl")

        async def story() -> list[Any]:
            async with PostgresEngine(url) as engine:
                await engine.query(*NAME, "INSERT INTO notes VALUES ('before', 1)")
                await asyncio.to_thread(close_database, place_of(url))
                for key in (None, Keyed(SCOPE, "after")):
                    with pytest.raises(SqlError, match="closed: it is moving"):
                        await engine.query(*NAME, "INSERT INTO notes VALUES ('after', 1)", identity=key)
                assert not await engine.create(*NAME)
                await asyncio.to_thread(reopen_database, place_of(url))
                return (await engine.query(*NAME, "SELECT word FROM notes WHERE many = 1")).rows

        assert asyncio.run(story()) == [["before"]]

    @pytest.mark.fault("closing-does-not-wait")
    def test_what_was_under_way_is_waited_for(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        A transaction has taken the role before the close, and writes and commits after it: its row is in the file.
        """
        from onceward.service.sql.moving.places import _postgres, _role_of

        moved(folder, url, tmp_path / "there.jsonl")
        with _postgres(place_of(url)) as line:
            role = _role_of(line, place_of(url))
            line.ask("BEGIN")
            line.ask(f"SET LOCAL ROLE {role}")
            reports: list[Any] = []
            waits = Waits()
            file = tmp_path / "back.jsonl"
            closing = threading.Thread(
                target=lambda: reports.append(export_database(place_of(url), file, close=True, environment=waits))
            )
            closing.start()
            while closing.is_alive() and not waits.noticed.wait(0.01):
                pass
            line.ask(f"INSERT INTO {role}.notes VALUES ('late', 1)")
            line.ask("COMMIT")
        closing.join()

        assert reports[0].closed
        assert b'"late",1' in (tmp_path / "back.jsonl").read_bytes()

    @pytest.mark.fault("closed-schemas-are-not-seen")
    def test_operators_still_see_a_closed_database(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        Its records and its bytes, as before.
        """
        moved(folder, url, tmp_path / "there.jsonl")
        seen = []
        for step in (lambda: None, lambda: close_database(place_of(url))):
            step()
            with closing(SchemaRecords(url)) as records:
                names = records.databases("live", "acme")
                found = records.page(names, 100).found
                seen.append((names, [one.record.id for one in found], list(records.usage(["acme"], records=False))))

        assert len(seen[0][1]) > 5
        assert seen[0][2][0][2] > 0
        assert seen[1] == seen[0]

    def test_a_closed_database_can_be_dropped(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        When everybody has gone: schema, role and name.
        """
        moved(folder, url, tmp_path / "there.jsonl")
        close_database(place_of(url))

        async def story() -> tuple[bool, bool, bool]:
            async with PostgresEngine(url) as engine:
                return await engine.drop(*NAME), await engine.drop(*NAME), await engine.create(*NAME)

        assert asyncio.run(story()) == (True, False, True)
        assert asked(url, "SELECT 1").rows == [[1]]


def test_an_open_export_says_so(folder: Path, tmp_path: Path) -> None:
    """
    The file knows that its source went on.
    """
    assert not export_database(place_of(folder), tmp_path / "there.jsonl").closed
    with open_shop(folder) as shop:
        shop.query("INSERT INTO notes VALUES ('goes on', 1)")
