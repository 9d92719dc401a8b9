"""Atomic mode on psycopg connections that callers have set up in their own way, in both colours."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.postgres import register_default_adapters
from psycopg.pq import Format

from onceward import ConfigurationError, Gate
from onceward.adapters import _psycopg_pipeline
from onceward.errors import IllegalMove, RetryTransaction
from servers.pgbouncer import pooled, program
from servers.postgres import PostgresServer, needed
from stores.postgres.atomic_support import COLOURS, Bank, entered, told

needed()

CLAIMS = pytest.mark.parametrize("claim", ["first", "last"])
BLOCKING_CURSORS = {"client": psycopg.ClientCursor, "raw": psycopg.RawCursor}
AWAITING_CURSORS = {"client": psycopg.AsyncClientCursor, "raw": psycopg.AsyncRawCursor}


@pytest.fixture(params=COLOURS)
def bank(request: pytest.FixtureRequest, url: str, admin: psycopg.Connection[Any]) -> Bank:
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    return Bank(url, request.param, wait=0)


def _effects(admin: psycopg.Connection[Any]) -> int:
    [(count,)] = admin.execute("SELECT count(*) FROM effects").fetchall()
    return int(count)


async def _outcomes(bank: Bank, caller: Any, claim: str) -> list[Any]:
    """A fresh call and its replay; a failure; and both inside the caller's own transaction."""

    async def fail() -> None:
        await caller.execute("INSERT INTO effects VALUES ('lost')")
        raise ZeroDivisionError

    async def book() -> str:
        await caller.execute("INSERT INTO effects VALUES ('kept')")
        return "kept"

    answers = [await caller.atomic("k", book, claim=claim) for _ in range(2)]
    with pytest.raises(ZeroDivisionError):
        await caller.atomic("k2", fail, claim=claim)
    async with caller.transaction():
        with pytest.raises(ZeroDivisionError):
            await caller.atomic("k2", fail, claim=claim)
        answers += [await caller.atomic("k2", book, claim=claim) for _ in range(2)]
    return answers


def _a_row_of_nothing(cursor: Any) -> Any:
    """A row factory of somebody who has only ever selected: without columns it fails."""
    names = [column.name for column in cursor.description]
    return lambda values: dict(zip(names, values, strict=True))


@CLAIMS
@pytest.mark.parametrize("kind", ["client", "raw", "rows"])
@told
async def test_cursors_and_rows_of_the_callers_own_make(
    bank: Bank, admin: psycopg.Connection[Any], claim: str, kind: str
) -> None:
    """
    Whatever the connection's cursors are, and whatever they make of rows: ours are our own.
    """
    caller = await bank.caller()
    if kind == "rows":
        caller.connection.row_factory = _a_row_of_nothing

        async def execute(sql: str) -> None:
            plain: Any = psycopg.AsyncCursor if bank.awaits else psycopg.Cursor
            await bank.value(plain(caller.connection, row_factory=psycopg.rows.tuple_row).execute(sql))

        caller.execute = execute  # type: ignore[method-assign, assignment]
    else:
        caller.connection.cursor_factory = (AWAITING_CURSORS if bank.awaits else BLOCKING_CURSORS)[kind]

    assert (await _outcomes(bank, caller, claim), _effects(admin)) == (["kept"] * 4, 2)


