"""Records of keyed SQL, in the tenants' files or beside their schemas: over HTTP and by commands, by key and by age."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from service_support import INSERT, ON_BOTH, Served

from onceward.cli import main
from onceward.errors import RequestInvalid, StoreUnavailable
from onceward.gate.operator_actions import digest_of_key
from onceward.service.sql import database_records
from onceward.service.sql.database_files import DatabaseName
from onceward.service.sql.database_records import DatabaseRecords
from onceward.service.sql.limits import Limits
from onceward.service.sql.requests import Keyed, build_request
from onceward.service.sql.tenant_database import WritableDatabase
from onceward.stores import _sqlite_rows as rows
from onceward.stores._sqlite_schema import migrations

HOUR = 3_600_000_000


class Kept:
    """A tenant of its own with two databases, three keys and a step."""

    def __init__(self, served: Served, tenant: str) -> None:
        self.served, self.tenant = served, tenant
        self.token = served.new_token(tenant, role="admin")
        for name in ("first", "second"):
            self.call("PUT", f"/v1/db/{tenant}/{name}")
            self.query(name, "CREATE TABLE events (id TEXT PRIMARY KEY, name TEXT NOT NULL)")
        self.query("first", INSERT, ["a", "x"], key="key-a")
        self.query("second", INSERT, ["b", "x"], key="key-b")
        self.query("first", INSERT, ["c", "x"], key="key-c")
        self.query("second", INSERT, ["d", "x"], headers={"Plan-Key": "plan", "Plan-Step": "step"})

    def call(self, method: str, path: str, document: Any = None, **more: Any) -> Any:
        return self.served.call(method, path, document, **{"token": self.token, **more})

    def query(self, name: str, sql: str, params: Any = None, **more: Any) -> Any:
        return self.served.query(f"/v1/db/{self.tenant}/{name}", sql, params, token=self.token, **more)

    def records(self, query: str = "", **more: Any) -> list[dict[str, Any]]:
        """What `/v1/records` lists."""
        heard = self.call("GET", f"/v1/records{query}", **more)
        assert heard.status == 200, heard.body
        return list(heard.document["records"])

    def keys(self, query: str = "", **more: Any) -> list[str]:
        return [one["key"] for one in self.records(query, **more)]

    def connection(self, name: str) -> Any:
        """Where the records of a database are."""
        if self.served.is_on_postgres:
            return psycopg.connect(self.served.store_url)
        return sqlite3.connect(self.file(name))

    def file(self, name: str) -> Path:
        return self.served.folder / "databases" / f"test-{self.tenant}" / f"{name}.db"


@pytest.fixture
def kept(served: Served) -> Kept:
    """For tests that only look."""
    if served.address not in _KEPT:
        _KEPT[served.address] = Kept(served, "kept")
    return _KEPT[served.address]


_KEPT: dict[str, Kept] = {}


A, B, C, STEP = "test:key-a", "test:key-b", "test:key-c", "test:plan / step"


@pytest.mark.fault("keyed-sql-is-in-no-list")
@ON_BOTH
def test_keyed_writes_are_listed(kept: Kept) -> None:
    """
    All of them, with their database; by key, by step, and by the digest that logs show.
    """
    listed = {(one["database"], one["key"], one["state"]) for one in kept.records()}
    [digest] = [one["id"][:12] for one in kept.records("?key=key-a")]

    assert listed == {
        ("first", A, "settled"), ("second", B, "settled"), ("first", C, "settled"), ("second", STEP, "settled")
    }  # fmt: skip
    assert sorted(kept.keys("?database=first")) == [A, C]
    assert kept.keys("?key=key-b") == [B]
    assert kept.keys("?key=key-b&database=first") == []
    assert kept.keys("?plan=plan&key=step") == [STEP]
    assert kept.keys(f"?digest={digest}") == [A]
    assert kept.served.is_on_postgres or digest == digest_of_key("test:kept:db:first", "key-a")
    assert kept.keys("?unsettled=true") == [], "a record in a database commits with what it is about"


@ON_BOTH
def test_one_record_is_shown_with_its_result(kept: Kept) -> None:
    """
    By id or digest, wherever it is. A list has no results.
    """
    [listed] = kept.records("?key=key-a")
    shown = kept.call("GET", f"/v1/records/{listed['id']}").document
    by_digest = kept.call("GET", f"/v1/records/{listed['id'][:12]}?database=first").document

    assert listed["result"] is None
    assert shown["result"]["rowsWritten"] == 1
    assert shown == {**by_digest, "replaySecondsLeft": shown["replaySecondsLeft"]}
    assert kept.call("GET", f"/v1/records/{listed['id']}?database=second").status == 404


@pytest.mark.parametrize("query", ["", "&database=*", "&database=*&order=age", "&database=*&older_than=0"])
@ON_BOTH
def test_pages_have_everything_once(kept: Kept, query: str) -> None:
    """
    One record a page, in the order of the databases and ids, or of age, until there is no next one.
    """
    found: list[str] = []
    after = ""
    while after is not None:
        more = f"&after={after}" if after else ""
        page = kept.call("GET", f"/v1/records?limit=1{query}{more}").document
        found += [one["key"] for one in page["records"]]
        after = page["after"]

    assert sorted(found) == sorted([A, B, C, STEP])
    if "order" in query or "older" in query:
        assert found == [A, B, C, STEP], "the oldest first"


@pytest.mark.fault("age-is-not-looked-at")
@ON_BOTH
def test_old_ones_are_found_by_age(served: Served) -> None:
    """
    `older_than` leaves out what is younger; the age is that of the first request.
    """
    mine = Kept(served, "aged")
    aged = f"UPDATE onceward_records SET first_at = first_at - CASE key WHEN '{B}' THEN {2 * HOUR} ELSE {HOUR} END "
    aged += f"WHERE key IN ('{B}', '{STEP}') AND scope LIKE 'test:aged:%'"
    with closing(mine.connection("second")) as connection, connection:
        connection.execute(aged)

    assert mine.keys("?database=*&order=age") == [B, STEP, A, C]
    assert mine.keys("?database=*&older_than=5400") == [B]
    assert mine.keys("?database=second&older_than=1800") == [B, STEP]
    assert mine.keys("?database=first&older_than=1800") == []


@pytest.mark.fault("a-token-sees-records-of-other-databases")
@ON_BOTH
def test_a_token_for_one_database_sees_only_its_records(kept: Kept) -> None:
    """
    In every way of asking; and nothing of the service's own store.
    """
    only = kept.served.new_token("kept", role="admin", databases=["second"])
    of_first = kept.records("?key=key-a")[0]["id"]

    assert sorted(kept.keys(token=only)) == [B, STEP]
    assert sorted(kept.keys("?database=*", token=only)) == [B, STEP]
    assert kept.keys("?database=*&order=age", token=only) == [B, STEP]
    assert kept.keys("?key=key-a", token=only) == []
    assert kept.keys(f"?digest={of_first}", token=only) == []
    assert kept.call("GET", f"/v1/records/{of_first}", token=only).status == 404
    assert kept.call("GET", "/v1/records?database=first", token=only).status == 403


@ON_BOTH
def test_nobody_sees_another_tenants_records_or_another_environments(kept: Kept) -> None:
    """
    Not by list, key, digest, scope or a page's beginning.
    """
    of_first = kept.records("?key=key-a")[0]["id"]
    for stranger in (kept.served.new_token("stranger", role="admin"),
                     kept.served.new_token("kept", role="admin", environment="live")):  # fmt: skip
        assert kept.keys(token=stranger) == []
        assert kept.keys("?database=*&order=age", token=stranger) == []
        assert kept.keys("?key=key-a", token=stranger) == []
        assert kept.keys(f"?after=test-kept/first:{'0' * 64}", token=stranger) == []
        assert kept.call("GET", f"/v1/records/{of_first}", token=stranger).status == 404
        assert kept.call("GET", "/v1/records?scope=test:kept:db:first", token=stranger).status == 404
        assert kept.call("GET", "/v1/records?database=first", token=stranger).status == 404
    assert kept.call("GET", "/v1/records", token=kept.served.new_token("kept")).status == 403


@pytest.mark.parametrize("query", [
    "order=age", "older_than=1", "database=*&older_than=-1", "database=*&older_than=nan", "database=*&older_than=x",
    "order=size", "plan=p", "key=k&digest=0123456789ab", "digest=xyz", "digest=0123", "after=nonsense",
    "database=*&after=0123456789ab", "database=*&order=age&after=test-kept/first:", "database=*&order=age&after=-1:00",
    "after=../../x:", "key=%20", "key=",
])  # fmt: skip
@ON_BOTH
def test_a_question_that_makes_no_sense_is_refused(kept: Kept, query: str) -> None:
    """
    With a 400 that says what to send.
    """
    heard = kept.call("GET", f"/v1/records?{query}")

    assert (heard.status, heard.code in ("request_invalid", "key_invalid", "key_missing")) == (400, True)


# --- files ---


def tenants_file(folder: Path, keys: int, name: str = "shop") -> DatabaseName:
    """A database with so many keyed writes, as the service makes it."""
    place = folder / "live-acme"
    place.mkdir(exist_ok=True)
    limits = Limits()
    database = WritableDatabase(place / f"{name}.db", limits, {"retain": 60.0, "after_expiry": "run"})
    scope = f"live:acme:db:{name}"
    for number in range(0, keys, 50):
        requests = [
            build_request([("SELECT 1", None)], limits, identity=Keyed(scope, f"k{one}"))
            for one in range(number, min(number + 50, keys))
        ]
        database.group(requests)
    database.close()
    return DatabaseName("live-acme", name)


@pytest.mark.fault("age-has-no-index")
def test_a_page_by_age_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """
    Four times the records, and SQLite does not do more for a page.
    """
    steps = []
    for number in (250, 1_000):
        name = tenants_file(tmp_path, number, f"d{number}")
        with closing(sqlite3.connect(tmp_path / name.namespace / f"{name.database}.db")) as connection:
            count = 0

            def stepped() -> int:
                nonlocal count
                count += 1
                return 0

            connection.set_progress_handler(stepped, 1)
            found = rows.scan_by_age(connection.cursor(), (-1, b""), sys.maxsize, 20, rows.Selection(), 0)
            steps.append(count)
        assert len(found) == 20

    assert steps[1] < 1.5 * steps[0]


def as_of_version_one(file: Path) -> None:
    """The file as the first version of its schema has it: no column for the holder, and no index by age."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP INDEX onceward_age")
        connection.execute("ALTER TABLE onceward_records DROP COLUMN holder")
        connection.execute("UPDATE onceward_meta SET value = 1 WHERE name = 'schema_version'")


