"""What a store says about itself is what is believed: its attributes and annotations are not looked at."""

from __future__ import annotations

import ast
import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import shelf

from onceward import AsyncGate, Breaker, Budget, ConfigurationError, Gate, OncewardError, Operation
from onceward.errors import IllegalMove
from onceward.retry.shared_state_client import AsyncSharedStateClient, SharedStateClient
from onceward.stores import (
    AwaitedTransaction,
    Capabilities,
    OwnTables,
    PutResult,
    Record,
    Write,
    capabilities_of,
    open_async_store,
    open_store,
)
from onceward.stores.sqlite import SqliteStore

SRC = Path(__file__).resolve().parents[2] / "src" / "onceward"
METHODS = ("put", "put_back", "erase", "load", "extend", "scan", "purge", "close")


def plain(store: Any) -> Any:
    """The eight methods of a store, and nothing else."""

    class Plain:
        """Somebody's store."""

    made = Plain()
    for name in METHODS:
        setattr(made, name, getattr(store, name))
    return made


class Wrapping:
    """Counts, and passes on what the store inside can do."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.puts = 0

    @property
    def capabilities(self) -> Capabilities:
        return capabilities_of(self._store)

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        self.puts += 1
        standing: PutResult = self._store.put(write, expect)
        return standing

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"somebody has looked for {name}")
        return getattr(self._store, name)


def refusal_of(call: Callable[[], object]) -> str:
    """What a call is refused with; empty if it is not."""
    try:
        call()
    except OncewardError as error:
        return str(error) if isinstance(error, ConfigurationError) else repr(error)
    return ""


class TestAStoreThatSaysNothing:
    """Eight methods, in either colour."""

    def test_it_works_in_the_gate_that_it_is_given_to(self) -> None:
        """
        A plain class is a store, and none of its other attributes are looked for.
        """
        effects: list[str] = []

        async def later() -> object:
            gate = AsyncGate(plain(open_async_store("memory://")), scope="test:acme")
            return [await gate.run("k", lambda: effects.append("awaited")) for _ in range(2)]

        gate = Gate(plain(open_store("memory://")), scope="test:acme")
        for _ in range(2):
            gate.run("k", lambda: effects.append("blocked"))
        asyncio.run(later())

        assert effects == ["blocked", "awaited"]

    @pytest.mark.fault("a-silent-store-is-believed-to-join")
    def test_it_can_do_nothing_else(self, tmp_path: Path) -> None:
        """
        Not even if what is inside could: each is refused with what would be needed.
        """
        gate = Gate(plain(SqliteStore(tmp_path / "agent.db")), scope="test:acme")
        connection = sqlite3.connect(tmp_path / "agent.db")

        assert Capabilities() == capabilities_of(gate.store)
        assert "relaxed_settle needs a store" in refusal_of(lambda: gate.run("k", int, relaxed_settle=True))
        assert "settle='inside' needs" in refusal_of(
            lambda: gate.run("k", int, guarantee="atomic", settle="inside", request=1)
        )
        assert "not a SQLite file" in refusal_of(lambda: gate.atomic(connection, "k", int))
        assert "neither a SQLite file" in refusal_of(lambda: gate.outbox(connection))

    @pytest.mark.fault("the-colour-of-a-silent-store-is-guessed")
    def test_what_takes_both_colours_asks_for_its_own(self) -> None:
        """
        A shared budget or breaker does not guess: it says what the store has to say.
        """
        store = plain(open_store("memory://"))

        for shared in (Budget.shared, Breaker.shared):
            assert "Capabilities(awaits=...)" in refusal_of(lambda made=shared: made(store, "payments"))  # type: ignore[misc]


class TestTheColour:
    """`Capabilities.awaits`."""

    @pytest.mark.fault("a-store-of-the-other-colour-is-taken")
    def test_a_gate_refuses_a_store_of_the_other_colour(self) -> None:
        """
        At once, naming the gate that it is for; and not at the first call, with a coroutine for a record.
        """
        blocking: Any = open_store("memory://")
        awaiting: Any = open_async_store("memory://")

        assert "it is for Gate, not for AsyncGate" in refusal_of(lambda: AsyncGate(blocking, scope="test:acme"))
        assert "it is for AsyncGate, not for Gate" in refusal_of(lambda: Gate(awaiting, scope="test:acme"))

    @pytest.mark.parametrize("awaits", [False, True])
    def test_annotations_are_not_read(self, awaits: bool) -> None:
        """
        A store whose annotations say the opposite, or nothing, is what it says itself.
        """

        class Odd:
            """Annotated wrongly."""

            capabilities = Capabilities(awaits=awaits)

            def load(self, id: bytes) -> Awaitable[Record | None] | None:
                """Nothing."""

            def put(self, write, expect):  # type: ignore[no-untyped-def]
                """Nothing."""

        breaker = Breaker.shared(Odd(), "payments")

        assert isinstance(breaker._client, AsyncSharedStateClient if awaits else SharedStateClient)

    def test_capabilities_of_another_kind_are_refused(self) -> None:
        """
        A dictionary, or a class in place of an instance, is a mistake that is told.
        """
        store: Any = Wrapping(open_store("memory://"))
        for odd in ({"awaits": False}, Capabilities, None):
            said = type("Odd", (), {"capabilities": odd, **{name: getattr(store, name) for name in METHODS}})()

            assert "is an onceward.stores.Capabilities, not" in refusal_of(lambda one=said: Gate(one, scope="test:a"))  # type: ignore[misc]


class TestPassingOn:
    """A store around another."""

    @pytest.mark.fault("a-wrapped-store-does-not-join")
    def test_a_wrapped_file_still_joins_transactions_and_has_an_outbox(self, tmp_path: Path) -> None:
        """
        What the store inside can do is done through it, and the rest goes through the wrapper.
        """
        store = Wrapping(SqliteStore(tmp_path / "agent.db"))
        gate = Gate(store, scope="test:acme")
        connection = sqlite3.connect(tmp_path / "agent.db")
        connection.execute("CREATE TABLE orders (id TEXT)")
        gate.run("k", lambda: 1)

        def order() -> str:
            connection.execute("INSERT INTO orders VALUES ('o-17')")
            return "ordered"

        answers = [_answer(lambda: gate.atomic(connection, "order", order)) for _ in range(2)]
        outbox = refusal_of(lambda: gate.outbox(connection))

        assert answers == ["ordered", "ordered"]
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
        assert (outbox, store.puts) == ("", 2)

    @pytest.mark.fault("a-glance-is-not-passed-on")
    def test_a_replay_takes_a_glance_through_it(self, tmp_path: Path) -> None:
        """
        It is the store's own quick look, and no put; taken away, the replay is a put.
        """

        class Blind(Wrapping):
            """Passes on all but one."""

            @property
            def capabilities(self) -> Capabilities:
                return replace(super().capabilities, peek=None)

        puts = []
        for number, kind in enumerate((Wrapping, Blind)):
            store = kind(SqliteStore(tmp_path / f"{number}.db"))
            gate = Gate(store, scope="test:acme")
            for _ in range(20):
                gate.run("k", lambda: 1)
            puts.append(store.puts)

        assert puts[0] < 20 < puts[1]


class TestJoiningInAWayOfItsOwn:
    """The store of the page, whose records are in a table of its own."""

    @pytest.fixture
    def connection(self, tmp_path: Path) -> sqlite3.Connection:
        ours = sqlite3.connect(tmp_path / "shelf.db")
        ours.execute("CREATE TABLE orders (id TEXT)")
        return ours

    @pytest.fixture
    def gate(self, tmp_path: Path) -> Gate:
        return Gate(shelf.Shelf(tmp_path / "shelf.db"), scope="test:acme")  # type: ignore[attr-defined]

    def test_a_function_that_commits_behind_its_back_is_found_out(
        self, gate: Gate, connection: sqlite3.Connection
    ) -> None:
        """
        The record would stand without the rows, or the rows without the record: it is told, and no answer is stored.
        """

        def order() -> str:
            connection.execute("INSERT INTO orders VALUES ('o-17')")
            connection.commit()
            return "ordered"

        with pytest.raises(IllegalMove):
            gate.atomic(connection, "order", order)
        assert gate.records.get("order") is None or gate.records.get("order").state != "settled"  # type: ignore[union-attr]

    def test_in_the_callers_own_transaction_the_caller_decides(
        self, gate: Gate, connection: sqlite3.Connection
    ) -> None:
        """
        Rolled back, neither row nor record stands; committed, both do.
        """

        def order() -> str:
            connection.execute("INSERT INTO orders VALUES ('o-17')")
            return "ordered"

        seen = []
        for ends in (connection.rollback, connection.commit):
            connection.execute("BEGIN IMMEDIATE")
            gate.atomic(connection, "order", order)
            ends()
            rows = connection.execute("SELECT count(*) FROM orders").fetchone()
            seen.append((*rows, gate.records.get("order") is not None))

        assert seen == [(0, False), (1, True)]

    def test_a_function_settles_inside_its_own_transaction(self, gate: Gate, connection: sqlite3.Connection) -> None:
        """
        `settle_inside` takes such a connection, too.
        """

        def order(operation: Operation) -> None:
            with connection:
                connection.execute("INSERT INTO orders VALUES ('o-17')")
                operation.settle_inside(connection, "ordered")

        answers = [gate.run("order", order, guarantee="atomic", settle="inside") for _ in range(2)]

        assert answers == ["ordered", "ordered"]
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]

    @pytest.mark.fault("a-method-called-finish-is-taken-for-ours")
    def test_a_method_that_is_called_like_one_of_ours_is_not_looked_for(
        self, gate: Gate, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        What somebody's adapter has besides the seven methods is its own affair.
        """

        def finish(self: object, *_: object) -> PutResult:
            raise AssertionError("that is not for the gate")

        monkeypatch.setattr(shelf.JoinedShelf, "finish", finish, raising=False)  # type: ignore[attr-defined]
        try:
            answer = gate.atomic(connection, "order", lambda: "ordered")
        except AssertionError as error:
            answer = str(error)

        assert answer == "ordered"

    @pytest.mark.fault("a-savepoint-is-lost-on-the-way")
    def test_an_awaiting_gate_hears_of_a_savepoint_of_the_callers(self) -> None:
        """
        `AwaitedTransaction` passes on what the blocking one says; one that says nothing is in none.
        """
        said = [AwaitedTransaction(type("Own", (), told)()) for told in ({"nested": True}, {"nested": False}, {})]  # type: ignore[arg-type]

        assert [getattr(one, "nested", None) or False for one in said] == [True, False, False]

    def test_what_it_cannot_join_is_refused(self, gate: Gate, tmp_path: Path) -> None:
        """
        Another file, another library, and an outbox, which needs tables of ours.
        """
        other = sqlite3.connect(tmp_path / "other.db")

        assert "open on another file" in refusal_of(lambda: gate.atomic(other, "k", int))
        assert "joins connections of sqlite3" in refusal_of(lambda: gate.atomic(object(), "k", int))
        assert "no message could share your transaction" in refusal_of(lambda: gate.outbox(other))

    @pytest.mark.fault("an-outbox-goes-where-the-record-does-not")
    def test_what_is_no_record_is_not_written_through_it(self, gate: Gate, connection: sqlite3.Connection) -> None:
        """
        Also if the tables were there: only the store knows its way into the transaction.
        """
        from onceward.adapters._transaction import run_in_transaction

        assert "which is for records only" in refusal_of(lambda: run_in_transaction(connection, gate.store, iter(())))  # type: ignore[arg-type]


