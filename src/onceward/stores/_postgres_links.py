"""
Connections for blocking callers: a few, opened when they are needed and by whoever needs them.

Why not psycopg_pool: it opens connections in threads of its own, so that a wrong password would reach the caller as a
time-out, and a forked child would wait for threads that it does not have. Here the caller that needs a connection opens
it, and hears what is wrong with it.

One more connection, the lane, belongs to whoever leads a batch: those who wait for a lock, each on a connection of
their own, cannot keep the others from writing.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from onceward._core.errors import StoreUnavailable
from onceward.environment import Environment
from onceward.stores._postgres_errors import (
    DRIVER_ERRORS,
    Heard,
    NoAnswer,
    NotConnected,
    Verdict,
    meaning_of_no_connection,
    no_free_connection,
    verdict,
)
from onceward.stores._postgres_flow import Effect, Flow, Query, Script, Sleep, open_schema
from onceward.stores._postgres_url import Target
from onceward.stores._postgres_wire import AS_IT_COMES, Statement, Wire

T = TypeVar("T")

PREPARE_AFTER = 1
"""Runs of a statement on one connection before it is prepared."""
LOOK_SECONDS = 0.1
"""How often a wait for the server looks up: psycopg's own interval, so that Ctrl-C is heard."""
SCRIPT_LOCK_SECONDS = 30.0
"""How long a migration may wait for another one."""
IS_DIRECT = b"SELECT current_setting('onceward.direct', true)"


