"""
What is agreed: who makes keys, what identifies an operation, which strategy it follows.
"""

from __future__ import annotations

import ast
import inspect
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onceward.gate
from onceward import Gate, KeyReused
from onceward.gate import OperationContract


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate on memory."""
    with Gate("memory://", scope="live:acme") as gate:
        yield gate


@pytest.mark.requirement("E05")
def test_a_gate_never_makes_a_key(gate: Gate) -> None:
    """
    The caller brings the key on every attempt: without one nothing runs, and nothing in the gate can make one.
    """
    for call in (gate.run, gate.call, gate.once, gate.atomic):
        with pytest.raises(TypeError):
            call()  # type: ignore[operator]
    folder = Path(inspect.getfile(onceward.gate)).parent
    called = {
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for file in folder.rglob("*.py")
        if file.name
        != "dead_letter_box_base.py"  # Names the letter of a call that was made without a key: nothing runs under it.
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
    }

    assert called & {"mint", "mint_from", "uuid4"} == set()
    assert gate.records.list() == ()


@pytest.mark.requirement("E30")
@pytest.mark.fault("contract-forgets-what-identifies")
def test_each_declared_operation_says_what_identifies_it(gate: Gate) -> None:
    """
    The key's meaning is agreed with its consumers: the contract of a function lists it.
    """

    @gate.once(key="charge:{order_id}", guarantee="keyed", retain=3600, exclude=("note",))
    def charge(order_id: str, amount: int, note: str = "") -> None:
        """Charge."""

    agreed = OperationContract(
        operation=charge.contract.operation,
        identified_by=("order_id",),
        compared_by=("order_id", "amount"),
        guarantee="keyed",
        retain_seconds=3600.0,
        tombstone_seconds=30 * 86400.0,
    )

    assert agreed == charge.contract
    assert charge.contract.operation.endswith("charge")


@pytest.mark.requirement("D36")
def test_the_strategy_of_an_operation_is_said_by_name(gate: Gate) -> None:
    """
    Payments by key, counters by sequence, search as you type by window: each is another call, and leaves another kind.
    """
    gate.run("charge:1", lambda: 1)
    gate.sequence("counter").run(1, lambda: 1)
    gate.window("search").run({"q": "a"}, lambda: 1)
    gate.plan("migrate-1").step("seed", lambda: 1)

    assert {one.kind for one in gate.records.list()} == {"key", "sequence", "sequence-entry", "window", "step"}


@pytest.mark.requirement("A17")
def test_the_same_key_for_other_sql_or_params_is_refused(tmp_path: Path) -> None:
    """
    A key is for one write: other SQL or other params under it never replay the first one's answer, and write nothing.
    """
    connection = sqlite3.connect(tmp_path / "app.db")
    connection.execute("CREATE TABLE events (id TEXT, name TEXT)")
    connection.commit()

    def query(gate: Gate, sql: str, params: list[str]) -> Any:
        def run() -> int:
            return connection.execute(sql, params).rowcount

        return gate.atomic(connection, "evt-1", run, request={"sql": sql, "params": params})

    insert = "INSERT INTO events VALUES (?, ?)"
    with Gate(f"sqlite:///{tmp_path / 'app.db'}", scope="live:acme") as gate:
        first = query(gate, insert, ["e-1", "click"])
        for sql, params in ((insert, ["e-2", "click"]), ("DELETE FROM events WHERE id = ? OR name = ?", ["e-1", "x"])):
            with pytest.raises(KeyReused):
                query(gate, sql, params)
        again = query(gate, insert, ["e-1", "click"])
    rows = connection.execute("SELECT id, name FROM events").fetchall()
    connection.close()

    assert 1 == first == again
    assert rows == [("e-1", "click")]
