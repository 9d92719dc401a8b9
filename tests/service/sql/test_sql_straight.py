"""
The usual keyed request needs no gate: its record is what the gate would have put, and commits with its rows or not at
all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import IllegalMove, KeyReused
from onceward._core.record import Record
from onceward._core.store_protocols import Selection
from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql import Keyed, Limits
from onceward.service.sql.keyed_scope import KeyedScope
from onceward.service.sql.requests import SqlRequest, build_request
from onceward.service.sql.tenant_database import RequestResult, WritableDatabase

LIMITS = Limits()
SCOPE = "test:me:db:shop"
OWN = ("id", "key", "version", "token", "fence", "first_at", "settled_at", "age", "replay_left", "forget_left")
"""Of a record: what is its own, or the clock's."""


@pytest.fixture
def hosted(place: Path) -> Iterator[WritableDatabase]:
    opened = WritableDatabase(place, LIMITS, {"retain": 3_600})
    opened.group([build_request([("CREATE TABLE t (a)", None)], LIMITS)])
    yield opened
    opened.close()


def put(value: object, key: str, **options: Any) -> SqlRequest:
    return build_request([("INSERT INTO t VALUES (?)", [value])], LIMITS, identity=Keyed(SCOPE, key), **options)


def record_of(hosted: WritableDatabase, key: str) -> Record:
    [found] = [one for one in hosted.store.scan(b"", 10, Selection()) if one.key == f"test:{key}"]
    return found


def done(hosted: WritableDatabase, request: SqlRequest) -> RequestResult:
    [outcome] = hosted.group([request])
    assert isinstance(outcome, RequestResult), outcome
    return outcome


def test_a_record_is_what_the_gate_would_have_put(hosted: WritableDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In every field, but for what is its own. Either way finds what the other one has put.
    """
    straight = done(hosted, put("x", "straight"))
    monkeypatch.setattr(KeyedScope, "is_heard", True)  # Then the gate is asked.
    through = done(hosted, put("x", "gate"))
    again = done(hosted, put("x", "straight"))
    monkeypatch.undo()
    once_more = done(hosted, put("x", "gate"))

    shown = [record_of(hosted, key)._asdict() for key in ("straight", "gate")]
    for one in shown:
        one["result"] = one["result"].partition(b'"meta"')[0].replace(b'"lastInsertRowid":2', b'"lastInsertRowid":1')
    assert {name for name in shown[0] if shown[0][name] != shown[1][name]} <= set(OWN)
    assert (again.text, again.replayed) == (straight.text, True)
    assert (once_more.text, once_more.replayed) == (through.text, True)
    assert [straight.replayed, through.replayed] == [False, False]


@pytest.mark.fault("sql-a-settled-record-has-anothers-fingerprint")
def test_another_request_under_a_key_is_refused(hosted: WritableDatabase) -> None:
    """
    Whether the first one ran just now or in an earlier group; and nothing of it is written. The same one is replayed.
    """
    first, second = hosted.group([put("x", "k"), put("y", "k")])
    third, same = hosted.group([put("z", "k"), put("x", "k")])

    assert [type(one) for one in (first, second, third, same)] == [RequestResult, KeyReused, KeyReused, RequestResult]
    assert hosted.connection.execute("SELECT a FROM t").fetchall() == [("x",)]


@pytest.mark.fault("sql-a-record-commits-alone")
def test_a_record_does_not_commit_without_its_rows(hosted: WritableDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the transaction has ended while the statements ran, whatever ended it.
    """
    run = hosted.session.run

    def ended(request: SqlRequest) -> dict[str, Any]:
        document = run(request)
        hosted.connection.rollback()
        return document

    monkeypatch.setattr(hosted.session, "run", ended)
    [outcome] = hosted.group([put("x", "k")])

    assert isinstance(outcome, IllegalMove)
    assert list(hosted.store.scan(b"", 10, Selection())) == []


def test_a_record_that_does_not_fit_undoes_its_rows(hosted: WritableDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The key stays unused, and the error says that the database is full.
    """

    def full(*_: Any) -> Any:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("onceward.service.sql.tenant_database.put_in", full)
        [outcome] = hosted.group([put("x", "k")])
    kept = hosted.connection.execute("SELECT count(*) FROM t").fetchone()
    later = done(hosted, put("x", "k"))

    assert isinstance(outcome, SqlError)
    assert (outcome.kind, kept, later.replayed) == (SqlKind.FULL, (0,), False)


def test_what_stands_under_a_key_and_is_no_result_is_not_sent(hosted: WritableDatabase) -> None:
    """
    The gate says what it is.
    """
    done(hosted, put("x", "k"))
    hosted.connection.execute("UPDATE onceward_records SET result = CAST('{' AS BLOB)")
    [outcome] = hosted.group([put("x", "k")])

    assert not isinstance(outcome, RequestResult)


@pytest.mark.fault("sql-growth-is-measured-from-long-ago")
def test_growth_is_a_requests_own(hosted: WritableDatabase, place: Path) -> None:
    """
    Of what others have written between two groups nothing is counted, and of its neighbours nothing, either.
    """
    large = "x" * 100_000
    first, second = hosted.group([put(large, "a"), put(large, "b")])
    with closing(sqlite3.connect(place)) as other:
        other.execute("CREATE TABLE theirs AS SELECT zeroblob(1000000) AS a")
        other.commit()
    [third] = hosted.group([put("x", "c")])

    grown = [one.grown for one in (first, second, third) if isinstance(one, RequestResult)]
    assert len(grown) == 3
    assert all(90_000 <= one < 120_000 for one in grown[:2])
    assert grown[2] < 20_000
