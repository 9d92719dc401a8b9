"""Keys and plans go with their database: a retry on the other side gets the first answer, and nothing runs again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from moving_support import (
    CUSTOMER,
    NAME,
    ORDER,
    SCOPE,
    as_administrator,
    asked,
    customer,
    empty_folder,
    file_of,
    make_shop,
    moved,
    open_shop,
    place_of,
    told,
    tried,
)

from onceward.errors import ConfigurationError, Expired, KeyReused
from onceward.gate import Sealed
from onceward.service.sql import Keyed, SqlError, SqliteEngine, SqlResult, Step
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.moving import ImportReport, export_database
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.requests import build_request
from onceward.service.sql.tenant_database import WritableDatabase

pytestmark = pytest.mark.dose(1, of="version")

HERE = """
right(scope, 12) = (SELECT left(encode(sha256(schema_name::bytea), 'hex'), 12) FROM onceward_databases
    WHERE namespace = 'live-acme')
"""
"""Records of the shop that is on PostgreSQL now."""


def in_folder(folder: Path, story: Callable[[SqliteEngine], Awaitable[Any]]) -> Any:
    """Tell a story on an engine with workers, as the service has it."""

    async def run() -> Any:
        async with SqliteEngine(folder / "databases", writers=1, readers=1, slow=1) as engine:
            return await story(engine)

    return asyncio.run(run())


class TestToPostgresql:
    """What ran on SQLite."""

    @pytest.mark.fault("moved-ids-are-not-made-anew")
    def test_every_key_replays_its_first_answer(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        The whole document, as it was stored; not one row more.
        """
        with open_shop(folder) as shop:
            first = [shop.query(CUSTOMER, customer(n), identity=Keyed(SCOPE, f"customer-{n}")) for n in range(7)]
        report = tried(lambda: moved(folder, url, tmp_path / "there.jsonl"))
        assert isinstance(report, ImportReport)

        async def retry(engine: PostgresEngine) -> list[Any]:
            return [
                await engine.query(*NAME, CUSTOMER, customer(n), identity=Keyed(SCOPE, f"customer-{n}"))
                for n in range(7)
            ]

        again = told(url, retry)

        assert [one.document for one in again] == [one.document for one in first]
        assert [one.replayed for one in again] == [True] * 7
        assert asked(url, "SELECT count(*) FROM customers").rows == [[6]]

    def test_plans_replay_step_by_step_and_go_on(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        The steps that were done are replayed; the next one runs, and is a step of the same plan.
        """
        moved(folder, url, tmp_path / "there.jsonl")

        async def resume(engine: PostgresEngine) -> list[bool]:
            ran = []
            for number in (0, 3, 6, 9, 12):
                values = {"id": f"o-{number}", "customer": number % 7 + 1, "number": number}
                step = Step(SCOPE, "plan-0", f"order-{number}")
                ran.append((await engine.query(*NAME, ORDER, values, identity=step)).replayed)
            return ran

        assert told(url, resume) == [True, True, True, True, False]
        families = as_administrator(
            url, f"SELECT count(DISTINCT family) FROM onceward_records WHERE key LIKE %s AND {HERE}", "%plan-0 /%"
        )
        assert families[0][0] == 1

    def test_another_request_under_a_moved_key_is_refused(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        The fingerprint went along.
        """
        moved(folder, url, tmp_path / "there.jsonl")

        with pytest.raises(KeyReused):
            asked(url, CUSTOMER, customer(6), identity=Keyed(SCOPE, "customer-1"))
        assert asked(url, "SELECT count(*) FROM customers").rows == [[6]]

    @pytest.mark.fault("fingerprints-know-the-database")
    @pytest.mark.parametrize(
        "params",
        [[True], [{"integer": "7"}], [{"integer": "9223372036854775807"}], [{"base64": "AN7/"}], [{"base64": "AN=="}]],
    )
    def test_a_fingerprint_does_not_know_the_database(self, params: list[Any], url: str, tmp_path: Path) -> None:
        """
        SQLite takes true for 1 and {"integer": "7"} for 7; the same retry, in the same words, is the same request.
        """
        with open_shop(tmp_path / "old") as shop:
            shop.query("CREATE TABLE things (one TEXT)")
            shop.query("INSERT INTO things VALUES ('x')", identity=Keyed(SCOPE, "first"))
            done = shop.query("SELECT ?", params, identity=Keyed(SCOPE, "k"))
        moved(tmp_path / "old", url, tmp_path / "there.jsonl")
        again = tried(lambda: asked(url, "SELECT ?", params, identity=Keyed(SCOPE, "k")))

        assert isinstance(again, SqlResult)
        assert (again.document, again.replayed) == (done.document, True)

    @pytest.mark.fault("moved-keys-are-read-before-they-replay", "readers-learn-of-moved-keys")
    @pytest.mark.parametrize(
        ("sql", "params"),
        [
            ("INSERT OR REPLACE INTO things VALUES (?)", ["a"]),
            ("INSERT INTO things VALUES (?1)", ["b"]),
            ("INSERT INTO things VALUES (@one)", {"one": "c"}),
            ("INSERT INTO things VALUES (?)", ["NUL \0 inside"]),
        ],
    )
    def test_words_that_only_sqlite_knows_replay(self, sql: str, params: Any, url: str, tmp_path: Path) -> None:
        """
        The first answer is given although PostgreSQL could not run it; without a first answer it is refused.
        """
        with open_shop(tmp_path / "old") as shop:
            shop.query("CREATE TABLE things (one TEXT)")
            done = shop.query(sql, params, identity=Keyed(SCOPE, "k"))
            shop.query("DELETE FROM things")
        moved(tmp_path / "old", url, tmp_path / "there.jsonl")
        again = tried(lambda: asked(url, sql, params, identity=Keyed(SCOPE, "k")))

        assert isinstance(again, SqlResult)
        assert (again.document, again.replayed) == (done.document, True)
        for key in ("new", None):
            with pytest.raises(SqlError):
                asked(url, sql, params, identity=None if key is None else Keyed(SCOPE, key))
        with pytest.raises(SqlError):
            asked(url, sql, params, identity=Keyed(SCOPE, "k"), readonly=True)
        assert asked(url, "SELECT count(*) FROM things").rows == [[0]]

    def test_the_fences_of_purged_keys_are_not_given_again(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        The greatest fence that was ever deleted in the file is one in PostgreSQL, too.
        """
        with closing(sqlite3.connect(file_of(folder))) as line, line:
            line.execute("UPDATE onceward_meta SET value = 2000000000000000 WHERE name = 'fence_floor'")
        moved(folder, url, tmp_path / "there.jsonl")
        asked(url, "SELECT 1", identity=Keyed(SCOPE, "later"))
        [[fence]] = as_administrator(url, "SELECT fence FROM onceward_records WHERE key = 'live:later' AND " + HERE)

        assert fence > 2_000_000_000_000_000


class TestFromPostgresql:
    """What ran on PostgreSQL."""

    @pytest.mark.fault("postgresqls-parameters-are-read-before-they-replay")
    def test_keys_replay_in_a_folder_whatever_their_words(self, url: str, tmp_path: Path) -> None:
        """
        With workers: a parameter that SQLite has no place for, a placeholder that it reads otherwise, and a plan.
        """
        sent = [
            ("INSERT INTO things VALUES ($1)", ["a"], Keyed(SCOPE, "numbered")),
            ("INSERT INTO things VALUES (to_jsonb(?::jsonb))", [{"json": {"a": 1}}], Keyed(SCOPE, "json")),
            ("INSERT INTO things VALUES (?)", ["plain"], Step(SCOPE, "plan", "step")),
        ]

        async def first(engine: PostgresEngine) -> list[Any]:
            await engine.create(*NAME)
            await engine.query(*NAME, "CREATE TABLE things (one text)")
            return [await engine.query(*NAME, sql, params, identity=one) for sql, params, one in sent]

        async def again(engine: SqliteEngine) -> list[Any]:
            found = [await engine.query(*NAME, sql, params, identity=one) for sql, params, one in sent]
            with pytest.raises(SqlError):
                await engine.query(*NAME, sent[1][0], sent[1][1], identity=Keyed(SCOPE, "new"))
            return [*found, await engine.query(*NAME, "SELECT count(*) FROM things")]

        done = told(url, first)
        moved(url, empty_folder(tmp_path / "new"), tmp_path / "there.jsonl")
        found = tried(lambda: in_folder(tmp_path / "new", again))

        assert isinstance(found, list)
        *replays, count = found
        assert [one.document for one in replays] == [one.document for one in done]
        assert [one.replayed for one in replays] == [True] * 3
        assert count.rows == [[3]]

    def test_records_of_other_databases_stay(self, folder: Path, url: str, tmp_path: Path) -> None:
        """
        Two tenants, the same key in both: each file has its own.
        """
        moved(folder, url, tmp_path / "there.jsonl")

        async def other(engine: PostgresEngine) -> None:
            await engine.drop("live-globex", "shop")
            await engine.create("live-globex", "shop")
            await engine.query("live-globex", "shop", "SELECT 1", identity=Keyed("live:globex:db:shop", "customer-1"))

        told(url, other)
        report = export_database(place_of(url), tmp_path / "back.jsonl")

        assert report.totals.records == 20
        assert b"globex" not in (tmp_path / "back.jsonl").read_bytes()


class TestRecordsAsTheyAre:
    """Whatever state they are in."""

    def test_an_expired_key_stays_expired(self, url: str, tmp_path: Path) -> None:
        """
        Its tombstone moves: a late retry is refused there, too, and does not run.
        """
        with open_shop(tmp_path / "old", retain=0.000_001) as shop:
            shop.query("CREATE TABLE things (one TEXT)")
            shop.query("INSERT INTO things VALUES ('x')", identity=Keyed(SCOPE, "late"))
        moved(tmp_path / "old", url, tmp_path / "there.jsonl")

        with pytest.raises(Expired):
            asked(url, "INSERT INTO things VALUES ('x')", identity=Keyed(SCOPE, "late"))
        assert asked(url, "SELECT count(*) FROM things").rows == [[1]]

    @pytest.mark.parametrize("state", ["claimed", "in_doubt", "released"])
    def test_a_record_that_is_not_settled_moves_as_it_is(
        self, state: str, folder: Path, url: str, tmp_path: Path
    ) -> None:
        """
        State, holder, lease, doubt and token, column by column.
        """
        with closing(sqlite3.connect(file_of(folder))) as line, line:
            line.execute(
                "UPDATE onceward_records SET state = ?, doubt = 1, lease_until = 99, replay_until = NULL, "
                "forget_at = NULL, holder = x'0102' WHERE key = 'live:customer-2'",
                (state,),
            )
        kept = "state, doubt, lease_until, replay_until, forget_at, holder, token, version, fence, first_at"
        asking = f"SELECT {kept} FROM onceward_records WHERE key = 'live:customer-2'"
        with closing(sqlite3.connect(file_of(folder))) as line:
            before = line.execute(asking).fetchall()
        moved(folder, url, tmp_path / "there.jsonl")

        assert as_administrator(url, f"{asking} AND {HERE}") == before

    @pytest.mark.fault("sealed-results-are-moved")
    def test_a_sealed_result_is_refused(self, tmp_path: Path) -> None:
        """
        It is bound to its place and would open nowhere else: nothing is written, and the message says so.
        """
        make_shop(tmp_path / "old")
        database = WritableDatabase(file_of(tmp_path / "old"), DEFAULT_LIMITS, {})
        database.seal_with([Sealed.new_key()])
        database.group([build_request(["SELECT 1"], DEFAULT_LIMITS, identity=Keyed(SCOPE, "secret"))])
        database.close()

        with pytest.raises(ConfigurationError, match="is sealed: it is tied to this database"):
            export_database(place_of(tmp_path / "old"), tmp_path / "there.jsonl")
        assert [one.name for one in tmp_path.iterdir()] == ["old"]

    @pytest.mark.fault("records-that-are-not-ours-are-moved")
    def test_a_record_of_an_unknown_kind_is_refused(self, folder: Path, tmp_path: Path) -> None:
        """
        Its id cannot be made anew, so that a retry would run again.
        """
        with closing(sqlite3.connect(file_of(folder))) as line, line:
            line.execute("UPDATE onceward_records SET kind = 'later' WHERE key = 'live:customer-2'")

        with pytest.raises(ConfigurationError, match="its id cannot be computed again"):
            export_database(place_of(folder), tmp_path / "there.jsonl")