def _answer(call: Callable[[], object]) -> object:
    """What a call answers, or the refusal."""
    try:
        return call()
    except ConfigurationError as error:
        return str(error)


def test_ours_say_all_that_they_can(tmp_path: Path) -> None:
    """
    Colour, relaxed settles, a quick look, joining and tables, by what their URL says.
    """
    plain_file = capabilities_of(open_store(f"sqlite:///{tmp_path}/a.db"))
    odd_file = capabilities_of(open_async_store(f"sqlite:///{tmp_path}/b%20b.db?settle=relaxed&read_first=0"))
    memory = capabilities_of(open_store("memory://"))

    assert (plain_file.awaits, plain_file.relaxes, plain_file.peek is not None) == (False, False, True)
    assert (odd_file.awaits, odd_file.relaxes, odd_file.peek) == (True, True, None)
    assert odd_file.tables == f"sqlite:///{tmp_path}/b%20b.db"
    assert isinstance(odd_file.joins, OwnTables)
    assert Capabilities(awaits=False, relaxes=True) == memory
    assert "secret" not in repr(Capabilities(tables="postgresql://user:secret@host/name"))


GUESSES = frozenset({
    *("getattr", "hasattr", "callable", "iscoroutinefunction", "isawaitable", "is_async"),
    *("signature", "get_type_hints", "get_annotations"),
})  # fmt: skip
ABOUT = re.compile(r"(store|joined)$|(store|joined)\.")


