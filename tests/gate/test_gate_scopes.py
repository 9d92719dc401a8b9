"""Keys and scopes: whose key it is, what may be one, and which environment it belongs to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceward import KeyReused, derive, mint
from onceward.errors import KeyInvalid


class Expenses:
    """A table of a business: what a worker's tool writes to. It has no constraint of its own."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.connection.execute("CREATE TABLE expenses (worker_id, user_id, category, amount)")

    def add(self, worker: str, amount: str) -> int:
        return self.connection.execute("INSERT INTO expenses VALUES (?, 'u-1', 'Food', ?)", (worker, amount)).rowcount

    def rows(self) -> list[Any]:
        return self.connection.execute("SELECT rowid, * FROM expenses ORDER BY rowid").fetchall()


@pytest.fixture
def expenses(tmp_path: Path) -> Iterator[Expenses]:
    """An empty table."""
    made = Expenses(tmp_path / "business.db")
    yield made
    made.connection.close()


@pytest.mark.requirement("B01", "B02")
def test_after_one_call_and_after_many_the_table_holds_the_same(world: Any, expenses: Expenses) -> None:
    """
    Judged by rows: what the second caller hears may say "replayed", a second row never appears.
    """
    gate = world.gate(scope="reconciler")

    def add() -> int:
        return expenses.add("reconciler", "12.50")

    gate.run("demo-key-001", add)
    after_one = expenses.rows()
    answers = [gate.run("demo-key-001", add) for _ in range(5)]

    assert len(after_one) == 1
    assert after_one == expenses.rows()
    assert answers == [1] * 5


@pytest.mark.requirement("B12", "B47")
def test_two_workers_may_use_the_same_key_and_one_worker_may_not_use_it_twice(world: Any, expenses: Expenses) -> None:
    """
    The scope is the worker: two rows for two workers, one for one; never judged across all of them.
    """
    for worker in ("reconciler", "importer", "reconciler", "importer"):
        world.gate(scope=worker).run("k-1", partial(expenses.add, worker, "12.50"))

    assert [row[1] for row in expenses.rows()] == ["reconciler", "importer"]
    assert [len(world.gate(scope=worker).rows()) for worker in ("reconciler", "importer")] == [1, 1]


@pytest.mark.requirement("B46")
@pytest.mark.fault("a-scope-is-not-part-of-the-identity")
def test_a_workers_identity_is_apart_from_its_version(world: Any, expenses: Expenses) -> None:
    """
    Deploying a new version keeps the scope if the scope names the worker; with the version in it, it changes.
    """

    def deployed(scope: str) -> int:
        return world.gate(scope=scope).run("k-1", lambda operation: expenses.add(operation.scope, "12.50"))

    for _ in ("v1", "v2"):
        deployed("reconciler")
    assert len(expenses.rows()) == 1
    for version in ("v1", "v2"):
        deployed(f"reconciler-{version}")

    assert [row[1] for row in expenses.rows()] == ["reconciler", "reconciler-v1", "reconciler-v2"]


@pytest.mark.requirement("B45")
def test_a_resumed_run_keeps_its_run_id_and_doubles_nothing(world: Any, expenses: Expenses) -> None:
    """
    Crashed after the settle, resumed under the same run id: one row. A fresh run has a fresh id, and is a new run.
    """

    def key(run: str) -> str:
        return derive(worker="reconciler", run=run, turn=1, tool="add_expense", input={"amount": "12.50"})

    crashing, store = world.faulty(scope="reconciler")
    store.die_after("settled")
    with pytest.raises(world.Died):
        crashing.run(key("run-1"), lambda: expenses.add("reconciler", "12.50"))
    gate = world.gate(scope="reconciler")

    gate.run(key("run-1"), lambda: expenses.add("reconciler", "12.50"))
    assert len(expenses.rows()) == 1
    gate.run(key("run-2"), lambda: expenses.add("reconciler", "12.50"))
    assert len(expenses.rows()) == 2


def test_two_users_with_the_same_key_have_two_effects_and_never_see_each_other(world: Any) -> None:
    """
    The tenant is in every record's identity; a changed request of one is not a reuse for the other.
    """
    answers = [
        world.gate(scope=f"live:{user}").run("charge:1", world.Effect(user), request={"user": user})
        for user in ("ann", "bob", "ann", "bob")
    ]

    assert answers == ["ann", "bob", "ann", "bob"]
    assert world.gate(scope="live:eve").get("charge:1") is None
    assert world.gate(scope="live:eve").rows() == []


