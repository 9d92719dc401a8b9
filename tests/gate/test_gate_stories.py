"""The stories that the project began with: charges, mails, queues and databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceward import KeyReused
from onceward.errors import RecordedFailure

CREATED = {"status": 201, "body": '{"status":"created"}'}


class Mailer:
    """A mail server that delivers what it is given and, on a bad day, loses its answers."""

    def __init__(self, *, silent: int = 0) -> None:
        self.delivered: list[str] = []
        self._silent = silent

    def send(self, message: str) -> str:
        self.delivered.append(message)
        if len(self.delivered) <= self._silent:
            raise TimeoutError("250 was never heard")
        return "250 OK"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A business's own database, each statement a transaction of its own."""
    connection = sqlite3.connect(tmp_path / "business.db", check_same_thread=False, isolation_level=None)
    connection.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY, amount)")
    yield connection
    connection.close()


@pytest.mark.requirement("D03")
def test_forty_seven_attempts_send_one_mail(world: Any) -> None:
    """
    However often the workflow restarts, with another gate each time.
    """
    mailer = Mailer()

    answers = [world.gate().run("mail:welcome:u-1", lambda: mailer.send("welcome u-1")) for _ in range(47)]

    assert mailer.delivered == ["welcome u-1"]
    assert answers == ["250 OK"] * 47


def test_forty_seven_attempts_after_a_lost_answer_send_one_mail_too(world: Any) -> None:
    """
    The first answer was lost: nobody knows, and nobody sends it again.
    """
    mailer, gate, codes = Mailer(silent=1), world.gate(), []
    with pytest.raises(TimeoutError):
        gate.run("mail:welcome:u-1", lambda: mailer.send("welcome u-1"))

    codes = [
        world.hear(lambda: gate.run("mail:welcome:u-1", lambda: mailer.send("welcome u-1"))).code for _ in range(46)
    ]

    assert mailer.delivered == ["welcome u-1"]
    assert {*codes} == {"in_doubt"}


@pytest.mark.requirement("E03")
def test_a_message_delivered_twice_by_a_queue_has_one_effect(world: Any) -> None:
    """
    The consumer died before it acknowledged; the queue delivers again, to another consumer.
    """
    queue, ledger, acknowledged = [{"id": "m-1", "amount": 5}, {"id": "m-2", "amount": 7}], [], []

    def consume(gate: Any) -> None:
        for message in queue:
            gate.run(f"message:{message['id']}", partial(ledger.append, message["amount"]), request=message)
            acknowledged.append(message["id"])

    crashing, store = world.faulty()
    store.die_after("settled")
    with pytest.raises(world.Died):
        consume(crashing)
    assert acknowledged == []
    consume(world.gate())

    assert ledger == [5, 7]
    assert acknowledged == ["m-1", "m-2"]


@pytest.mark.requirement("A04")
def test_a_replay_touches_no_row(world: Any, database: sqlite3.Connection) -> None:
    """
    The database's change counter stands still.
    """
    gate = world.gate()

    def insert() -> int:
        return database.execute("INSERT INTO charges (amount) VALUES ('12.50')").rowcount

    first = gate.run("charge:1", insert)
    changes = database.total_changes
    second = gate.run("charge:1", insert)

    assert (first, second) == (1, 1)
    assert changes == database.total_changes


@pytest.mark.requirement("A07")
def test_a_statement_that_failed_leaves_its_key_usable(world: Any, database: sqlite3.Connection) -> None:
    """
    The table is missing; it is created; the same key runs.
    """
    gate = world.gate(before=sqlite3.OperationalError)

    def insert() -> int:
        return database.execute("INSERT INTO refunds VALUES (1)").rowcount

    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        gate.run("refund:1", insert)
    database.execute("CREATE TABLE refunds (id)")

    assert [gate.run("refund:1", insert) for _ in range(2)] == [1, 1]
    assert database.execute("SELECT id FROM refunds").fetchall() == [(1,)]