def guesses(source: str) -> list[str]:
    """Where a module finds out by itself what a store, or what was joined, can do."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).rpartition(".")[2]
            about = ast.unparse(node.args[0]).lower()
            plain = isinstance(node.args[0], ast.Name | ast.Attribute)
            if called in GUESSES and plain and ABOUT.search(about):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Attribute) and node.attr == "__annotations__":
            found += [ast.unparse(node)] if ABOUT.search(ast.unparse(node.value).lower()) else []
    return found


@pytest.mark.fault("a-store-is-guessed-at-again")
def test_no_module_looks_for_attributes_of_a_store() -> None:
    """
    But the one that reads `capabilities`; and the check itself finds what it is for.
    """
    offences = {
        path.relative_to(SRC).as_posix(): found
        for path in sorted(SRC.rglob("*.py"))
        if (found := guesses(path.read_text(encoding="utf-8")))
    }

    assert offences == {
        "_core/capabilities.py": ["getattr(store, 'capabilities', NO_CAPABILITIES)", "getattr(joined, 'nested', False)"]
    }
    for guess in (
        "hasattr(self._store, 'glance')",
        "getattr(joined, 'finish', None)",
        "inspect.signature(store.put)",
        "inspect.iscoroutinefunction(self.store.load)",
        "store.load.__annotations__",
    ):
        assert [guess] == guesses(guess)
