"""Atomic mode that is interrupted on the caller's psycopg connection, wherever that is: answers stay in step."""

from __future__ import annotations

import asyncio
import linecache
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from onceward import AsyncGate, Gate
from onceward.adapters import (
    _psycopg_pipeline,
    _psycopg_transaction,
    _psycopg_transaction_async,
    _psycopg_transaction_flow,
)
from onceward.adapters._psycopg_pipeline import BoundStatement, SendStatements, exchange, preparable
from onceward.runtime import flow_driver
from servers.postgres import needed

needed()

OURS = frozenset(
    module.__file__
    for module in (
        flow_driver,
        _psycopg_transaction,
        _psycopg_transaction_async,
        _psycopg_transaction_flow,
        _psycopg_pipeline,
    )
)
LINES_MAX = 2000
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


class Interrupting:
    """Ctrl-C before one line of the adapter: the one with that number, counted as they are carried out."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in OURS:
            return None
        if event == "line" and not self.where and not _is_empty(frame):
            self._left -= 1
            if self._left < 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def _is_empty(frame: FrameType) -> bool:
    """Whether nothing is carried out in this line: no signal is heard there, and it is not yet in the block."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == "try:"


@contextmanager
def interrupted(at: int) -> Iterator[Interrupting]:
    """What is inside is interrupted there."""
    before = sys.gettrace()
    interrupting = Interrupting(at)
    sys.settrace(interrupting)
    try:
        with suppress(KeyboardInterrupt):
            yield interrupting
    finally:
        sys.settrace(before)


def at_every_line(does: Callable[[int], None]) -> Iterator[str]:
    """Do it again and again, interrupted one line later each time; where that was."""
    for at in range(LINES_MAX):
        with interrupted(at) as interrupting:
            does(at)
        if not interrupting.where:
            return
        yield interrupting.where
    raise AssertionError("it never came to its end")


def in_step(connection: psycopg.Connection[Any], number: int) -> bool:
    """Whether the connection answers what it is asked; or it is closed, and answers nothing."""
    if connection.closed:
        return True
    if (
        connection.pgconn.pipeline_status,
        connection.info.transaction_status,
    ) != (PipelineStatus.OFF, TransactionStatus.IDLE):
        return False
    answer = connection.execute("SELECT %s::int", [number]).fetchall()
    connection.rollback()
    return answer == [(number,)]


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "joined"), [("first", False), ("last", True)])
def test_interrupted_at_any_line_nothing_is_out_of_step(
    url: str, admin: psycopg.Connection[Any], claim: Any, joined: bool
) -> None:
    """
    The connection answers what it is asked, or it is closed; and the operation has one effect, whoever runs it next.
    """
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    with Gate(url, scope="test:interrupted") as gate, psycopg.connect(url) as other:
        connection = psycopg.connect(url)

        def book(connection: psycopg.Connection[Any], key: str) -> str:
            connection.execute("INSERT INTO effects VALUES (%s)", [key])
            return key

        def run(at: int) -> None:
            if joined:
                with connection.transaction():
                    gate.atomic(connection, f"k:{at}", lambda: book(connection, f"k:{at}"), claim=claim)
            else:
                gate.atomic(connection, f"k:{at}", lambda: book(connection, f"k:{at}"), claim=claim)

        run(-1)
        number = 0
        for number, where in enumerate(at_every_line(run)):
            assert in_step(connection, number), where
            if connection.closed:
                connection = psycopg.connect(url)
                run(-1)
            key = f"k:{number}"
            assert key == gate.atomic(other, key, lambda key=key: book(other, key), claim=claim), where  # type: ignore[misc]
        connection.close()
        wrong = admin.execute("SELECT name FROM effects GROUP BY name HAVING count(*) <> 1").fetchall()

    assert wrong == []
    assert number > 100


@pytest.mark.parametrize("leaves", [True, False], ids=["as it is", "a planted fault"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_talk_interrupted_at_any_line_leaves_no_answer_behind(
    url: str, monkeypatch: pytest.MonkeyPatch, leaves: bool, count: int
) -> None:
    """
    One statement, or several together. Without the leaving it is found out.
    """
    if not leaves:
        monkeypatch.setattr(_psycopg_pipeline, "_leave_pipeline", lambda pgconn: None)
    connection = psycopg.connect(url, autocommit=True)
    effect = SendStatements([BoundStatement(preparable(b"SELECT 7"))] * count)
    found = []

    def run(at: int) -> None:
        connection.wait(exchange(connection, effect, []))

    for number, where in enumerate(at_every_line(run)):
        if not in_step(connection, number):
            found.append(where)
            connection.close()
        if connection.closed:
            connection = psycopg.connect(url, autocommit=True)
    connection.close()

    assert leaves is not bool(found), found


class Held:
    """Somebody who holds a key in a transaction that is open, and sees others wait for it."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url)
        self._sees = psycopg.connect(url, autocommit=True)
        self._gate = Gate(url, scope="test:held")

    def __enter__(self) -> Held:
        self._connection.execute("SELECT 1")
        self._gate.atomic(self._connection, "k", lambda: "theirs")
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        self._sees.close()
        self._gate.close()

    def is_waited_for(self) -> bool:
        return bool(self._sees.execute(WAITING).fetchall())

    def interrupt_whoever_waits(self, thread: int) -> None:
        while not self.is_waited_for():
            pass
        signal.pthread_kill(thread, signal.SIGINT)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
@pytest.mark.parametrize("twice", [False, True])
def test_ctrl_c_while_waiting_for_a_racer_ends_the_statement_or_the_connection(
    url: str, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    """
    The first is passed on to the server, and the connection is usable; a second one, while that is done, closes it.
    """
    with (
        Held(url) as held,
        Gate(f"{url}?onceward_lock_timeout=20", scope="test:held") as gate,
        psycopg.connect(url) as connection,
    ):
        if twice:
            monkeypatch.setattr(connection, "cancel_safe", _interrupt)
        watcher = threading.Thread(target=held.interrupt_whoever_waits, args=(threading.get_ident(),))
        watcher.start()
        with pytest.raises(KeyboardInterrupt):
            gate.atomic(connection, "k", lambda: "ours")
        watcher.join()

        assert (twice, True) == (connection.closed, in_step(connection, 8))


def _interrupt(*, timeout: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("twice", [False, True])
def test_a_cancelled_statement_ends_or_its_connection_does(
    url: str, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    """
    The gate shields its statements; when the event loop is torn down, everything is cancelled.
    """

    async def cancelled(*, timeout: float) -> None:
        raise asyncio.CancelledError

    async def scenario() -> tuple[bool, list[Any]]:
        async with (
            AsyncGate(f"{url}?onceward_lock_timeout=20", scope="test:held") as gate,
            await psycopg.AsyncConnection.connect(url) as connection,
        ):
            if twice:
                monkeypatch.setattr(connection, "cancel_safe", cancelled)
            before = asyncio.all_tasks()
            asked = asyncio.ensure_future(gate.atomic(connection, "k", lambda: "ours"))
            while not held.is_waited_for():
                await asyncio.sleep(0.005)
            for task in asyncio.all_tasks() - before:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            if connection.closed:
                return True, []
            return False, await (await connection.execute("SELECT 8")).fetchall()

    with Held(url) as held:
        found = asyncio.run(scenario())

    assert found == (True, []) if twice else found == (False, [(8,)])
