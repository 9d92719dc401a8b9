"""
Connections for awaiting callers: same as `_postgres_links`, for one event loop.

Puts that are made at the same moment travel together. The first one starts a task that takes what is queued, sends it
as one statement, answers everybody, and goes on until the queue is empty; a lone put finds the queue empty and is a
batch of one. The task belongs to nobody: whoever is cancelled takes nothing along.

Several claims of one key that are queued at the same moment are one claim: as if the others had come right after it,
they are shown what stands there. So a crowd that waits for one answer asks for it once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward._core.record import Standing, Write
from onceward.environment import Environment
from onceward.stores import _postgres_flow as flows
from onceward.stores._postgres_errors import (
    DRIVER_ERRORS,
    Heard,
    NoAnswer,
    NotConnected,
    Verdict,
    copy_of,
    no_free_connection,
    verdict,
)
from onceward.stores._postgres_flow import Effect, Flow, Query, Script, Sleep
from onceward.stores._postgres_links import (
    IS_DIRECT,
    LOOK_SECONDS,
    PREPARE_AFTER,
    SCRIPT_LOCK_SECONDS,
    listening,
    not_connected,
)
from onceward.stores._postgres_url import Target
from onceward.stores._postgres_wire import AS_IT_COMES, Statement, Wire
from onceward.stores._seen import Seen

T = TypeVar("T")

BATCH_MAX = 256
"""Puts in one statement: the commit is shared so widely by then that more only makes the first caller wait."""


class Line(psycopg.AsyncConnection[Any]):
    """Same as `_postgres_links.Line`, but awaits."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.heard = Heard()
        self.add_notice_handler(self.heard)

    silence_seconds = 0.0

    async def wait(self, gen: Any, interval: float = LOOK_SECONDS, *more: Any, **options: Any) -> Any:
        """See `psycopg.AsyncConnection.wait`."""
        asked = listening(gen, self.silence_seconds) if self.silence_seconds else gen
        answer = await super().wait(asked, interval, *more, **options)
        self.heard.check()
        return answer


class Link(NamedTuple):
    """An open connection and the cursor that is used on it."""

    connection: Line
    cursor: psycopg.AsyncCursor[Any]
    wire: Wire


class Waiting(NamedTuple):
    """A put in the queue, and where its caller waits."""

    write: Write
    expect: bytes | None
    future: asyncio.Future[Standing]
    followers: list[Waiting]
    """Claims of the same key that came while this one was queued."""


