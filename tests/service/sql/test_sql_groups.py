"""
Group commit: requests that share a transaction do not share their troubles.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import KeyReused, OutcomeUnknown, StoreUnavailable
from onceward.runtime import failpoints
from onceward.service.sql import Keyed, Limits, SqlError
from onceward.service.sql.requests import SqlRequest, build_request
from onceward.service.sql.schema_inspector import read_tables
from onceward.service.sql.tenant_database import (
    ReadOnlyDatabase,
    RequestOutcome,
    RequestResult,
    WritableDatabase,
)
from onceward.service.sql.worker import DatabaseReader, OpenDatabases, WorkerSettings
from onceward.service.sql.worker_errors import SliceUsed

LIMITS = Limits(statement_seconds=0.1)
SLOW = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c"


class Notes:
    """Writes down what a group does."""

    def __init__(self) -> None:
        self.told: list[int | str] = []

    def at(self, number: int) -> None:
        self.told.append(number)

    def committing(self) -> None:
        self.told.append("commit")

    def group_ended(self) -> None:
        self.told.append("rest")


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def hosted(place: Path, notes: Notes) -> Iterator[WritableDatabase]:
    opened = WritableDatabase(place, LIMITS, {}, watcher=notes)
    opened.group(
        [
            ask("CREATE TABLE t (a)"),
            ask("CREATE TABLE parent (id INTEGER PRIMARY KEY)"),
            ask("CREATE TABLE child (p INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)"),
        ]
    )
    notes.told.clear()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    failpoints.disarm()


def ask(sql: str, params: Any = None, key: str | None = None) -> SqlRequest:
    return build_request([(sql, params)], LIMITS, identity=Keyed("test:me", key) if key is not None else None)


def put(value: object, key: str | None = None) -> SqlRequest:
    return ask("INSERT INTO t VALUES (?)", [value], key)


def words(outcomes: list[RequestOutcome]) -> list[str]:
    """What each came to: `ran`, `replayed`, a kind of error, or its class."""
    return [
        ("replayed" if outcome.replayed else "ran")
        if isinstance(outcome, RequestResult)
        else outcome.kind.value
        if isinstance(outcome, SqlError)
        else type(outcome).__name__
        for outcome in outcomes
    ]


def rows(hosted: WritableDatabase) -> list[Any]:
    return [value for (value,) in hosted.connection.execute("SELECT a FROM t")]


def test_a_group_is_one_commit(hosted: WritableDatabase, notes: Notes) -> None:
    """
    Three requests, one transaction; they are answered when it is over.
    """
    assert words(hosted.group([put(1), put(2, "k2"), put(3)])) == ["ran"] * 3
    assert notes.told == [0, 1, 2, "commit", "rest"]
    assert rows(hosted) == [1, 2, 3]


def test_one_that_fails_leaves_its_neighbours_alone(hosted: WritableDatabase, notes: Notes) -> None:
    """
    Only its own work is undone, with a key and without.
    """
    wrong = build_request(["INSERT INTO t VALUES ('half')", "SELECT * FROM nowhere"], LIMITS, batch=True)
    keyed = wrong._replace(identity=Keyed("test:me", "w"))

    assert words(hosted.group([put(1), wrong, keyed, put(2, "k")])) == ["ran", "unknownTable", "unknownTable", "ran"]
    assert notes.told == [0, 1, 2, 3, "commit", "rest"]
    assert rows(hosted) == [1, 2]


@pytest.mark.parametrize("key", [None, "slow"], ids=["plain", "keyed"])
def test_one_that_ends_the_transaction_is_left_out_and_the_others_run_again(
    hosted: WritableDatabase, notes: Notes, key: str | None
) -> None:
    """
    A write that is stopped at its deadline takes the whole transaction along. Its neighbours never notice.
    """
    outcomes = hosted.group([put(1, "k1"), ask("SELECT * FROM nowhere"), ask(SLOW, key=key), put(2)])

    assert words(outcomes) == ["ran", "unknownTable", "timeout", "ran"]
    assert notes.told == [0, 1, 2, 0, 1, 3, "commit", "rest"]
    assert rows(hosted) == [1, 2]
    assert words(hosted.group([put(1, "k1"), ask(SLOW, key=key)])) == ["replayed", "timeout"]


def test_one_whose_deferred_constraint_is_broken_fails_alone(hosted: WritableDatabase) -> None:
    """
    The commit is refused, and nobody can tell for whom: so each is run by itself.
    """
    outcomes = hosted.group([put(1), ask("INSERT INTO child VALUES (7)", key="child"), put(2, "k")])

    assert words(outcomes) == ["ran", "foreignKey", "ran"]
    assert rows(hosted) == [1, 2]
    hosted.group([ask("INSERT INTO parent VALUES (7)")])
    assert words(hosted.group([ask("INSERT INTO child VALUES (7)", key="child")])) == ["ran"]


def test_the_same_key_in_one_group_runs_once(hosted: WritableDatabase) -> None:
    """
    The first runs; the second finds its record in the same transaction, and another request under it is refused.
    """
    assert words(hosted.group([put(1, "k"), put(1, "k"), put(2, "k")])) == ["ran", "replayed", "KeyReused"]
    assert rows(hosted) == [1]


def test_if_the_first_of_a_key_fails_the_second_runs(hosted: WritableDatabase) -> None:
    """
    A failure frees the key at once, also for whoever waits in the same group.
    """
    both = ask("INSERT INTO later VALUES (1)", key="k")

    assert words(hosted.group([both, ask("CREATE TABLE later (a)"), both])) == ["unknownTable", "ran", "ran"]


def test_a_disk_that_fails_while_committing_is_answered_honestly(hosted: WritableDatabase) -> None:
    """
    With a key: send it again. Without one nobody knows, and nobody says that nothing happened.
    """

    def fail() -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    failpoints.arm("sql.commit.before", fail)
    with_key, without = hosted.group([put(1, "k"), put(2)])
    failpoints.disarm()

    assert isinstance(with_key, StoreUnavailable)
    assert isinstance(without, OutcomeUnknown)
    assert words(hosted.group([put(1, "k")])) == ["ran"]


def test_without_a_savepoint_a_neighbour_would_suffer(
    hosted: WritableDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The negative control: run without one, half of a failing batch stays.
    """
    monkeypatch.setattr(hosted, "_in_savepoint", lambda work: work())
    wrong = build_request(["INSERT INTO t VALUES ('half')", "SELECT * FROM nowhere"], LIMITS, batch=True)

    hosted.group([put(1), wrong])

    assert rows(hosted) == [1, "half"]


