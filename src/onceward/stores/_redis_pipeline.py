"""
Automatic pipelining of Redis commands: callers of the same moment share one round trip.

The queue and its rules are those of the group commit: whoever comes first leads and sends what is queued; a lone
caller finds the queue empty and pays nothing for it; a caller who is interrupted or cancelled takes nobody along;
awaiting callers, of however many event loops, are led by a worker. What differs: the server keeps commands apart by
itself, so one id may be in a batch many times (a hot key is replayed to all its callers at once).
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from redis.exceptions import RedisError

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward._core.record import Write
from onceward._core.record_types import PeekResult, peek_of
from onceward.runtime import failpoints
from onceward.runtime.flow_driver import drive_steps
from onceward.stores import _redis_schema as schema
from onceward.stores._group_commit import GroupCommit, QueueEntry, copy_error, take_in_order
from onceward.stores._redis_connection import RedisConnection
from onceward.stores._redis_line import reads_sockets
from onceward.stores._redis_rows import RedisCommand, RowFormat
from onceward.stores._redis_url import RedisAddress, has_left, translate_error
from onceward.stores._settled_ids import SettledIds

BATCH_MAX = 128
"""Calls in one round trip: the wait is shared so widely by then that more only makes the first caller wait."""

BEFORE_PUT = failpoints.declare("redis.put.before", "a put is decided | it is sent to the server")
AFTER_PUT = failpoints.declare("redis.put.after", "the server has answered a put | its caller hears of it")


RESENT_MAX = 2
"""Times that a put is made anew because the rows have another form: once is usual, in a migration."""

PEEK_MISSED: Final = object()
"""The result of a peek that found nothing: the put follows."""


class RedisConnections(Protocol):
    """Where commands go: one server, or the nodes of a Cluster."""

    def exchange(self, commands: Sequence[RedisCommand]) -> list[Any]:
        """Send commands; their responses, with the driver's error where one failed."""

    def open(self) -> None:
        """Connect now, and check the server."""

    def nodes(self) -> list[RedisConnection]:
        """A connection to every server that has a shard; raises if one cannot be opened."""

    def drop(self) -> None:
        """Let go of every connection; the next exchange makes others."""


class SingleServer:
    """Every shard on the same server."""

    def __init__(self, address: RedisAddress, find: Callable[[], RedisAddress] | None = None) -> None:
        self.find = find
        self._connection = RedisConnection(address, find)
        self.exchange = self._connection.exchange
        self.open = self._connection.open
        self.drop = self._connection.drop

    def nodes(self) -> list[RedisConnection]:
        """The one connection; raises if it cannot be opened."""
        self._connection.open()
        return [self._connection]


class FormatChanged(StoreUnavailable):
    """The rows have another form than the one that the commands were for. Inside this package only."""


class RedisRequest(QueueEntry):
    """One caller's commands, and how their replies are to be read."""

    __slots__ = ("commands", "resent")
    commands: Sequence[RedisCommand]
    resent: int
    """How often the rows had another form than was thought."""

    def prepare(self, rows: RowFormat) -> None:
        """Make the commands, for rows of this form."""

    def read(self, rows: RowFormat, replies: list[Any]) -> Any:
        """What the caller gets; `PEEK_MISSED` if other commands have to be sent now."""
        raise NotImplementedError


class CommandRequest(RedisRequest):
    """Commands whose replies the caller reads by itself."""

    __slots__ = ()

    def __init__(self, commands: Sequence[RedisCommand], future: asyncio.Future[Any] | None = None) -> None:
        super().__init__(None, future=future)
        self.commands = commands
        self.resent = RESENT_MAX  # They are for rows of one form: the caller has to make others.

    def read(self, rows: RowFormat, replies: list[Any]) -> Any:
        """The replies."""
        return list(replies)


class FormatRequest(RedisRequest):
    """Asks for the form of the rows."""

    __slots__ = ()

    def __init__(self, future: asyncio.Future[Any] | None = None) -> None:
        super().__init__(None, future=future)
        self.commands = ()
        self.resent = 0

    def read(self, rows: RowFormat, replies: list[Any]) -> Any:
        """The form."""
        return rows