@CLAIMS
@told
async def test_where_nothing_shall_be_prepared_nothing_is(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    prepare_threshold=None, and no different otherwise.
    """
    caller = await bank.caller(prepare_threshold=None)
    answers = await _outcomes(bank, caller, claim)
    prepared = await caller.execute("SELECT name FROM pg_prepared_statements")

    assert (answers, _effects(admin), prepared) == (["kept"] * 4, 2, [])


class Nonsense(psycopg.adapt.Loader):
    """Reads anything as the same."""

    def load(self, data: Any) -> str:
        return "nonsense"


class BinaryNonsense(Nonsense):
    format = Format.BINARY


class Rubbish(psycopg.adapt.Dumper):
    """Writes anything as the same."""

    def dump(self, obj: Any) -> bytes:
        return b"rubbish"


@pytest.fixture
def meddled() -> Iterator[None]:
    """A program that has made its own of psycopg's types, for all its connections."""
    for name in ("bytea", "int2", "int8", "text", "oid", "bool", "float8"):
        psycopg.adapters.register_loader(name, Nonsense)
        psycopg.adapters.register_loader(name, BinaryNonsense)
    for kind in (str, bytes, int):
        psycopg.adapters.register_dumper(kind, Rubbish)
    yield
    register_default_adapters(psycopg)


@CLAIMS
@pytest.mark.usefixtures("meddled")
@told
async def test_what_a_program_made_of_all_types_does_not_touch_ours(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    Registered for all connections: neither atomic mode nor the store reads or writes with it.
    """
    caller = await bank.caller()
    answers = await _outcomes(bank, caller, claim)
    await bank.value(bank.gate.run("s", lambda: 1) if not bank.awaits else bank.gate.run("s", _one))

    assert (answers, _effects(admin)) == (["kept"] * 4, 2)
    assert (await bank.record("k")).state == "settled"


async def _one() -> int:
    return 1


ENCODINGS = [
    *(("UTF8", client) for client in ("UTF8", "LATIN1", "SQL_ASCII")),
    *(("LATIN1", client) for client in ("UTF8", "LATIN1")),
    *(("SQL_ASCII", client) for client in ("UTF8", "LATIN1", "SQL_ASCII")),
]


def _database(server: PostgresServer, encoding: str) -> str:
    name = f"kept_in_{encoding.lower()}"
    if not server.execute(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
        server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    server.execute("DROP TABLE IF EXISTS effects, onceward_records, onceward_meta", name)
    server.execute("CREATE TABLE effects (name text)", name)
    return server.url(name)


@pytest.mark.parametrize(("kept", "client"), ENCODINGS)
@pytest.mark.parametrize("colour", COLOURS)
def test_words_are_the_same_in_every_encoding(server: PostgresServer, kept: str, client: str, colour: str) -> None:
    """
    Whatever the database is kept in and the caller's connection speaks: the store reads what atomic mode wrote, and the
    other way round.
    """

    @told
    async def scenario(bank: Bank) -> None:
        caller = await bank.caller(client_encoding=client)
        answers = [await caller.atomic("key", _saying("grün"), name="prüfen") for _ in range(2)]
        record = await bank.record("key")
        await bank.value(bank.gate.run("later", _saying("blau") if bank.awaits else lambda: "blau", name="prüfen"))
        answers.append(await caller.atomic("later", _saying("nie"), name="prüfen"))

        assert (answers, record.operation, record.state) == (["grün", "grün", "blau"], "prüfen", "settled")

    scenario(Bank(_database(server, kept), colour))


def _saying(word: str) -> Any:
    async def say() -> str:
        return word

    return say


@pytest.mark.parametrize("colour", COLOURS)
def test_a_connection_without_an_encoding_is_refused_where_words_would_be_lost(
    server: PostgresServer, colour: str
) -> None:
    """
    SQL_ASCII, and a database kept in LATIN1: nothing is converted there. It is said what to do; nothing was sent.
    """

    @told
    async def scenario(bank: Bank) -> None:
        caller = await bank.caller(client_encoding="SQL_ASCII")
        with pytest.raises(ConfigurationError, match="SET client_encoding"):
            await caller.atomic("k")
        at_rest = caller.connection.info.transaction_status
        await caller.execute("SET client_encoding = 'UTF8'")
        await caller.commit()

        assert (at_rest, await caller.atomic("k")) == (psycopg.pq.TransactionStatus.IDLE, "one")

    scenario(Bank(_database(server, "LATIN1"), colour))


def test_under_sqlalchemy_a_connection_without_an_encoding_is_told_so(url: str) -> None:
    """
    psycopg gives words as bytes then. That is not another database, and is not called one.
    """
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with Gate(url, scope="test:unencoded") as gate, engine.connect() as connection:
        connection.exec_driver_sql("SET client_encoding = 'SQL_ASCII'")
        connection.commit()
        with pytest.raises(ConfigurationError, match="SET client_encoding"):
            gate.atomic(connection, "k", lambda: 1)
    engine.dispose()


@CLAIMS
@pytest.mark.parametrize("sent", [False, True])
@told
async def test_a_function_that_leaves_the_connection_in_pipeline_mode_is_told(
    bank: Bank, admin: psycopg.Connection[Any], claim: str, sent: bool
) -> None:
    """
    Answers in that pipeline are the caller's, and ours would be among them. Nothing is kept, and the line is closed.
    """
    caller = await bank.caller()
    with pytest.raises(IllegalMove, match="pipeline mode"):
        async with AsyncExitStack() as stack, caller.block("k", claim=claim) as operation:
            await caller.book()
            await stack.enter_async_context(entered(caller.connection.pipeline()))
            if sent:
                await bank.value(caller.connection.execute("INSERT INTO effects VALUES ('two')"))
            operation.settle("never")

    assert (caller.connection.closed, _effects(admin)) == (True, 0)


class _EachForItself(threading.local):
    """Numbers as many processes have them: each counts for itself, so that they meet."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def __next__(self) -> int:
        return next(self._numbers)


@pytest.mark.skipif(program() is None, reason="NOT TESTED HERE: no pgbouncer on this machine")
@pytest.mark.parametrize("claim", ["first", "last"])
def test_behind_a_pooler_that_was_not_declared_no_answer_is_anothers(
    server: PostgresServer, url: str, admin: psycopg.Connection[Any], claim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    PgBouncer in transaction mode, and callers who have left prepare_threshold as it is: a session of the server knows
    what somebody else has prepared. They may have to run it again; each key has one effect and its own answer.
    """
    monkeypatch.setattr(_psycopg_pipeline, "_numbers", _EachForItself())
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    wrong: list[Any] = []

    def work(number: int, gate: Gate, address: str) -> None:
        with psycopg.connect(address) as connection:
            for key in (f"{number}:{n}" for n in range(12)):

                def book(key: str = key) -> str:
                    connection.execute("INSERT INTO effects VALUES (%s)", [key], prepare=False)
                    return key

                for _ in range(30):
                    try:
                        answers = [gate.atomic(connection, key, book, claim=claim) for _ in range(2)]
                    except RetryTransaction:
                        continue
                    wrong.extend(answer for answer in answers if answer != key)
                    break
                else:
                    wrong.append(f"{key} was given up")

    with pooled(server, "transaction", default_pool_size=2) as bouncer, Gate(url, scope="test:undeclared") as gate:
        gate.run("warm", lambda: 1)
        threads = [threading.Thread(target=work, args=(n, gate, bouncer.url("onceward"))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    names = admin.execute("SELECT name, count(*) FROM effects GROUP BY name").fetchall()

    assert wrong == []
    assert {f"{n}:{m}": 1 for n in range(4) for m in range(12)} == dict(names)
