"""In the caller's transaction the usual course goes without a flow; whatever else comes, the flow takes over."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from line_support import flows_made, struck_at

from onceward import Gate, KeyReused
from onceward.gate import atomic_line, atomic_line_async

SHAPES: dict[str, Callable[[Gate, sqlite3.Connection, Callable[[], Any]], Any]] = {
    "atomic": lambda gate, connection, fn: gate.atomic(connection, "charge:1", fn),
    "last": lambda gate, connection, fn: gate.atomic(connection, "charge:1", fn, claim="last"),
    "block": lambda gate, connection, fn: _block(gate, connection, fn),
    "once": lambda gate, connection, fn: gate.once(
        key="charge:{order}", name="charge", guarantee="atomic", connection="connection"
    )(lambda order, connection: fn())(1, connection),
}


def _block(gate: Gate, connection: sqlite3.Connection, fn: Callable[[], Any]) -> Any:
    with gate.atomic(connection, "charge:1") as operation:
        if not operation.replayed:
            operation.settle(fn())
    return operation.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The caller's database."""
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as made:
        made.execute("CREATE TABLE charges (customer TEXT)")
    return file


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The flows that were made."""
    return flows_made(monkeypatch, "operate_atomic", atomic_line, atomic_line_async)


def _charge(connection: sqlite3.Connection) -> dict[str, str]:
    connection.execute("INSERT INTO charges VALUES ('cus_1')")
    return {"id": "ch_1"}


def _charges(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM charges").fetchall()
    return int(count)


@pytest.mark.parametrize("listeners", [0, 1], ids=["unheard", "heard"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.fault("atomic-line-is-left-when-somebody-listens")
def test_the_usual_course_needs_no_flow(path: Path, flows: list[Any], shape: str, listeners: int) -> None:
    """
    However it is called, and whether or not somebody listens: it runs once, is replayed, and no flow is made.
    """
    heard: list[Any] = []
    with (
        closing(sqlite3.connect(path)) as connection,
        Gate(f"sqlite:///{path}", scope="acme", listeners=[heard.append] * listeners) as gate,
    ):
        answers = [SHAPES[shape](gate, connection, partial(_charge, connection)) for _ in range(2)]

    assert answers == [{"id": "ch_1"}] * 2
    assert _charges(path) == 1
    assert flows == []
    assert [event.type.value for event in heard] == ["claimed", "settled", "replayed"][: 3 * listeners]


@pytest.mark.parametrize("shape", ["atomic", "last", "block"])
@pytest.mark.parametrize("value", [ValueError("declined"), object()], ids=["raises", "no stored form"])
def test_anything_else_is_left_to_one_flow(path: Path, flows: list[Any], shape: str, value: Any) -> None:
    """
    The function ran once and was not asked again; its row is undone with its record.
    """
    ran: list[int] = []

    def fails() -> Any:
        ran.append(1)
        _charge(connection)
        if isinstance(value, Exception):
            raise value
        return value

    with closing(sqlite3.connect(path)) as connection, Gate(f"sqlite:///{path}", scope="acme") as gate:
        with pytest.raises(Exception, match=r"declined|stored"):
            SHAPES[shape](gate, connection, fails)
        stands = gate.records.get("charge:1")

    assert (len(ran), len(flows), _charges(path), stands) == (1, 1, 0, None)


def test_another_request_under_the_key_is_refused_by_the_flow(path: Path, flows: list[Any]) -> None:
    """
    The line found a result, and whether it may be replayed is not the line's to say.
    """
    with closing(sqlite3.connect(path)) as connection, Gate(f"sqlite:///{path}", scope="acme") as gate:
        gate.atomic(connection, "charge:1", partial(_charge, connection), request={"amount": 1})
        with pytest.raises(KeyReused):
            gate.atomic(connection, "charge:1", partial(_charge, connection), request={"amount": 2})

    assert (len(flows), _charges(path)) == (1, 1)


@pytest.mark.parametrize("shape", ["atomic", "last", "block"])
@pytest.mark.fault("atomic-line-lets-an-interrupt-through", "atomic-line-forgets-what-was-answered")
@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer is at work already")
def test_interrupted_at_any_line_rows_and_record_are_together(path: Path, shape: str) -> None:
    """
    Ctrl-C between any two lines: both are committed or neither is, nothing stays open, and a retry has one effect.
    """
    number, ended = 0, False
    with closing(sqlite3.connect(path)) as connection, Gate(f"sqlite:///{path}", scope="acme") as gate:
        while not ended:
            number += 1
            connection.execute("DELETE FROM charges")
            connection.commit()
            key = f"charge:{number}"
            with struck_at(number, atomic_line) as passed:
                try:
                    _under(gate, connection, key, shape)
                    ended = len(passed) < number
                except KeyboardInterrupt:
                    ended = False
            stands = gate.records.get(key)

            assert not connection.in_transaction, passed[-1]
            assert (_charges(path), stands is None or stands.state == "settled") == (stands is not None, True), passed[
                -1
            ]

            _under(gate, connection, key, shape)

            assert _charges(path) == 1, passed[-1]

    assert number > 30


def _under(gate: Gate, connection: sqlite3.Connection, key: str, shape: str) -> None:
    if shape == "block":
        with gate.atomic(connection, key) as operation:
            if not operation.replayed:
                operation.settle(_charge(connection))
    else:
        claim: Any = "last" if shape == "last" else "first"
        gate.atomic(connection, key, partial(_charge, connection), claim=claim)