@pytest.mark.fault("an-old-file-cannot-be-listed")
def test_a_file_of_an_older_version_is_listed_and_left_as_it_is(tmp_path: Path) -> None:
    """
    By id, key and age. Its next write brings it up to date, index and all.
    """
    name = tenants_file(tmp_path, 3)
    file = tmp_path / name.namespace / "shop.db"
    as_of_version_one(file)
    before = file.read_bytes()
    reader = DatabaseRecords(tmp_path)
    try:
        by_id, by_age = reader.page([name], 10).found, reader.oldest([name], 10).found
    except StoreUnavailable:
        by_id, by_age = [], []

    assert [number for number, _ in migrations(1)] == [2, 4], "new columns: let `_show_as_latest` show them, too"
    assert sorted(one.record.key for one in by_id) == ["live:k0", "live:k1", "live:k2"]
    assert {one.record.id for one in by_age} == {one.record.id for one in by_id}
    assert reader.load([name], lambda _: by_id[0].record.id)[0].record.holder is None
    assert file.read_bytes() == before

    tenants_file(tmp_path, 4)
    with closing(sqlite3.connect(file)) as connection:
        indexes = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}

    assert "onceward_age" in indexes
    assert len(reader.oldest([name], 10).found) == 4


def test_what_is_not_ours_in_a_file_is_not_run(tmp_path: Path) -> None:
    """
    A view in the place of our table is refused, unread; a link is no database.
    """
    name = tenants_file(tmp_path, 1)
    file = tmp_path / name.namespace / "shop.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ALTER TABLE onceward_records RENAME TO elsewhere")
        connection.execute("CREATE VIEW onceward_records AS SELECT *, randomblob(1000000000) FROM elsewhere")
    (tmp_path / name.namespace / "linked.db").symlink_to(file)
    reader = DatabaseRecords(tmp_path)

    for wrong in (name, DatabaseName("live-acme", "linked")):
        for ask in (lambda one: reader.page([one], 1), lambda one: reader.oldest([one], 1)):
            with pytest.raises(StoreUnavailable):
                ask(wrong)