def test_a_reader_sees_one_moment(hosted: WritableDatabase, place: Path) -> None:
    """
    A batch that only reads is one snapshot; and a reader cannot write, whatever it is told.
    """
    hosted.group([put(1)])
    reader = ReadOnlyDatabase(place, LIMITS)
    try:
        read = build_request(["SELECT count(*) FROM t", "SELECT count(*) FROM t"], LIMITS, batch=True)
        outcome = reader.perform(read)
        refusals = words([reader.perform(put(2)), reader.perform(ask("CREATE TABLE x (a)"))])
    finally:
        reader.close()

    assert isinstance(outcome, RequestResult)
    assert [one["rows"] for one in outcome.document["results"]] == [[[1]], [[1]]]
    assert refusals == ["readonly", "readonly"]
    assert rows(hosted) == [1]


def test_a_readers_connection_is_closed_to_writing_below_the_guard(hosted: WritableDatabase, place: Path) -> None:
    """
    Even with the guard out of the way the connection itself refuses.
    """
    reader = ReadOnlyDatabase(place, LIMITS)
    try:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.connection.execute("INSERT INTO t VALUES (1)")
    finally:
        reader.close()


def test_an_interrupt_leaves_nothing_open(hosted: WritableDatabase) -> None:
    """
    Ctrl-C in the middle of a group: nothing of it is committed, and the next group works.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    failpoints.arm("sql.request.after", interrupt, skip=1)
    with pytest.raises(KeyboardInterrupt):
        hosted.group([put(1, "k"), put(2), put(3)])
    failpoints.disarm()

    assert words(hosted.group([put(1, "k")])) == ["ran"]
    assert rows(hosted) == [1]


def test_a_tenant_cannot_lock_itself_out_by_taking_a_name(hosted: WritableDatabase, place: Path) -> None:
    """
    Tables called like functions that the engine warms up, and views that lead nowhere, are the tenant's own affair.
    """
    hosted.group([ask("CREATE TABLE json_each (a)"), ask("CREATE VIEW pragma_table_info AS SELECT * FROM gone")])
    hosted.group([ask('CREATE TABLE "odd ""name" (rowid TEXT)'), ask("CREATE VIEW v AS SELECT * FROM gone")])
    hosted.close()
    again = WritableDatabase(place, LIMITS, {})
    found = [table.name for table in again.session.look(read_tables)]
    words_said = words(again.group([ask("SELECT * FROM json_each"), ask("SELECT * FROM pragma_table_info")]))
    again.close()

    assert found == ["child", "json_each", 'odd "name', "parent", "pragma_table_info", "t", "v"]
    assert words_said == ["ran", "unknownTable"]


def test_reuse_is_refused_by_class(hosted: WritableDatabase) -> None:
    """
    The core's own error arrives as it is.
    """
    hosted.group([put(1, "k")])

    assert isinstance(hosted.group([put(2, "k")])[0], KeyReused)


class Clock:
    """A worker's timer, whose clock a test moves: each look at it takes so long."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def clock(self) -> float:
        self.now += self.step
        return self.now

    def begin(self, connection: sqlite3.Connection, deadline: float) -> None:
        """Nobody is interrupted."""

    def end(self) -> None:
        """Nobody is interrupted."""


@pytest.mark.fault("sql-a-group-of-reads-has-no-end")
def test_a_group_of_reads_has_its_time(hosted: WritableDatabase, place: Path, notes: Notes) -> None:
    """
    When it is over, the others have their turn later: nobody's turn is long. The first is always run.
    """
    for step, expected in (
        (LIMITS.slice_seconds / 1_000, ["ran"] * 4),
        (LIMITS.slice_seconds * 2, ["ran", *["NotRun"] * 3]),
    ):
        timed: dict[str, Any] = {"timer": Clock(step), "quick": True}
        reader = DatabaseReader(WorkerSettings(Limits(), timed), notes)
        reader.databases = OpenDatabases(Limits(), lambda path: ReadOnlyDatabase(path, Limits()))

        assert words(reader.group(place, [ask("SELECT 1")] * 4)) == expected
        reader.databases.close_all()


@pytest.mark.fault("sql-reads-wait-behind-a-slow-one")
def test_what_stands_behind_a_slow_read_is_not_run(hosted: WritableDatabase, place: Path, notes: Notes) -> None:
    """
    It has used up the time of the turn; the others were not begun, and are answered elsewhere.
    """
    reader = DatabaseReader(WorkerSettings(Limits(), {"timer": Clock(0.0), "quick": True}), notes)

    class Slow:
        def perform(self, request: SqlRequest) -> RequestOutcome:
            return SliceUsed()

        def close(self) -> None:
            pass

    reader.databases = OpenDatabases(Limits(), lambda path: Slow())  # type: ignore[arg-type, return-value]

    assert words(reader.group(place, [ask("SELECT 1")] * 3)) == ["SliceUsed", "NotRun", "NotRun"]