class TestEnvironments:
    """A scope such as live:acme says which environment it is, and its keys say so too."""

    @pytest.mark.requirement("C55")
    def test_the_same_key_in_two_environments_is_two_records(self, world: Any) -> None:
        """
        Independent: each runs once, each has its own answer.
        """
        effects = {name: world.Effect(name) for name in ("test", "live")}

        for name in ("test", "live", "test", "live"):
            assert name == world.gate(scope=f"{name}:acme").run("charge:1", effects[name])

        assert [effect.count for effect in effects.values()] == [1, 1]

    @pytest.mark.requirement("C57")
    def test_the_prefix_is_added_once_and_a_wrong_one_is_refused(self, world: Any) -> None:
        """
        The stored key carries it; a key that has it already is the same key; the other environment's is refused.
        """
        gate, charge = world.gate(scope="live:acme"), world.Effect()

        gate.run("charge:1", charge)
        gate.run("live:charge:1", charge)
        with pytest.raises(KeyInvalid, match="test environment"):
            gate.run("test:charge:1", charge)

        assert [row.key for row in gate.rows()] == ["live:charge:1"]
        assert charge.count == 1

    def test_references_are_keys_too(self, world: Any) -> None:
        """
        vendor:operation:bucket:uuid in two environments is two references.
        """
        reference, emit = f"stripe:emit:2024-05:{mint()}", world.Effect()

        for scope in ("live:acme", "test:acme"):
            world.gate(scope=scope).run(reference, emit)

        assert emit.count == 2

    def test_a_scope_without_an_environment_leaves_keys_alone(self, world: Any) -> None:
        """
        Nothing is put in front, and nothing is taken for an environment.
        """
        gate = world.gate(scope="acme")
        gate.run("live:charge:1", world.Effect())

        assert [row.key for row in gate.rows()] == ["live:charge:1"]


@pytest.mark.requirement("D10")
@pytest.mark.parametrize("scope", ["acme", "live:acme"])
def test_a_key_has_up_to_255_characters(world: Any, scope: str) -> None:
    """
    255 are taken, 256 refused and never cut: two long keys that begin alike are two keys.
    """
    gate, effect = world.gate(scope=scope), world.Effect()

    gate.run("k" * 255, effect)
    gate.run("k" * 254 + "j", effect)
    with pytest.raises(KeyInvalid, match="255"):
        gate.run("k" * 256, effect)

    assert 2 == effect.count == len(gate.rows())


@pytest.mark.requirement("E26")
@pytest.mark.fault("keys-none-is-given-one")
@pytest.mark.parametrize("key", [None, "", 17, b"charge:1"], ids=repr)
def test_a_request_without_a_key_is_never_quietly_given_one(world: Any, key: Any) -> None:
    """
    Refused before anything runs; the function itself can be called without a gate, and nothing is stored.
    """
    gate, charge = world.gate(), world.Effect()

    with pytest.raises(KeyInvalid):
        gate.run(key, charge)
    assert charge.count == 0
    charge()
    charge()

    assert (charge.count, gate.rows()) == (2, [])


@pytest.mark.parametrize("key", [" ", "a b", "a\n", "a\x00", "ключ", "a\u200b", "\ud800"], ids=ascii)
def test_a_key_is_visible_ascii(world: Any, key: str) -> None:
    """
    Anything else is refused, and never shown.
    """
    with pytest.raises(KeyInvalid):
        world.gate().run(key, world.Effect())


@pytest.mark.requirement("E28", "E29")
def test_a_new_charge_takes_a_new_key_and_a_retry_the_same(world: Any) -> None:
    """
    A key stands for one operation, not for a session: a second charge under it is refused.
    """
    gate, charge = world.gate(), world.Effect()
    session_key, next_key = mint(), mint()

    for _ in range(2):
        gate.run(session_key, charge, request={"order": 1})
    with pytest.raises(KeyReused):
        gate.run(session_key, charge, request={"order": 2})
    gate.run(next_key, charge, request={"order": 2})

    assert charge.count == 2


@pytest.mark.requirement("C20")
def test_a_retry_that_changes_its_key_is_a_new_operation(world: Any) -> None:
    """
    The hazard, shown: two effects. A key that varies with the attempt is therefore refused where it is declared.
    """
    gate, charge = world.gate(), world.Effect()

    for attempt in (1, 2):
        gate.run(f"charge:o-1:attempt-{attempt}", charge)

    assert charge.count == 2
    from onceward._core.key_lint import lint_key

    assert [finding.code for finding in lint_key("charge:o-1:attempt-2")] == ["K1"]