def test_a_database_that_is_gone_or_new_has_no_records(tmp_path: Path) -> None:
    """
    Dropped since it was listed, or just made and still empty.
    """
    (tmp_path / "live-acme").mkdir()
    (tmp_path / "live-acme" / "empty.db").touch()
    reader = DatabaseRecords(tmp_path)
    names = [DatabaseName("live-acme", "empty"), DatabaseName("live-acme", "gone")]

    assert reader.page(names, 10) == ([], None)
    assert reader.oldest(names, 10) == ([], None)


def test_many_databases_are_looked_into_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A page ends early and says where to go on; sorting by age is refused, and the text says what to do.
    """
    monkeypatch.setattr(database_records, "FILES_MAX", 2)
    names = [tenants_file(tmp_path, 1, f"d{number}") for number in range(5)]
    reader = DatabaseRecords(tmp_path)
    found, after, pages = list[str](), "", 0
    while after is not None and pages < 10:
        page = reader.page(names, 100, after)
        found += [one.name.database for one in page.found]
        after, pages = page.after, pages + 1  # type: ignore[assignment]

    assert (found, pages) == (["d0", "d1", "d2", "d3", "d4"], 3)
    with pytest.raises(RequestInvalid, match="name one"):
        reader.oldest(names, 100)


# --- the command line, while the service runs ---


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_operators_list_and_show_them_from_the_folder(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    """
    By tenant, database, scope and age; page after page; one by key, step or digest. The service runs meanwhile.
    """
    folder = ("--folder", str(kept.served.folder))
    ours = ("records", "list", *folder, "--tenant", "kept")
    listed = told(capsys, *ours)
    by_age = told(capsys, *ours, "--order", "age")
    first = told(capsys, *ours, "--database", "first", "--order", "age", "--limit", "1")
    second = told(capsys, *ours, "--database", "first", "--order", "age", "--after", first["next"])
    scoped = told(capsys, "records", "list", *folder, "--scope", "test:kept:db:second")
    shown = told(capsys, "records", "show", *folder, "--scope", "test:kept:db:first", "--key", "key-a")
    step = told(capsys, "records", "show", *folder, "--scope", "test:kept:db:second", "--key", "plan / step")
    digest = told(capsys, "records", "show", *folder, shown["digest"])

    assert sorted(one["key"] for one in listed["records"]) == sorted([A, B, C, STEP])
    assert [one["key"] for one in by_age["records"]] == [A, B, C, STEP]
    assert ([one["key"] for one in first["records"]], [one["key"] for one in second["records"]]) == ([A], [C])
    assert sorted(one["key"] for one in scoped["records"]) == sorted([B, STEP])
    assert (shown["result"]["rowsWritten"], digest["id"]) == (1, shown["id"])
    assert step["key"] == STEP
    assert told(capsys, *ours, "--older-than", "86400")["records"] == []
    assert told(capsys, *ours, "--state", "in_doubt")["records"] == []
    assert main([*ours]) == 0
    assert "key-a" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "words"), [
    (("--order", "age", "--store", "sqlite:///x.db"), "only what is in flight"),
    (("--older-than", "1", "--store", "sqlite:///x.db"), "--older-than is for what is in flight"),
    (("--folder", ".", "--store", "sqlite:///x.db"), "not both"),
    (("--folder", "nowhere"), "there is no folder"),
    (("--folder", "data", "--after", "xyz"), "after is not valid"),
    (("--store", "sqlite:///x.db", "--after", "xyz"), "--after"),
])  # fmt: skip
def test_wrong_arguments_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...],
    words: str,
) -> None:  # fmt: skip
    """
    What is wrong, and nothing is made.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "databases").mkdir(parents=True)
    main(["store", "init", "--store", "sqlite:///x.db"])
    capsys.readouterr()

    assert main(["records", "list", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
