"""
Transactional routes: what the handler settled is the answer. The decisions, and a gate under them.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, Gate, InDoubt, Operation, Reply
from onceward.errors import NotSettled, ResultInvalid
from onceward.http.server.handler_outcomes import (
    RolledBackResponse,
    gate_options,
    handler_result,
    is_own_refusal,
    remembers,
)
from onceward.http.server.profile import profile
from onceward.http.server.response_recorder import ResponseRecorder
from onceward.http.server.responses import settled_response

TRANSACTIONAL = profile("default", transactional=True)
CREATED = Reply.json({"id": 7}, status=201, headers={"Location": "/orders/7"})


class Counter:
    """A handler under a gate, as a middleware runs it."""

    def __init__(self, folder: Path) -> None:
        self.gate = Gate(f"sqlite:///{folder}/app.db", scope="acme", wait=0)
        self.gate.records.get("opened")
        self.connection = sqlite3.connect(folder / "app.db")
        with self.connection:
            self.connection.execute("CREATE TABLE orders (id INTEGER)")

    def serve(self, settles: Any, answers: Reply, *, commits: bool = True) -> Reply:
        """One request: what the client is sent."""

        def handler(operation: Operation) -> Any:
            self.connection.execute("INSERT INTO orders VALUES (7)")
            if settles is not None:
                operation.settle_inside(self.connection, settles)
            self.connection.commit() if commits else self.connection.rollback()
            return handler_result(TRANSACTIONAL, answers, operation)

        try:
            return settled_response(self.gate.call("k", handler, **gate_options(TRANSACTIONAL)), TRANSACTIONAL)
        except RolledBackResponse as failed:
            assert isinstance(failed.reply, Reply)
            return failed.reply
        except NotSettled:
            if is_own_refusal(answers):
                return answers
            raise

    @property
    def rows(self) -> int:
        [(count,)] = self.connection.execute("SELECT count(*) FROM orders").fetchall()
        return int(count)

    def state(self) -> str:
        found = self.gate.records.get("k")

        assert found is not None
        return found.state


@pytest.fixture
def counter(tmp_path: Path) -> Any:
    made = Counter(tmp_path)
    yield made
    made.connection.close()
    made.gate.close()


def test_a_transactional_route_claims_first_and_settles_inside() -> None:
    """
    As options of the gate; what is remembered is what was settled, whatever the profile says.
    """
    options = gate_options(profile("stripe", transactional=True))

    assert (options["guarantee"], options["settle"], options["remember"]) == ("atomic", "inside", "success")
    assert "before" not in options
    assert not remembers(profile("stripe", transactional=True), 500)
    with pytest.raises(ConfigurationError, match="is atomic"):
        profile("default", transactional=True, guarantee="keyed")


@pytest.mark.parametrize("answers", [CREATED, Reply(200), Reply(500)], ids=lambda reply: str(reply.status))
def test_what_was_settled_is_sent_whatever_was_answered(counter: Counter, answers: Reply) -> None:
    """
    Status, headers and body, on the first answer and on every replay.
    """
    assert [counter.serve(CREATED, answers) for _ in range(2)] == [CREATED, CREATED]
    assert counter.rows == 1


def test_plain_data_is_an_answer(counter: Counter) -> None:
    """
    A dict is a 200 with JSON in it.
    """
    reply = counter.serve({"id": 7}, Reply(201))

    assert (reply.status, reply.header("content-type"), reply.body) == (200, "application/json", b'{"id":7}')


@pytest.mark.parametrize("settles", [None, CREATED], ids=["not settled", "settled"])
@pytest.mark.parametrize("status", [422, 503])
def test_a_refusal_that_was_rolled_back_is_sent_and_the_key_is_free(
    counter: Counter, settles: Any, status: int
) -> None:
    """
    The handler's own 4xx or 5xx; the same key may be used again, and succeeds.
    """
    assert Reply(status) == counter.serve(settles, Reply(status), commits=False)
    assert (counter.rows, counter.state()) == (0, "released")
    assert counter.serve(CREATED, CREATED) == CREATED


def test_a_success_that_was_rolled_back_is_none(counter: Counter) -> None:
    """
    Not even if the handler says so.
    """
    with pytest.raises(NotSettled):
        counter.serve(CREATED, CREATED, commits=False)

    assert counter.state() == "released"


def test_a_success_that_was_never_settled_is_in_doubt(counter: Counter) -> None:
    """
    Its rows may stand, and nobody knows.
    """
    with pytest.raises(InDoubt):
        counter.serve(None, CREATED)

    assert (counter.rows, counter.state()) == (1, "in_doubt")


def test_nothing_passes_before_the_commit_is_known() -> None:
    """
    A stream, or an answer too long to keep, is held back on such a route; elsewhere it passes.
    """
    passed = []
    for chosen in (TRANSACTIONAL, profile("default")):
        recording = ResponseRecorder(chosen, limit=4)
        recording.begin(200, [(b"content-type", b"text/plain")])
        passed.append([recording.feed(b"first", more=True), recording.feed(b"second", more=True)])

    assert passed == [[b"", b""], [b"first", b"second"]]


def test_an_answer_as_json() -> None:
    """
    Bytes, a type, and what else is said; what is no JSON is refused.
    """
    assert Reply(201, (("content-type", "application/json"), ("location", "/orders/7")), b'{"id":7}') == CREATED
    with pytest.raises(ResultInvalid, match="not JSON"):
        Reply.json({"at": object()})
    with pytest.raises(ResultInvalid, match="not JSON"):
        Reply.json(float("nan"))