@pytest.mark.requirement("E06", "E07", "E15", "C12")
def test_the_first_attempt_stores_status_and_body_and_later_ones_get_them(world: Any) -> None:
    """
    The record holds both, created stays created on replay, and every later answer equals the first.
    """
    gate, charge = world.gate(), world.Effect(CREATED)

    first = gate.run("charge:1", charge, request={"amount": "12.50"})
    later = [gate.run("charge:1", charge, request={"amount": "12.50"}) for _ in range(3)]

    assert CREATED == gate.get("charge:1").result == first
    assert [first] * 3 == later
    assert charge.count == 1


@pytest.mark.requirement("E14", "E25")
def test_first_run_replay_and_lost_race_answer_in_the_same_shape(world: Any) -> None:
    """
    One status and one body on all three ways out, and an Outcome of the same fields; the loser gets no error.
    """
    fresh, replayed = (world.gate().call("charge:2", world.Effect(CREATED)) for _ in range(2))
    (loser, store), late = world.faulty(), world.Effect({"status": 500, "body": "lost"})

    def race(number: int, what: str) -> None:
        if what == "claim" and store.calls.count("claim") == 1:  # It has seen nothing there; now the winner comes.
            world.gate().run("charge:1", world.Effect(CREATED))

    store.before = race
    answers = [fresh, replayed, loser.call("charge:1", late)]

    assert late.count == 0
    assert [answer.value for answer in answers] == [CREATED] * 3
    assert len({tuple(sorted(answer.value)) for answer in answers}) == 1
    assert len({answer._fields for answer in answers}) == 1
    assert [answer.replayed for answer in answers] == [False, True, True]


@pytest.mark.requirement("E08")
def test_with_failures_remembered_a_failed_result_is_replayed_as_well(world: Any) -> None:
    """
    Whether it succeeded or failed, what was first is what is said.
    """
    gate, charge = world.gate(remember="all"), world.Effect(ValueError("card declined"))
    with pytest.raises(ValueError, match="declined"):
        gate.run("charge:1", charge)

    with pytest.raises(RecordedFailure, match="card declined"):
        gate.run("charge:1", charge)

    assert charge.count == 1


@pytest.mark.requirement("C21")
def test_reordered_members_are_the_same_request(world: Any) -> None:
    """
    Requests are compared in canonical form, at every depth.
    """
    gate, emit = world.gate(), world.Effect()

    gate.run("delta:1", emit, request={"customer": "c-1", "delta": -1, "meta": {"a": 1, "b": [1, 2]}})
    outcome = gate.call("delta:1", emit, request={"meta": {"b": [1, 2], "a": 1}, "delta": -1, "customer": "c-1"})

    assert (outcome.replayed, emit.count) == (True, 1)


def test_one_byte_of_the_amount_changed_is_another_request(world: Any) -> None:
    """
    And so is another order of a list, or another type of number.
    """
    gate, emit = world.gate(), world.Effect()
    gate.run("delta:1", emit, request={"amount": "12.50", "items": [1, 2]})

    for other in ({"amount": "12.51", "items": [1, 2]}, {"amount": "12.50", "items": [2, 1]}, {"amount": "12.50"}):
        with pytest.raises(KeyReused):
            gate.run("delta:1", emit, request=other)

    assert emit.count == 1


def test_safety_comes_from_the_key_and_not_from_the_verb(world: Any) -> None:
    """
    A function that sets and a function that adds are gated alike when asked.
    """
    gate, shelf = world.gate(), {"stock": 10, "writes": 0}

    def put() -> int:
        shelf.update(stock=7, writes=shelf["writes"] + 1)
        return shelf["stock"]

    def patch() -> int:
        shelf.update(stock=shelf["stock"] - 3, writes=shelf["writes"] + 1)
        return shelf["stock"]

    answers = [
        gate.run(key, fn) for fn, key in ((put, "put:1"), (put, "put:1"), (patch, "patch:1"), (patch, "patch:1"))
    ]

    assert answers == [7, 7, 4, 4]
    assert shelf == {"stock": 4, "writes": 2}
