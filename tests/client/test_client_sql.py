"""The client's SQL, from one text: a real service and a local file, by blocking and by awaiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_client_support import INSERT, ROW, TABLE, Maker

from onceward import ConfigurationError, KeyReused
from onceward.client import BatchResult, Result, SqlError, SqlKind
from onceward.errors import KeyInvalid

pytestmark = pytest.mark.dose(1, of="client_of")


class TestKeys:
    """`idempotency_key`."""

    @pytest.mark.requirement("A02", "A05", "A06")
    def test_a_key_makes_one_row_and_the_replay_is_seen_on_the_result(self, db: Any) -> None:
        """
        The first call writes, the others are told the same; only `replayed` differs.
        """
        db.query(TABLE)
        first, *others = [db.query(INSERT, ROW, idempotency_key="evt-1") for _ in range(3)]

        assert (first.rows_written, first.replayed) == (1, False)
        assert [(one.rows_written, one.replayed) for one in others] == [(1, True)] * 2
        assert {first.last_insert_rowid} == {one.last_insert_rowid for one in others}
        assert len(db.query("SELECT * FROM events").rows) == 1

    @pytest.mark.requirement("A17")
    def test_a_key_for_another_statement_is_refused(self, db: Any) -> None:
        """
        `KeyReused`, in both worlds, and nothing is written.
        """
        db.query(TABLE)
        db.query(INSERT, ROW, idempotency_key="evt-1")

        with pytest.raises(KeyReused) as caught:
            db.query(INSERT, ["e-2", "clack"], idempotency_key="evt-1")
        assert (caught.value.code, caught.value.retry) == ("key_reused", "new-key")
        assert len(db.query("SELECT * FROM events").rows) == 1

    @pytest.mark.requirement("A40")
    def test_without_a_key_it_runs_each_time(self, db: Any) -> None:
        """
        The second insert of a row is the database's own refusal, in typed words.
        """
        db.query(TABLE)
        db.query(INSERT, ROW)

        with pytest.raises(SqlError) as caught:
            db.query(INSERT, ROW)
        assert (
            caught.value.kind,
            caught.value.table,
            caught.value.column,
        ) == (SqlKind.UNIQUE_VIOLATION, "events", "id")
        assert "ON CONFLICT" in (caught.value.hint or "")


class TestValues:
    """What goes in comes out."""

    def test_values_of_every_kind_come_back_as_they_were(self, db: Any) -> None:
        """
        Blobs are bytes and whole numbers are exact, also beyond what JSON's readers keep; parameters by name, too.
        """
        values = [2**53 + 1, -(2**63), 1.5, "text", b"\x00\xff", None]
        found = db.query("SELECT ?, ?, ?, ?, ?, ?", values)
        named = db.query("SELECT :a AS first, :b AS second", {"a": b"x", "b": 2**60})

        assert [values] == found.rows
        assert list(named) == [{"first": b"x", "second": 2**60}]
        assert named.one() == {"first": b"x", "second": 2**60}
        assert isinstance(named, Result)

    @pytest.mark.parametrize("params", ["text", b"bytes", [object()], [float("nan")], [float("inf")]])
    def test_values_that_no_json_has_are_refused_before_sending(self, db: Any, params: Any) -> None:
        """
        With the advice what to send, and nothing is written.
        """
        with pytest.raises(ConfigurationError, match=r"params must be a list|cannot be sent"):
            db.query("SELECT ?", params)

    def test_tables_are_told(self, db: Any) -> None:
        """
        The same words from both.
        """
        db.query(TABLE)

        assert [(one["name"], [column["name"] for column in one["columns"]]) for one in db.tables()] == [
            ("events", ["id", "name"])
        ]


class TestPlansAndBatches:
    """`plan_key` with `plan_step`, `plan(...)`, `batch(...)`."""

    @pytest.mark.requirement("A22", "A23", "A24", "A30")
    def test_a_plan_that_broke_goes_on_where_it_stopped(self, db: Any) -> None:
        """
        The first run fails at its second step. The next replays the first (DDL!), and runs the rest.
        """
        with db.plan("migrate-1") as plan:
            plan.query("create", TABLE)
            with pytest.raises(SqlError):
                plan.query("seed", "INSERT INTO evnets VALUES (1)")
        with db.plan("migrate-1") as plan:
            created = plan.query("create", TABLE)
            seeded = plan.batch("seed", [(INSERT, ROW), (INSERT, ["e-2", "clack"])])
        spelled = db.query(TABLE, plan_key="migrate-1", plan_step="create")

        assert plan.plan_key == "migrate-1"
        assert (created.replayed, seeded.replayed, spelled.replayed) == (True, False, True)
        assert len(db.query("SELECT * FROM events").rows) == 2

    def test_a_batch_is_all_or_nothing_and_once_per_key(self, db: Any) -> None:
        """
        One transaction, one key, a result per statement; a failure says which statement, and leaves the key free.
        """
        db.query(TABLE)
        with pytest.raises(SqlError) as caught:
            db.batch([(INSERT, ROW), (INSERT, ROW)], idempotency_key="b-1")
        first = db.batch([(INSERT, ROW), "SELECT count(*) FROM events"], idempotency_key="b-1")
        again = db.batch([(INSERT, ROW), "SELECT count(*) FROM events"], idempotency_key="b-1")

        assert caught.value.statement == 1
        assert isinstance(first, BatchResult)
        assert (first.rows_written, first.results[1].rows, first.replayed) == (1, [[1]], False)
        assert (first.results[1].rows, True) == (again.results[1].rows, again.replayed)
        assert [one.replayed for one in again.results] == [True, True]

    @pytest.mark.requirement("A32")
    @pytest.mark.parametrize(
        "names",
        [
            {"plan_key": "p"},
            {"plan_step": "s"},
            {"idempotency_key": "k", "plan_key": "p", "plan_step": "s"},
        ],
    )
    def test_half_a_step_and_two_names_are_refused_before_sending(self, db: Any, names: dict[str, str]) -> None:
        """
        A call is known by one thing.
        """
        with pytest.raises(ConfigurationError, match="plan_key"):
            db.query("SELECT 1", **names)

    @pytest.mark.parametrize("key", ["", "a b", "k" * 201, "schlüssel", "k\n"])
    def test_a_bad_key_is_refused_before_sending(self, db: Any, key: str) -> None:
        """
        Never cut to fit, and never part of the message.
        """
        with pytest.raises(KeyInvalid) as caught:
            db.query("SELECT 1", idempotency_key=key)
        assert not key or key not in str(caught.value)


class TestTheFile:
    """What is different about a local file is said, and nothing is done by the way."""

    def test_a_file_is_one_database(self, client_of: Maker, tmp_path: Path) -> None:
        """
        Two databases of a service are two; so a second one is refused here, and does not share the first one's tables.
        """
        client = client_of(f"sqlite:///{tmp_path}/shop.db")
        client.db("acme", "shop").query(TABLE)

        with pytest.raises(ConfigurationError, match="one database"):
            client.db("acme", "stock")
        assert [one["name"] for one in client.db("acme", "shop").tables()] == ["events"]

    def test_a_file_is_not_dropped_by_the_way(self, client_of: Maker, tmp_path: Path) -> None:
        """
        It is the caller's own; the refusal says what to do.
        """
        db = client_of(f"sqlite:///{tmp_path}/shop.db").db("acme", "shop")
        db.query(TABLE)

        with pytest.raises(ConfigurationError, match="delete the file"):
            db.drop()
        assert len(db.tables()) == 1

    def test_what_a_file_holds_is_there_the_next_time(self, client_of: Maker, tmp_path: Path) -> None:
        """
        Rows and keys: another client of the same file replays.
        """
        url = f"sqlite:///{tmp_path}/shop.db"
        client_of(url).db("acme", "shop").batch([TABLE, (INSERT, ROW)], idempotency_key="all")

        again = client_of(url).db("acme", "shop").batch([TABLE, (INSERT, ROW)], idempotency_key="all")

        assert again.replayed

    def test_a_file_is_never_live(self, client_of: Maker, tmp_path: Path) -> None:
        """
        A client that was meant for live does not quietly write into a file.
        """
        with pytest.raises(ConfigurationError, match="local file"):
            client_of(f"sqlite:///{tmp_path}/shop.db", environment="live")


class TestTheService:
    """What only a service has."""

    def test_databases_are_made_and_dropped(self, client_of: Maker, served: Any, name: str) -> None:
        """
        Making one again is harmless, and so is dropping one that is gone.
        """
        db = client_of(served.address, token=served.token).db("demo", name)

        assert (db.create(), db.create()) == (True, False)
        assert (db.drop(), db.drop()) == (True, False)
