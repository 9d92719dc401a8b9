"""A database goes to PostgreSQL and comes back: its rows, rules, numbers and keys are as they were."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from moving_support import (
    NAME,
    asked,
    contents,
    databases,
    empty_folder,
    file_of,
    make_shop,
    moved,
    open_shop,
    place_of,
    told,
    tried,
)

from onceward.errors import OncewardError
from onceward.service.sql import SqlError
from onceward.service.sql.moving import export_database, import_database
from onceward.service.sql.postgres import PostgresEngine

pytestmark = pytest.mark.dose(1, of="version")


class TestThereAndBack:
    """From a folder to PostgreSQL, and to another folder."""

    def test_everything_is_as_it_was(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        Row by row with their types, and every record of a key, its result and its instants.
        """
        before = contents(folder)
        there = moved(folder, url, tmp_path / "there.jsonl")
        back = moved(url, empty_folder(tmp_path / "new"), tmp_path / "back.jsonl")

        assert [(one.name, one.rows, one.differences) for one in there.compared] == [
            ("customers", 6, []), ("orders", 11, []), ("notes", 3, []), ("hollow", 0, []), ("records of keys", 20, [])
        ]  # fmt: skip
        assert not back.differs
        assert contents(tmp_path / "new") == before

    def test_rules_still_hold_there(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        NOT NULL, CHECK, UNIQUE, the foreign key and its cascade, the default, and the view.
        """
        moved(folder, url, tmp_path / "there.jsonl")
        for sql, kind in (
            ("INSERT INTO customers (name) VALUES ('')", "check"),
            ("INSERT INTO customers (name) VALUES (NULL)", "notNull"),
            ("INSERT INTO orders VALUES ('x', 99, 99)", "foreignKey"),
            ("INSERT INTO orders VALUES ('x', 1, 1)", "uniqueViolation"),
        ):
            with pytest.raises(SqlError) as refused:
                asked(url, sql)
            assert refused.value.kind == kind
        asked(url, "DELETE FROM customers WHERE id = 1")

        assert asked(url, "SELECT count(*) FROM orders WHERE customer = 1").rows == [[0]]
        assert asked(url, "SELECT many FROM counted WHERE customer = 2").rows == [[2]]
        assert asked(url, "INSERT INTO customers DEFAULT VALUES RETURNING name, active").rows == [["nobody", True]]

    @pytest.mark.fault("moved-numbers-begin-again")
    def test_numbers_go_on(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        Customer 7 was deleted: its number is not handed out again, here or there or back here.
        """
        moved(folder, url, tmp_path / "there.jsonl")
        there = tried(lambda: asked(url, "INSERT INTO customers (name) VALUES ('next') RETURNING id").rows)
        moved(url, empty_folder(tmp_path / "new"), tmp_path / "back.jsonl")
        with open_shop(tmp_path / "new") as shop:
            back = shop.query("INSERT INTO customers (name) VALUES ('next') RETURNING id").rows

        assert (there, back) == ([[8]], [[9]])

    def test_an_empty_database_moves_too(self, url: str, tmp_path: Path) -> None:
        """
        No tables, no keys.
        """
        open_shop(tmp_path / "old").close()
        report = moved(tmp_path / "old", url, tmp_path / "there.jsonl")

        assert [one[:2] for one in report.compared] == [("records of keys", 0)]
        assert databases(url) == [NAME]

    def test_folders_exchange_databases_as_well(self, folder: Path, tmp_path: Path) -> None:
        """
        The same file, and no PostgreSQL anywhere.
        """
        before = contents(folder)
        moved(folder, empty_folder(tmp_path / "new"), tmp_path / "there.jsonl")

        assert contents(tmp_path / "new") == before
        assert sorted(one.name for one in file_of(tmp_path / "new").parent.iterdir()) == ["shop.db"]


TYPES: dict[str, Any] = {
    "smallint": 7, "bigint": {"integer": "9223372036854775807"}, "real": 0.1, "double precision": "-Infinity",
    "boolean": True, "text": "Zoë 'quoted' \\x", "character varying(5)": "fünf", "bytea": {"base64": "AN7/"},
    "numeric(12,4)": "12.5000", "numeric": "123456789012345678901234567890.10",
    "uuid": "0ab01a2b-0000-4000-8000-000000000001",
    "timestamp with time zone": "2026-11-17 10:00:00.5+00", "timestamp without time zone": "2026-11-17 10:00:00",
    "date": "2026-11-17", "interval": "1 day 02:00:00", "jsonb": {"json": {"a": [1, None]}},
    "json": {"json": {"b": 1.5}}, "integer[]": "{1,NULL,3}", "text[]": '{"a b",c}', "int4range": "[1,5)",
    "inet": "10.0.0.1", "bit varying(5)": "101",
}  # fmt: skip
"""A value of each type, as JSON has it."""
KINDS = """
SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'kinds' ORDER BY ordinal_position
"""


@pytest.mark.fault("moved-numbers-are-rounded")
def test_types_of_postgresql_come_back(url: str, tmp_path: Path) -> None:
    """
    Whatever SQLite has no type for is kept there as text, in PostgreSQL's own spelling, and is what it was afterwards.
    """
    columns = {f"c{number}": type for number, type in enumerate(TYPES)}
    declared = ", ".join(f"{name} {type}" for name, type in columns.items())
    marks = ", ".join("?" for _ in columns)

    async def make(engine: PostgresEngine) -> Any:
        await engine.create(*NAME)
        await engine.query(*NAME, f"CREATE TABLE kinds ({declared}, PRIMARY KEY (c0))")
        await engine.query(*NAME, f"INSERT INTO kinds VALUES ({marks})", list(TYPES.values()))
        await engine.query(*NAME, "INSERT INTO kinds (c0) VALUES (8)")
        return (await engine.query(*NAME, "SELECT * FROM kinds ORDER BY c0")).rows

    before, types = told(url, make), asked(url, KINDS).rows
    assert not moved(url, empty_folder(tmp_path / "new"), tmp_path / "there.jsonl").differs
    with closing(sqlite3.connect(file_of(tmp_path / "new"))) as line:
        kept = dict(zip(columns, line.execute("SELECT * FROM kinds ORDER BY c0").fetchone(), strict=True))
    told(url, lambda engine: engine.drop(*NAME))
    assert not moved(tmp_path / "new", url, tmp_path / "back.jsonl").differs
    wider = {"smallint": "bigint", "real": "double precision"}

    assert asked(url, "SELECT * FROM kinds ORDER BY c0").rows == before
    assert (kept["c8"], kept["c4"]) == ("12.5000", 1)
    assert asked(url, KINDS).rows == [[name, wider.get(type, type)] for name, type in types]


class TestTheComparison:
    """What arrived is read again; a difference is an error, and no name leads to it."""

    @pytest.mark.fault("moved-rows-are-not-compared")
    def test_a_row_that_was_changed_on_the_way_is_found(
        self, folder: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        One of ten rows is written with another number: both are shown, and the database is not published.
        """
        from onceward.service.sql.moving.postgres_target import PostgresMoveTarget

        add = PostgresMoveTarget.add_rows

        def spoil(self: Any, table: Any, rows: Any, position: int) -> None:
            wrong = [[one[0], one[1], 4711] if one[0] == "o-3" else one for one in rows]
            add(self, table, wrong, position)

        monkeypatch.setattr(PostgresMoveTarget, "add_rows", spoil)
        report = moved(folder, url, tmp_path / "there.jsonl")
        differences = {one.name: one.differences for one in report.compared}

        assert differences["orders"] == ['not imported: ["o-3",4,3]', 'not in the file: ["o-3",4,4711]']
        assert differences["customers"] == []
        assert databases(url) == []

    @pytest.mark.fault("moved-records-are-not-compared")
    def test_a_record_that_was_changed_on_the_way_is_found(
        self, folder: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Its fingerprint is another: a retry would be refused there.
        """
        from onceward.service.sql.moving.postgres_target import PostgresMoveTarget

        add = PostgresMoveTarget.add_records

        def spoil(self: Any, records: Any, position: int) -> None:
            wrong = [one._replace(fingerprint=bytes(33)) if one.key.endswith("customer-3") else one for one in records]
            add(self, wrong, position)

        monkeypatch.setattr(PostgresMoveTarget, "add_records", spoil)
        report = moved(folder, url, tmp_path / "there.jsonl")

        assert len(report.compared[-1].differences) == 2
        assert databases(url) == []

    def test_a_second_import_of_the_same_file_does_nothing(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        On PostgreSQL and in a folder; and another file is refused, whatever is in it.
        """
        moved(folder, url, tmp_path / "there.jsonl")
        empty_folder(tmp_path / "new")
        for where in (url, str(tmp_path / "new")):
            import_database(tmp_path / "there.jsonl", where)
            asked(url, "DELETE FROM notes")
            assert import_database(tmp_path / "there.jsonl", where).already
        make_shop(tmp_path / "other", customers=2)
        export_database(place_of(tmp_path / "other"), tmp_path / "other.jsonl")

        for where in (url, str(tmp_path / "new")):
            with pytest.raises(OncewardError, match="the database shop already exists"):
                import_database(tmp_path / "other.jsonl", where)
        assert asked(url, "SELECT count(*) FROM notes").rows == [[0]]