def listening(asked: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """
    What psycopg waits for, and an error once the server has been silent for so long.

    The silence is counted in psycopg's own looks at the socket, so it needs no clock. Bytes end it: a long answer over
    a slow line is no silence.
    """
    looks, silent = round(seconds / LOOK_SECONDS), 0
    try:
        wanted = next(asked)
        while True:
            ready = yield wanted
            silent = 0 if ready else silent + 1
            if silent >= looks:
                raise NoAnswer(f"was silent for {seconds:g} s")
            wanted = asked.send(ready)
    except StopIteration as stop:
        value: T = stop.value
        return value


class Line(psycopg.Connection[Any]):
    """A connection that does not wait for ever, and does not take a commit for more than it is (see `Heard`)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.heard = Heard()
        self.add_notice_handler(self.heard)

    silence_seconds = 0.0
    """0 while it is being opened, which has a limit of its own (connect_timeout)."""

    def wait(self, gen: Any, interval: float = LOOK_SECONDS, *more: Any, **options: Any) -> Any:
        """See `psycopg.Connection.wait`."""
        asked = listening(gen, self.silence_seconds) if self.silence_seconds else gen
        try:
            answer = super().wait(asked, interval, *more, **options)
        except NoAnswer as error:
            # Ctrl-C came first: psycopg asked the server to stop, and that was not answered either.
            raise error.__context__ if isinstance(error.__context__, KeyboardInterrupt) else error from None
        self.heard.check()
        return answer


class Link(NamedTuple):
    """An open connection and the cursor that is used on it."""

    connection: Line
    cursor: psycopg.Cursor[Any]
    wire: Wire


class Links:
    """The connections of one store in one process."""

    def __init__(self, target: Target, environment: Environment) -> None:
        self.target = target
        self.environment = environment
        self.closed = False
        self._opening = threading.Lock()
        self._opened = False
        self._free = threading.Semaphore(target.pool_size - 1)
        self._idle: list[Link] = []
        self._lane: Link | None = None

    def run(self, flow: Flow[T], *, lane: bool = False) -> T:
        """Do what a flow asks for; its answer."""
        if not self._opened:
            self._open()
        return self._run(flow, lane)

    def _run(self, flow: Flow[T], lane: bool) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    answer = self._perform(effect, lane)
                except Exception as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        except NotConnected as error:
            raise error.meaning from error.__cause__

    def close(self) -> None:
        """Let go of every connection that is not in use; those in use are closed when they come back."""
        self.closed = True
        self.drop_idle()
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.connection.close()

    def drop_idle(self) -> None:
        """Close what is not in use."""
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:
                return
            link.connection.close()

    def _open(self) -> None:
        """Before the first statement: the schema."""
        with self._opening:
            if not self._opened:
                self._run(open_schema(self.target), lane=False)
                self._opened = True

    def _perform(self, effect: Effect, lane: bool) -> Any:
        if type(effect) is Query:
            if lane:
                return self._on_lane(effect)
            link = self._take()
            try:
                return _ask(link, effect)
            except DRIVER_ERRORS as error:
                if verdict(error) is Verdict.LOST:
                    link.connection.close()
                raise
            finally:
                self._give(link)
        if isinstance(effect, Sleep):
            if effect.lost:
                self.drop_idle()
            return self.environment.sleep(effect.seconds)
        if isinstance(effect, Script):
            link = self._take()
            link.connection.silence_seconds += SCRIPT_LOCK_SECONDS
            try:
                with link.connection.transaction():
                    for statement in effect.statements:
                        link.connection.execute(statement)
            finally:
                link.connection.silence_seconds -= SCRIPT_LOCK_SECONDS
                self._give(link)
        return None

    def _on_lane(self, query: Query) -> Any:
        """On the leader's own connection. There is one leader at a time, so nobody else is here."""
        link, self._lane = self._lane, None
        if link is None:
            link = self._connect()
        try:
            answer = _ask(link, query)
        except DRIVER_ERRORS as error:
            if verdict(error) is Verdict.LOST:
                link.connection.close()
            if isinstance(error, NoAnswer):
                self.drop_idle()  # Whoever asks again, asks on a new line.
            raise
        finally:
            if _is_at_rest(link) and not self.closed:
                self._lane = link
            else:
                link.connection.close()
        return answer

    def _take(self) -> Link:
        seconds = self.target.lock_seconds
        if not self._free.acquire(timeout=seconds):
            raise NotConnected(no_free_connection(self.target.name, self.target.pool_size, seconds), final=True)
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return self._connect()
        except BaseException:
            self._free.release()
            raise

    def _give(self, link: Link) -> None:
        if _is_at_rest(link) and not self.closed:
            self._idle.append(link)
        else:
            link.connection.close()
        self._free.release()

    def _connect(self) -> Link:
        target = self.target
        if self.closed:
            raise NotConnected(StoreUnavailable(f"this store ({target.name}) was closed"), final=True)
        try:
            connection = Line.connect(autocommit=True, prepare_threshold=None, context=AS_IT_COMES, **target.parameters)
        except DRIVER_ERRORS as error:
            raise not_connected(error, target, ever_connected=self._ever) from error
        connection.silence_seconds = target.lock_seconds + target.answer_seconds
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        link = Link(connection, connection.cursor(binary=True), Wire(connection))
        try:
            if target.direct and _ask(link, Query(IS_DIRECT)) == [("on",)]:
                connection.prepare_threshold = PREPARE_AFTER
        except BaseException as error:
            connection.close()
            if isinstance(error, DRIVER_ERRORS):
                raise not_connected(error, target, ever_connected=self._ever) from error
            raise
        self._ever = True
        return link

    _ever = False
    """Whether it has worked before."""


def not_connected(error: BaseException, target: Target, *, ever_connected: bool) -> NotConnected:
    """What to raise when no connection could be opened. Where a long wait was in vain, another is not worth it."""
    meaning = meaning_of_no_connection(error, target.name, ever_connected=ever_connected)
    return NotConnected(meaning, final=isinstance(error, (errors.ConnectionTimeout, NoAnswer)))


def _ask(link: Link, query: Query) -> list[Any]:
    sql, parameters = query
    if type(sql) is Statement:
        found: list[Any] = link.connection.wait(link.wire.talk(sql, parameters))  # type: ignore[arg-type]
        return found
    return link.cursor.execute(sql, parameters or None).fetchall()  # type: ignore[arg-type]


def _is_at_rest(link: Link) -> bool:
    """Whether a connection can be used again: open, and in the middle of nothing."""
    return link.connection.pgconn.transaction_status == TransactionStatus.IDLE
