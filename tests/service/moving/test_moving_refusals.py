"""What cannot be moved as it is is found before anything is written, and listed with what to do."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from moving_support import (
    NAME,
    as_administrator,
    asked,
    databases,
    empty_folder,
    file_of,
    moved,
    open_shop,
    place_of,
    told,
    tried,
)

from onceward.errors import ConfigurationError, OncewardError
from onceward.service.sql.moving import ImportOptions, MoveChoices, export_database, import_database
from onceward.service.sql.moving.export_file import ExportHeader, ExportWriter
from onceward.service.sql.moving.places import open_source
from onceward.service.sql.postgres import PostgresEngine

pytestmark = [pytest.mark.dose(1, of="version"), pytest.mark.slow]


def make(folder: Path, *statements: str) -> Path:
    """A database in a folder, made by these."""
    with open_shop(folder) as shop:
        for sql in statements:
            shop.query(sql)
    return folder


def untouched(url: str) -> bool:
    """Whether an import has left nothing on the server."""
    schemas = as_administrator(url, "SELECT 1 FROM pg_namespace WHERE nspname LIKE 'ow\\_%%'")
    known = as_administrator(url, "SELECT 1 FROM onceward_databases")
    return not databases(url) and len(schemas) == len(known)


OBSTACLES = {
    "text in a column of numbers": (
        ["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1), ('two'), ('three')"],
        ("column:t.n", "row 2 does not fit bigint", "--column-type t.n=TYPE"),
    ),
    "numbers in a column of texts": (
        ["CREATE TABLE t (at DATETIME)", "INSERT INTO t VALUES (1763373600)"],
        ("column:t.at", "row 1 is a whole number", "--column-type t.at=TYPE"),
    ),
    "longer than declared": (
        ["CREATE TABLE t (name VARCHAR(3))", "INSERT INTO t VALUES ('four')"],
        ("column:t.name", "row 1 is text, and would come back", "--column-type t.name=TYPE"),
    ),
    "more digits than declared": (
        ["CREATE TABLE t (price DECIMAL(5, 2))", "INSERT INTO t VALUES (1.255)"],
        ("column:t.price", "row 1 is a number, and would come back from numeric(5,2)", "--column-type"),
    ),
    "a boolean that is none": (
        ["CREATE TABLE t (done BOOLEAN)", "INSERT INTO t VALUES (2)"],
        ("column:t.done", "row 1 does not fit boolean", "--column-type"),
    ),
    "NUL in a text": (
        ["CREATE TABLE t (name TEXT)", "INSERT INTO t VALUES ('a' || char(0))"],
        ("column:t.name", "row 1 does not fit text", "--column-type"),
    ),
    "no value in a primary key": (
        ["CREATE TABLE t (id TEXT PRIMARY KEY)", "INSERT INTO t VALUES (NULL)"],
        ("column:t.id", "row 1 is NULL, and the column does not allow that", "--column-type"),
    ),
    "a trigger": (
        ["CREATE TABLE t (n INT)", "CREATE TRIGGER tr AFTER INSERT ON t BEGIN DELETE FROM t; END"],
        ("trigger:tr", "triggers are not moved", "--without trigger:tr"),
    ),
    "a column that is computed": (
        ["CREATE TABLE t (n INT, twice INT AS (n * 2))"],
        ("generated:t.twice", "the database computes it", "--without generated:t.twice"),
    ),
    "a collation": (
        ["CREATE TABLE t (name TEXT COLLATE NOCASE)"],
        ("collation:t.name", "it compares by NOCASE", "--without collation:t.name"),
    ),
    "a default of one dialect": (
        ["CREATE TABLE t (at TEXT DEFAULT CURRENT_TIMESTAMP)"],
        ("default:t.at", "its default is not a plain literal", "--without default:t.at"),
    ),
    "a check of one dialect": (
        ["CREATE TABLE t (name TEXT CHECK (name LIKE 'a%'))"],
        ("check:t.1", "not written in SQL that means the same in both", "--without check:t.1"),
    ),
    "an index over an expression": (
        ["CREATE TABLE t (name TEXT)", "CREATE INDEX i ON t (lower(name))"],
        ("index:i", "it is over an expression", "--without index:i"),
    ),
    "a view of one dialect": (
        ["CREATE TABLE t (name TEXT)", "CREATE VIEW v AS SELECT group_concat(name) AS names FROM t"],
        ("view:v", "not written in SQL that means the same in both", "--without view:v"),
    ),
    "a name of the server's": (
        ["CREATE TABLE pg_things (n INT)"],
        ("table:pg_things", "pg_things is not allowed here", "--without table:pg_things"),
    ),
    "a foreign key between kinds": (
        ["CREATE TABLE p (id TEXT PRIMARY KEY)", "CREATE TABLE c (p INTEGER REFERENCES p (id))"],
        ("foreignkey:c.1", "cannot be implemented", "--without foreignkey:c.1"),
    ),
}


@pytest.mark.fault("values-are-not-tried-before", "expressions-are-taken-as-they-are")
@pytest.mark.dose(8)
@pytest.mark.parametrize("case", OBSTACLES)
def test_each_is_listed_and_nothing_is_written(case: str, url: str, tmp_path: Path) -> None:
    """
    What it is, why, and what to type; the server is as it was.
    """
    statements, (what, why, advice) = OBSTACLES[case]
    report = moved(make(tmp_path / "old", *statements), url, tmp_path / "there.jsonl", close=False)
    found = {one.what: one for one in report.obstacles}

    assert list(found) == [what]
    assert why in found[what].why
    assert advice in found[what].advice
    assert untouched(url)


class TestGoingOn:
    """What the operator decides is done, and nothing else."""

    def test_a_column_of_another_type_and_parts_left_out(self, url: str, tmp_path: Path) -> None:
        """
        Text for what is no number, no trigger, no second table; the rest is there.
        """
        old = make(
            tmp_path / "old",
            "CREATE TABLE t (n INTEGER CHECK (n LIKE '%'))",
            "INSERT INTO t VALUES ('one'), ('two')",
            "CREATE TABLE gone (n INT)",
            "INSERT INTO gone VALUES (1)",
            "CREATE TABLE after_it (n INT)",
            "INSERT INTO after_it VALUES (5)",
            "CREATE TRIGGER tr AFTER INSERT ON t BEGIN DELETE FROM t; END",
        )
        left_out = ("check:t.1", "trigger:tr", "table:gone")
        report = moved(old, url, tmp_path / "there.jsonl", column_types={"t.n": "text"}, without=left_out)

        assert (report.obstacles, report.differs) == ([], False)
        assert asked(url, "SELECT n FROM t ORDER BY n").rows == [["one"], ["two"]]
        assert asked(url, "SELECT n FROM after_it").rows == [[5]]
        assert [one.name for one in told(url, lambda engine: engine.tables(*NAME))] == ["after_it", "t"]

    def test_a_choice_that_names_nothing_is_refused(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        A word that was mistyped would otherwise leave out nothing, or the wrong thing.
        """
        export_database(place_of(folder), tmp_path / "there.jsonl")

        for choices in (MoveChoices({"customers.nmae": "text"}), MoveChoices(without=["table:cusotmers"])):
            with pytest.raises(ConfigurationError, match=r"there is no .* in this file"):
                import_database(tmp_path / "there.jsonl", url, ImportOptions(choices))
        assert untouched(url)

    def test_a_dry_run_writes_nothing(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        Not on PostgreSQL, and not in a folder.
        """
        export_database(place_of(folder), tmp_path / "there.jsonl")
        for where in (url, str(empty_folder(tmp_path / "new"))):
            report = import_database(tmp_path / "there.jsonl", where, ImportOptions(dry_run=True))
            assert (report.obstacles, report.compared) == ([], [])

        assert untouched(url)
        assert list((tmp_path / "new" / "databases").iterdir()) == []


def test_what_only_postgresql_has_is_listed(url: str, tmp_path: Path) -> None:
    """
    Types of one's own, sequences, materialized views, partitions, exclusions, numbers that are no key.
    """
    statements = (
        "CREATE TYPE mood AS ENUM ('good')",
        "CREATE SEQUENCE counter",
        "CREATE TABLE t (n numeric CHECK (n > 0), at timestamptz DEFAULT now(), no int GENERATED ALWAYS AS IDENTITY)",
        "CREATE MATERIALIZED VIEW kept AS SELECT 1 AS one",
        "CREATE TABLE parts (n int) PARTITION BY RANGE (n)",
        "CREATE TABLE ranges (r int4range, EXCLUDE USING gist (r WITH &&))",
        "CREATE INDEX hashed ON t USING hash (n)",
        "CREATE VIEW v AS SELECT n::text AS shown FROM t",
    )

    async def first(engine: PostgresEngine) -> None:
        await engine.create(*NAME)
        for sql in statements:
            await engine.query(*NAME, sql)

    told(url, first)
    report = moved(url, empty_folder(tmp_path / "new"), tmp_path / "there.jsonl", close=False)

    assert sorted(one.what for one in report.obstacles) == [
        "check:t.1", "constraint:ranges.ranges_r_excl", "default:t.at", "default:t.no", "index:hashed",
        "materializedview:kept", "sequence:counter", "table:parts", "type:mood", "view:v",
    ]  # fmt: skip
    assert list((tmp_path / "new" / "databases").iterdir()) == []


@pytest.mark.fault("values-of-any-size-fit")
def test_a_value_that_is_too_large_for_sqlite_is_listed(url: str, tmp_path: Path) -> None:
    """
    A tenant's SQLite takes a million bytes at once: known before anything is written.
    """

    async def first(engine: PostgresEngine) -> None:
        await engine.create(*NAME)
        await engine.query(*NAME, "CREATE TABLE t (id int, name text)")
        await engine.query(*NAME, "INSERT INTO t VALUES (1, ''), (2, repeat('x', 1000001))")

    told(url, first)
    report = tried(lambda: moved(url, empty_folder(tmp_path / "new"), tmp_path / "there.jsonl", close=False))

    assert [(one.what, one.why) for one in getattr(report, "obstacles", ())] == [
        ("column:t.name", "row 2 is refused: string or blob too big")
    ]
    assert list((tmp_path / "new" / "databases").iterdir()) == []


class TestFiles:
    """A file is whole, or it is refused."""

    @pytest.mark.fault("checksums-are-not-looked-at")
    @pytest.mark.parametrize("damage", ["cut", "changed", "lacking", "empty", "other"])
    def test_a_damaged_file_is_refused(self, damage: str, folder: Path, tmp_path: Path) -> None:
        """
        Cut off, changed in one letter, without a line, empty, or none at all: nothing is done.
        """
        path = tmp_path / "there.jsonl"
        export_database(place_of(folder), path)
        lines = path.read_bytes().splitlines(keepends=True)
        spoilt = {
            "cut": lines[:-1],
            "changed": [one.replace(b"o-3", b"o-4") for one in lines],
            "lacking": [*lines[:3], *lines[4:]],
            "empty": [],
            "other": [b'{"name": "something else"}\n'],
        }
        path.write_bytes(b"".join(spoilt[damage]))

        with pytest.raises(ConfigurationError, match=r"is damaged or incomplete|is not an export"):
            import_database(path, str(empty_folder(tmp_path / "new")))
        assert list((tmp_path / "new" / "databases").iterdir()) == []

    def test_it_is_for_its_owner_alone(self, folder: Path, tmp_path: Path) -> None:
        """
        It holds a tenant's data.
        """
        export_database(place_of(folder), tmp_path / "there.jsonl")

        assert (tmp_path / "there.jsonl").stat().st_mode & 0o777 == 0o600

    @pytest.mark.fault("imported-statements-are-not-checked")
    @pytest.mark.parametrize(
        ("place", "text"),
        [
            ("default", "pg_read_file('/etc/passwd')"),
            ("default", "(SELECT current_user)"),
            ("type", "text FROM pg_authid; DROP SCHEMA onceward CASCADE; --"),
            ("type", "regrole"),
            ("name", "onceward_records"),
        ],
    )
    def test_a_file_may_do_no_more_than_its_tenant(self, place: str, text: str, url: str, tmp_path: Path) -> None:
        """
        Somebody wrote the file by hand, with a right checksum: what a tenant could not send is refused.
        """

        async def make_one(engine: PostgresEngine) -> None:
            await engine.create(*NAME)
            await engine.query(*NAME, "CREATE TABLE t (n text)")
            await engine.query(*NAME, "INSERT INTO t VALUES ('x')")

        told(url, make_one)
        export_database(place_of(url), tmp_path / "there.jsonl")
        told(url, lambda engine: engine.drop(*NAME))

        def spoil(table: dict[str, Any]) -> None:
            if place == "name":
                table["name"] = text
            else:
                table["columns"][0][{"type": 1, "default": 3}[place]] = text

        rewritten(tmp_path / "there.jsonl", spoil)
        report = import_database(tmp_path / "there.jsonl", url)

        assert len(report.obstacles) == 1
        assert untouched(url)

    def test_sqlites_rules_hold_for_files_as_well(self, folder: Path, tmp_path: Path) -> None:
        """
        A name of ours, and a function that no tenant may call.
        """
        export_database(place_of(folder), tmp_path / "one.jsonl")
        export_database(place_of(folder), tmp_path / "two.jsonl")
        rewritten(tmp_path / "one.jsonl", lambda table: table.update(name=f"onceward_{table['name']}"))
        rewritten(tmp_path / "two.jsonl", lambda table: table.update(checks=["load_extension('x') IS NULL"]))
        empty_folder(tmp_path / "new")

        for name in ("one.jsonl", "two.jsonl"):
            report = import_database(tmp_path / name, str(tmp_path / "new"))
            assert report.obstacles, name
        assert list((tmp_path / "new" / "databases").iterdir()) == []


def rewritten(path: Path, change: Any) -> None:
    """Change every table of a file's schema, and make its checksum right again."""
    first, *lines, last = path.read_bytes().splitlines(keepends=True)
    header, end = json.loads(first), json.loads(last)
    for table in header["schema"]["tables"]:
        change(table)
    kept = [json.dumps(header).encode() + b"\n", *lines]
    end["end"]["sha256"] = sha256(b"".join(kept)).hexdigest()
    path.write_bytes(b"".join(kept) + json.dumps(end).encode() + b"\n")


@pytest.mark.fault("links-are-followed")
def test_a_link_in_the_place_of_an_import_is_refused(folder: Path, tmp_path: Path) -> None:
    """
    Whoever may write into the folder could lead an operator's command anywhere.
    """
    export_database(place_of(folder), tmp_path / "there.jsonl")
    new = empty_folder(tmp_path / "new")
    file_of(new).parent.mkdir()
    (tmp_path / "precious").write_bytes(b"as it was")
    file_of(new).with_name(".shop.db.importing").symlink_to(tmp_path / "precious")

    refused = tried(lambda: import_database(tmp_path / "there.jsonl", str(new)))

    assert "symbolic link" in str(refused)
    assert (tmp_path / "precious").read_bytes() == b"as it was"


def test_two_exports_do_not_write_one_file(folder: Path, tmp_path: Path) -> None:
    """
    The second is refused while the first writes.
    """
    path = tmp_path / "there.jsonl"
    with open_source(place_of(folder)) as (source, _):
        header = ExportHeader("acme", "live", "shop", False, 0, source.schema)
        with ExportWriter(path, header), pytest.raises(ConfigurationError, match="another export is writing"):
            export_database(place_of(folder), path)

    assert export_database(place_of(folder), path).totals.records == 20


def test_a_database_that_is_not_there_is_not_made(url: str, tmp_path: Path) -> None:
    """
    Neither on PostgreSQL nor in a folder, nor a folder that is none.
    """
    for where in (url, str(empty_folder(tmp_path / "new")), str(tmp_path / "nowhere")):
        with pytest.raises(OncewardError, match=r"there is no (database shop|folder)"):
            export_database(place_of(where), tmp_path / "there.jsonl", close=True)

    assert not file_of(tmp_path / "new").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new"]


def test_text_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    """
    SQLite keeps any bytes as text; the table is named, and nothing is exported.
    """
    make(tmp_path / "old", "CREATE TABLE t (name TEXT)")
    with closing(sqlite3.connect(file_of(tmp_path / "old"))) as line, line:
        line.execute("INSERT INTO t VALUES (CAST(x'ff' AS TEXT))")

    with pytest.raises(ConfigurationError, match="a row of the table t cannot be read"):
        export_database(place_of(tmp_path / "old"), tmp_path / "there.jsonl")
    assert not (tmp_path / "there.jsonl").exists()