class PutRequest(RedisRequest):
    """A put. If the record was seen settled before, it first peeks, and puts only if there is none."""

    __slots__ = ("_seen", "looks")
    write: Write
    looks: bool
    """Whether it peeks first."""

    def __init__(
        self, seen: SettledIds, write: Write, expect: bytes | None, future: asyncio.Future[Any] | None
    ) -> None:
        # All of a `QueueEntry` and a `RedisRequest` at once: one is made for every put. A test compares.
        self.write = write
        self.expect = expect
        self.future = future
        self.job = self.wake = self.answer = self.error = self.followers = None
        self.done = self.again = False
        self.resent = 0
        self._seen = seen
        self.looks = expect is None and write.id in seen

    def prepare(self, rows: RowFormat) -> None:
        """Make the commands, for rows of this form."""
        self.commands = rows.peek(self.write.id) if self.looks else rows.put(self.write, self.expect)

    def read(self, rows: RowFormat, replies: list[Any]) -> Any:
        """What the caller gets, read from the server's responses."""
        write = self.write
        result = rows.peek_result(write.id, replies) if self.looks else rows.put_result(write, replies)
        if result is None:
            self._seen.forget(write.id)
            self.looks = False
            return PEEK_MISSED
        self._seen.note(write.id, result)
        return result


class LookRequest(RedisRequest):
    """A look at a record that was seen settled before: what a replay needs of it. None: there is none, or an error."""

    __slots__ = ("_id", "_seen")
    looks = True

    def __init__(self, seen: SettledIds, id: bytes, future: asyncio.Future[PeekResult | None]) -> None:
        super().__init__(None, future=future)
        self.resent = 0
        self._seen, self._id = seen, id

    def prepare(self, rows: RowFormat) -> None:
        """Make the commands, for rows of this form."""
        self.commands = rows.peek(self._id)

    def read(self, rows: RowFormat, replies: list[Any]) -> PeekResult | None:
        """What is there."""
        found = rows.peek_result(self._id, replies)
        if found is None or found.record is None:
            self._seen.forget(self._id)
            return None
        return peek_of(found.record)

    def fail(self, error: BaseException) -> None:
        """The claim that follows says what is wrong."""
        self.done = True