class AsyncLinks:
    """The connections of one store in one event loop, and the queue in front of them."""

    def __init__(self, target: Target, environment: Environment) -> None:
        self.target = target
        self.environment = environment
        self.closed = False
        self._opening = asyncio.Lock()
        self._opened = False
        self._ever = False
        self._free = asyncio.Semaphore(target.pool_size - 1)
        self._idle: list[Link] = []
        self._links: set[Link] = set()
        """Every open connection, idle or in use: for letting go of them when their loop is no more."""
        self._lane: Link | None = None
        self._seen = Seen()
        self._queue: deque[Waiting] = deque()
        self._flushing = False
        self._tasks: set[asyncio.Task[None]] = set()

    # Puts.

    def put(self, write: Write, expect: bytes | None) -> asyncio.Future[Standing]:
        """Queue a put. It is under way when this returns, awaited or not."""
        future: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(write, expect, future, []))
        if not self._flushing:
            self._flushing = True
            self._start(self._flush())
        return future

    async def _flush(self) -> None:
        """Send what is queued, batch by batch, until there is nothing left."""
        batch: list[Waiting] = []
        try:
            while self._queue:
                batch = self._take_batch()
                await self._send(batch)
        except asyncio.CancelledError:
            # Only the end of the loop cancels this task: whoever still waits is told that it is over.
            for waiting in (*batch, *self._queue):
                for one in (waiting, *waiting.followers):
                    one.future.cancel()
            self._queue.clear()
            raise
        finally:
            self._flushing = False

    def _take_batch(self) -> list[Waiting]:
        """From the head of the queue, each id once, sorted. A second change of an id waits for the next batch."""
        taken: dict[bytes, Waiting] = {}
        later: list[Waiting] = []
        while self._queue and len(taken) < BATCH_MAX:
            waiting = self._queue.popleft()
            first = taken.setdefault(waiting.write.id, waiting)
            if first is waiting:
                continue
            if first.expect is None and waiting.expect is None:
                first.followers.append(waiting)
            else:
                later.append(waiting)
        self._queue.extendleft(reversed(later))
        return [taken[id] for id in sorted(taken)]

    async def _send(self, batch: list[Waiting]) -> None:
        standings: list[Standing | None]
        try:
            puts = [(waiting.write, waiting.expect) for waiting in batch]
            standings = await self.run(flows.answer_many(self.target, puts, self._seen), lane=True)
        except OncewardError as error:
            for waiting in batch:
                _fail(waiting, error)
            return
        except Exception:
            standings = [None] * len(batch)
        for waiting, standing in zip(batch, standings, strict=True):
            if standing is None:
                self._start(self._put_alone(waiting))
            else:
                _answer(waiting, standing)

    async def _put_alone(self, waiting: Waiting) -> None:
        """On a connection of its own, as patiently as it takes; the error, if there is one, is its caller's alone."""
        try:
            standing = await self.run(flows.put(self.target, waiting.write, waiting.expect, again=True))
        except asyncio.CancelledError:
            # Only the end of the loop cancels this task: whoever waits for it must not wait for ever.
            for one in (waiting, *waiting.followers):
                one.future.cancel()
            raise
        except Exception as error:
            ours = error if isinstance(error, OncewardError) else StoreUnavailable(f"the put failed: {error!r}")
            _fail(waiting._replace(followers=[]), ours)
            self._requeue(waiting.followers)
        else:
            _answer(waiting, standing)

    def _requeue(self, followers: list[Waiting]) -> None:
        """What befell the first may be its own affair: the others ask for themselves."""
        for waiting in followers:
            self._start(self._put_alone(waiting))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Everything else: same as `Links`, but awaits.

    async def run(self, flow: Flow[T], *, lane: bool = False) -> T:
        """Do what a flow asks for; its answer."""
        if not self._opened:
            await self._open()
        return await self._run(flow, lane)

    async def _run(self, flow: Flow[T], lane: bool) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    answer = await self._perform(effect, lane)
                except Exception as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        except NotConnected as error:
            raise error.meaning from error.__cause__

    async def close(self) -> None:
        """Finish what is under way and let go of every connection."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self.closed = True
        self.abandon()

    def abandon(self) -> None:
        """Let go of every connection at once, also from outside a loop that is no more."""
        self.closed = True
        for link in list(self._links):
            self._discard(link)
        self._idle.clear()
        self._lane = None

    async def _open(self) -> None:
        async with self._opening:
            if not self._opened:
                await self._run(flows.open_schema(self.target), lane=False)
                self._opened = True

    async def _perform(self, effect: Effect, lane: bool) -> Any:
        if type(effect) is Query:
            if lane:
                return await self._on_lane(effect)
            link = await self._take()
            try:
                return await _ask(link, effect)
            except DRIVER_ERRORS as error:
                if verdict(error) is Verdict.LOST:
                    self._discard(link)
                raise
            finally:
                self._give(link)
        if isinstance(effect, Sleep):
            if effect.lost:
                self._drop_idle()
            return await self.environment.asleep(effect.seconds)
        if isinstance(effect, Script):
            link = await self._take()
            link.connection.silence_seconds += SCRIPT_LOCK_SECONDS
            try:
                async with link.connection.transaction():
                    for statement in effect.statements:
                        await link.connection.execute(statement)
            finally:
                link.connection.silence_seconds -= SCRIPT_LOCK_SECONDS
                self._give(link)
        return None

    async def _on_lane(self, query: Query) -> Any:
        link, self._lane = self._lane, None
        if link is None:
            link = await self._connect()
        try:
            answer = await _ask(link, query)
        except DRIVER_ERRORS as error:
            if verdict(error) is Verdict.LOST:
                self._discard(link)
            if isinstance(error, NoAnswer):
                self._drop_idle()
            raise
        finally:
            if _is_at_rest(link) and not self.closed:
                self._lane = link
            else:
                self._discard(link)
        return answer

    async def _take(self) -> Link:
        seconds = self.target.lock_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            raise NotConnected(
                no_free_connection(self.target.name, self.target.pool_size, seconds), final=True
            ) from None
        if self._idle:
            return self._idle.pop()
        try:
            return await self._connect()
        except BaseException:
            self._free.release()
            raise

    def _give(self, link: Link) -> None:
        if _is_at_rest(link) and not self.closed:
            self._idle.append(link)
        else:
            self._discard(link)
        self._free.release()

    def _drop_idle(self) -> None:
        while self._idle:
            self._discard(self._idle.pop())

    def _discard(self, link: Link) -> None:
        """Close it, without waiting for anything: there is nothing to wait for."""
        self._links.discard(link)
        link.connection.pgconn.finish()

    async def _connect(self) -> Link:
        target = self.target
        if self.closed:
            raise NotConnected(StoreUnavailable(f"this store ({target.name}) was closed"), final=True)
        try:
            connection = await Line.connect(
                autocommit=True, prepare_threshold=None, context=AS_IT_COMES, **target.parameters
            )
        except DRIVER_ERRORS as error:
            raise not_connected(error, target, ever_connected=self._ever) from error
        connection.silence_seconds = target.lock_seconds + target.answer_seconds
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        link = Link(connection, connection.cursor(binary=True), Wire(connection))
        self._links.add(link)
        try:
            if target.direct and await _ask(link, Query(IS_DIRECT)) == [("on",)]:
                connection.prepare_threshold = PREPARE_AFTER
        except BaseException as error:
            self._discard(link)
            if isinstance(error, DRIVER_ERRORS):
                raise not_connected(error, target, ever_connected=self._ever) from error
            raise
        self._ever = True
        return link


async def _ask(link: Link, query: Query) -> list[Any]:
    sql, parameters = query
    if type(sql) is Statement:
        found: list[Any] = await link.connection.wait(link.wire.talk(sql, parameters))  # type: ignore[arg-type]
        return found
    cursor = await link.cursor.execute(sql, parameters or None)  # type: ignore[arg-type]
    return await cursor.fetchall()


def _is_at_rest(link: Link) -> bool:
    """Whether a connection can be used again: open, and in the middle of nothing."""
    return link.connection.pgconn.transaction_status == TransactionStatus.IDLE


def _answer(waiting: Waiting, standing: Standing) -> None:
    """Tell whoever is still there; those who followed are shown what stands there now."""
    if not waiting.future.done():
        waiting.future.set_result(standing)
    for follower in waiting.followers:
        if not follower.future.done():
            follower.future.set_result(Standing(False, standing.record))


def _fail(waiting: Waiting, error: OncewardError) -> None:
    for one in (waiting, *waiting.followers):
        if not one.future.done():
            one.future.set_exception(copy_of(error))
