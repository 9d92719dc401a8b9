"""Key and constraint together, many writers, and what the outside world is asked: on real stores and a real server."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from onceward import Gate, Operation, StoreUnavailable, insert_once
from onceward.errors import RecordedFailure, RetryAdvice, RetryTransaction
from onceward.runtime.environment import REAL
from onceward.stores import open_store
from servers import postgres, redis

WRITERS = 20
DATABASES = ["sqlite", *(["postgres"] if postgres.wanted() else [])]
STORES = ["memory", *DATABASES, *(["redis"] if redis.wanted() else [])]
TABLES = (
    "CREATE TABLE counters (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO counters VALUES (1, 0)",
    "CREATE TABLE orders (id TEXT PRIMARY KEY, total TEXT NOT NULL)",
)


class Database(NamedTuple):
    """A database with tables of the caller's own, and the gate's records beside them."""

    url: str
    connect: Callable[..., Any]
    forget: str
    """Makes every record one whose time has come."""


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Empty tables."""
    forget = "UPDATE onceward_records SET replay_until = 1, forget_at = 1"
    if request.param == "sqlite":
        path = tmp_path / "agent.db"
        made = Database(f"sqlite:///{path}", lambda timeout=30.0: sqlite3.connect(path, timeout=timeout), forget)
    else:
        import psycopg

        name = f"backstop_{REAL.random(4).hex()}"
        postgres.running().execute(f"CREATE DATABASE {name}")
        url = postgres.running().url(name)
        made = Database(url, lambda timeout=30.0: psycopg.connect(url), f"{forget}, due_at = 1")
    connection = made.connect()
    for statement in TABLES:
        connection.execute(statement)
    connection.commit()
    connection.close()
    yield made
    if request.param == "postgres":
        postgres.running().execute(f"DROP DATABASE {made.url.rpartition('/')[2]} WITH (FORCE)")


def rows(database: Database, sql: str) -> list[Any]:
    connection = database.connect()
    try:
        return [tuple(row) for row in connection.execute(sql).fetchall()]
    finally:
        connection.close()


@pytest.mark.requirement("A12")
def test_many_writers_lose_no_update(database: Database) -> None:
    """
    Twenty threads, each with a connection of its own and three keys sent twice, add to one row: sixty additions, and no
    error but one that says that the same key may be sent again.
    """
    gate = Gate(database.url, scope="test:writers")
    barrier = threading.Barrier(WRITERS)

    def writer(number: int) -> None:
        connection = database.connect()
        barrier.wait()

        def add() -> None:
            connection.execute("UPDATE counters SET value = value + 1 WHERE id = 1")

        for key in [f"add:{number}:{turn}" for turn in range(3)] * 2:
            while True:
                try:
                    gate.atomic(connection, key, add)
                    break
                except (RetryTransaction, StoreUnavailable) as refusal:
                    assert refusal.retry == RetryAdvice.SAME_KEY
                    connection.rollback()
        connection.close()

    with ThreadPoolExecutor(WRITERS) as crowd:
        list(crowd.map(writer, range(WRITERS)))
    gate.close()

    assert rows(database, "SELECT value FROM counters") == [(WRITERS * 3,)]


@pytest.mark.requirement("A12")
def test_a_busy_database_is_reported_as_one_that_may_be_asked_again(database: Database) -> None:
    """
    While somebody holds what is wanted: an error of ours that says same key, never the driver's; and then it works.
    """
    options = "busy=0.05" if database.url.startswith("sqlite") else "onceward_lock_timeout=0.05"
    gate = Gate(f"{database.url}?{options}", scope="test:busy")
    gate.run("before", lambda: 1)
    holder, connection = database.connect(), database.connect(timeout=0.05)
    first = gate.atomic(holder, "job:1")
    if database.url.startswith("sqlite"):
        holder.execute("BEGIN IMMEDIATE")
    else:
        holder.execute("SELECT 1")
    with first as operation:
        operation.settle("done")
        detached, joined = _refusal(gate), _refusal(gate, connection)
    holder.commit()
    answer = gate.atomic(connection, "job:1", lambda: "again")
    for one in (holder, connection, gate):
        one.close()

    assert {detached.retry, joined.retry} == {RetryAdvice.SAME_KEY}
    assert answer == "done"


def _refusal(gate: Gate, connection: Any = None) -> Any:
    with pytest.raises((StoreUnavailable, RetryTransaction)) as refused:
        if connection is None:
            gate.run("job:1", lambda: pytest.fail("it ran"), wait=0)
        else:
            gate.atomic(connection, "job:1", lambda: pytest.fail("it ran"))
    if connection is not None:
        connection.rollback()
    return refused.value


@pytest.mark.requirement("A15")
def test_with_the_record_gone_the_row_is_still_not_doubled(database: Database) -> None:
    """
    The key's time is over and it is purged, so it runs again; the row's own primary key lets nothing more in.
    """
    gate = Gate(database.url, scope="test:backstop")
    connection = database.connect()
    written: list[int] = []

    def book(operation: Operation) -> str:
        written.append(insert_once(connection, "orders", {"id": "o-17", "total": "12.50"}, key=["id"]))
        return "booked"

    answers = [gate.atomic(connection, "order:o-17", book) for _ in range(2)]
    connection.execute(database.forget)
    connection.commit()
    forgotten = gate.purge().forgotten
    answers.append(gate.atomic(connection, "order:o-17", book))
    connection.close()
    gate.close()

    assert (answers, forgotten, written) == (["booked"] * 3, 1, [1, 0])
    assert rows(database, "SELECT id, total FROM orders") == [("o-17", "12.50")]