class RedisServer:
    """A store's server, opened. Both colours are thin shells over this."""

    def __init__(self, address: RedisAddress, connections: RedisConnections) -> None:
        self.address = address
        self.connections = connections
        self.prefix = address.options.prefix
        self.pipeline = self._empty()
        self.seen = SettledIds()
        self.rows: RowFormat | None = None
        """The form of the rows; None: to be learnt."""
        self._repair = False
        """Whether a shard was found that is not ready."""
        self.at_fork: list[Callable[[], None]] = []
        """What else has to let go of connections in a forked child."""
        self._closed = False
        _open_servers.add(self)
        try:
            connections.open()
            self._learn()
        except StoreUnavailable:
            return  # It may come up later: every new connection is checked, and the first call says what is wrong.
        except BaseException:
            connections.drop()
            raise

    @property
    def find(self) -> Callable[[], RedisAddress] | None:
        """Says where the primary is, if that can change."""
        return self.connections.find if isinstance(self.connections, SingleServer) else None

    @property
    def has_plain_socket(self) -> bool:
        """Whether an event loop can use a connection by itself: one server, no TLS, no waiting for replicas."""
        driver, options = self.address.driver, self.address.options
        return (
            isinstance(self.connections, SingleServer)
            and "connection_class" not in driver
            and not options.replicas
            and reads_sockets()
        )

    def _empty(self) -> GroupCommit:
        """The queue in front of the server. A hot key may be in a batch many times."""
        return GroupCommit(self._perform, take=partial(take_in_order, size=BATCH_MAX))

    def close(self) -> None:
        """Finish what is under way and let go of the connection."""
        if self._closed:
            return
        held = QueueEntry(None)
        self.pipeline.hold(held)
        try:
            self._closed = True
            self.connections.drop()
        finally:
            self.pipeline.let_go(held)

    def _perform(self, batch: list[QueueEntry]) -> None:
        """Send a batch, and give everybody in it an answer or an error."""
        if self._closed:
            for entry in batch:
                entry.fail(StoreUnavailable(f"the store on {self.address.name} was closed"))
            return
        call = batch[0]
        if len(batch) == 1 and type(call) is PutRequest:
            self._put_one(call)
            return
        calls = [one for one in batch if isinstance(one, RedisRequest)]
        while calls:
            self._send(calls)
            calls = [call for call in calls if not call.done]  # Looked, and there was nothing: now they put.

    def _put_one(self, call: PutRequest) -> None:
        """A lone put: what `_send` does, without lists."""
        rows = self.rows
        if rows is not None and not call.looks and not failpoints.ARMED:
            try:
                replies = self.connections.exchange(rows.put(call.write, call.expect))
            except OncewardError as error:
                call.fail(copy_error(error))
                return
            self.read_replies(call, rows, replies)
        while not call.done:  # If it looked, and there was nothing: now it puts.
            self._send([call])

    def _learn(self) -> RowFormat:
        """Read how the rows are kept here; a store that is not there is made."""
        rows: RowFormat = drive_steps(schema.learn(self.prefix, repair=self._repair), self._replies)
        self.rows, self._repair = rows, False
        return rows

    def _replies(self, commands: Sequence[RedisCommand]) -> list[Any]:
        """Replies to commands of our own; raises if one is an error."""
        replies = self.connections.exchange(commands)
        for reply in replies:
            if isinstance(reply, RedisError):
                raise translate_error(reply, self.address)
        return replies

    def _send(self, calls: list[RedisRequest]) -> None:
        """One exchange for all of them."""
        try:
            rows = self.rows or self._learn()
            for call in calls:
                call.prepare(rows)
            if failpoints.ARMED and any(call.write is not None for call in calls):
                failpoints.hit(BEFORE_PUT)
            if len(calls) == 1:
                replies = self.connections.exchange(calls[0].commands)
            else:
                replies = self.connections.exchange([command for call in calls for command in call.commands])
        except OncewardError as error:
            for call in calls:
                call.fail(copy_error(error))
            return
        if failpoints.ARMED and any(call.write is not None for call in calls):
            failpoints.hit(AFTER_PUT)
        if len(calls) == 1:
            self.read_replies(calls[0], rows, replies)
            return
        start = 0
        for call in calls:
            end = start + len(call.commands)
            self.read_replies(call, rows, replies[start:end])
            start = end

    def read_replies(self, call: RedisRequest, rows: RowFormat, replies: list[Any]) -> None:
        """Read one caller's replies. An error in them concerns that caller only."""
        try:
            for one in replies:
                if isinstance(one, RedisError):
                    self._refused(call, rows, one)
                    return
            result = call.read(rows, replies)
            if result is not PEEK_MISSED:
                call.answer = result
                call.done = True
        except OncewardError as error:
            call.fail(error)
        except Exception as error:
            call.fail(StoreUnavailable(f"a reply of {self.address.name} could not be read: {type(error).__name__}"))

    def _refused(self, call: RedisRequest, rows: RowFormat, error: RedisError) -> None:
        """Fail a call, or leave it to be sent again in another form."""
        if not has_left(error, rows.version):
            call.fail(translate_error(error, self.address))
            return
        if self.rows is rows:
            self.rows, self._repair = None, True
        if call.resent < RESENT_MAX:
            call.resent += 1
        elif isinstance(call, CommandRequest):
            call.fail(
                FormatChanged(f"the records at {self.address.name} are being migrated; retry", retry_after_seconds=1.0)
            )
        else:
            call.fail(translate_error(error, self.address))

    def after_fork(self) -> None:
        """In a child: the connection and the queue are the parent's."""
        for let_go in self.at_fork:
            let_go()
        self.connections.drop()
        self.pipeline = self._empty()


_open_servers: weakref.WeakSet[RedisServer] = weakref.WeakSet()


def _after_fork() -> None:
    for server in list(_open_servers):
        server.after_fork()


os.register_at_fork(after_in_child=_after_fork)