class Outside(ThreadingHTTPServer):
    """A provider of payments and mail, on a socket: keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, Any]] = []

    def post(self, path: str, body: Any) -> Any:
        """Ask it for something."""
        request = Request(f"http://127.0.0.1:{self.server_port}{path}", json.dumps(body).encode(), method="POST")
        with urlopen(request, timeout=10) as response:
            return json.load(response)


class _Handler(BaseHTTPRequestHandler):
    server: Outside

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        self.send_response(500 if self.path == "/broken" else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"number": len(self.server.asked)}).encode())

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def outside() -> Iterator[Outside]:
    """A server that was not asked for anything yet."""
    with Outside() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(params=STORES)
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gate]:
    """A gate on each kind of store."""
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/agent.db"
        case "postgres":
            url = postgres.running().url("onceward")
        case _:
            url = redis.running().url()
    with Gate(url, scope=f"test:{REAL.random(6).hex()}") as gate:
        yield gate


class TestWhatBecomesSafe:
    """What is not safe to send again becomes so by its key."""

    @pytest.mark.requirement("D07")
    def test_a_charge_by_its_key(self, gate: Gate, outside: Outside) -> None:
        """
        Sent three times, charged once; every sender has the same charge.
        """

        @gate.once(key="charge:{order}")
        def charge(order: str) -> int:
            answer: int = outside.post("/charges", {"order": order})["number"]
            return answer

        assert [charge("o-17") for _ in range(3)] == [1, 1, 1]
        assert outside.asked == [("/charges", {"order": "o-17"})]

    @pytest.mark.requirement("D07")
    def test_a_mail_by_its_message_id(self, gate: Gate, outside: Outside) -> None:
        """
        The Message-ID of a stored draft is a key as it stands: the draft is sent once, another one is another mail.
        """

        @gate.once(key="mail:{message_id}", exclude=("draft",))
        def send(message_id: str, draft: EmailMessage) -> str:
            outside.post("/mails", {"id": message_id, "text": draft.get_content()})
            return "sent"

        drafts = []
        for number in (1, 1, 2):
            draft = EmailMessage()
            draft["Message-ID"] = f"<{number}.onceward@shop.example>"
            draft.set_content("Your order is on its way.")
            drafts.append(draft)
        answers = [send(draft["Message-ID"], draft) for draft in drafts]

        assert answers == ["sent"] * 3
        assert [body["id"] for _, body in outside.asked] == ["<1.onceward@shop.example>", "<2.onceward@shop.example>"]

    @pytest.mark.requirement("D07")
    def test_a_mail_or_a_charge_without_a_gate_is_sent_as_often_as_it_is_asked_for(self, outside: Outside) -> None:
        """
        The negative control: the same server counts every request that reaches it.
        """
        for _ in range(3):
            outside.post("/charges", {"order": "o-17"})

        assert len(outside.asked) == 3


@pytest.mark.requirement("D07")
def test_an_insert_by_its_conflict_clause(database: Database) -> None:
    """
    Three attempts write one row, and none of them is an error.
    """
    connection = database.connect()
    written = [insert_once(connection, "orders", {"id": "o-17", "total": "1"}, key=["id"]) for _ in range(3)]
    connection.commit()
    connection.close()

    assert written == [1, 0, 0]
    assert rows(database, "SELECT count(*) FROM orders") == [(1,)]


@pytest.mark.requirement("D13")
def test_a_remembered_500_replays_and_nothing_is_asked_again(gate: Gate, outside: Outside) -> None:
    """
    With failures remembered, the provider's 500 is the answer: later senders are told of it, and it is not asked again.
    """

    def charge() -> Any:
        return outside.post("/broken", {"order": "o-17"})

    with pytest.raises(HTTPError, match="500") as first:
        gate.run("charge:o-17", charge, remember="all")
    first.value.close()
    replays = []
    for _ in range(2):
        with pytest.raises(RecordedFailure) as replay:
            gate.run("charge:o-17", charge, remember="all")
        replays.append(str(replay.value))

    assert len(outside.asked) == 1
    assert all("HTTPError" in words and "500" in words for words in replays)


@pytest.mark.requirement("D20")
@pytest.mark.parametrize("result", [{"charge": "ch_1"}, None, 0, "", [], False])
def test_any_operation_runs_once_under_its_key_on_any_store(gate: Gate, result: Any) -> None:
    """
    Also one whose answer is nothing, zero or empty: it is an answer, and is replayed like any other.
    """
    runs: list[int] = []

    def operation() -> Any:
        runs.append(1)
        return result

    answers = [gate.run("operation", operation) for _ in range(3)]

    assert [result] * 3 == answers
    assert runs == [1]


@pytest.mark.requirement("D20")
def test_a_store_of_ones_own_plugs_in_by_the_same_seam() -> None:
    """
    A gate takes any object with the methods that a store owes, and asks it for nothing else.
    """

    class Mine:
        def __init__(self) -> None:
            inner = open_store("memory://")
            self.put, self.load, self.extend = inner.put, inner.load, inner.extend
            self.scan, self.purge, self.close = inner.scan, inner.purge, inner.close

    runs: list[int] = []
    with Gate(Mine(), scope="test:mine") as gate:
        answers = [gate.run("k", lambda: runs.append(1) or "done") for _ in range(3)]

    assert (answers, runs) == (["done"] * 3, [1])
