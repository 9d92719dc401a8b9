"""
Puts of awaiting callers, sent by the event loop itself: no thread in between, and no batch waits for the one before.

What the tasks of one round of the loop put is written to a socket at the end of the round. Replies are read when they
arrive, in order, and each wakes its caller. So while the server works on what was sent, the next round may send more:
up to `WINDOW` puts are under way.

A look at a record needs the time, too. One TIME at the end of a round serves all that looked in it: it is read after
their rows, so none of them is newer than the time it is judged by.

This is the usual course only. Whatever is unusual (an error reply, a broken connection, no connection yet) goes to the
pipeline in front of the store's other connection, which has the rules for that: a put may be sent twice, because it
carries a version of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from redis.exceptions import ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from onceward._core.errors import OncewardError
from onceward.runtime import failpoints
from onceward.stores._redis_connection import RedisConnection
from onceward.stores._redis_line import CHUNK, RedisLine
from onceward.stores._redis_packer import pack_args
from onceward.stores._redis_pipeline import LookRequest, PutRequest, RedisServer
from onceward.stores._redis_rows import TIME, RowFormat
from onceward.stores._redis_url import translate_error

WINDOW = 256
"""Puts under way: more would only wait inside the server."""
PUTS_BEFORE = 4
"""Puts of an event loop until it gets a connection of its own: a program that ends at once needs none."""

LaneRequest = PutRequest | LookRequest


class EventLoopLane:
    """A connection that one event loop uses by itself."""

    def __init__(self, server: RedisServer, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._server = server
        self._link = RedisConnection(server.address, server.find)
        self._line: RedisLine | None = None
        self._opening: asyncio.Future[Any] | None = None
        self._count = 0
        self._unsent: list[bytes] = []
        self._looks = False
        """Whether somebody looks in this round, and needs the time."""
        self._left = b""
        """What the socket did not take yet."""
        self._asked: deque[tuple[LaneRequest, RowFormat] | None] = deque()
        """Sent, or to be sent at the end of this round, and not answered; in order. None: the time."""
        self._looked: deque[tuple[LaneRequest, RowFormat, Any]] = deque()
        """Those whose rows are there, and who wait for the time; all of them before the next time in `_asked`."""
        self._backlog: deque[LaneRequest] = deque()
        """What came while the window was full."""
        self._replies: list[Any] = []
        """Of the first in `_asked`, if it has sent several commands."""
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.Event | None = None

    def submit(self, request: LaneRequest) -> None:
        """Take a put, or leave it to the pipeline."""
        rows = self._server.rows
        if self._line is None or rows is None or failpoints.ARMED:
            self._server.pipeline.submit(request)
            self._count += 1
            if self._line is None and self._opening is None and self._count >= PUTS_BEFORE:
                self._count = 0
                self._opening = self.loop.run_in_executor(None, self._connect)
                self._opening.add_done_callback(self._opened)
        elif len(self._asked) >= WINDOW:
            self._backlog.append(request)
        else:
            self._send(request, rows)

    async def finish(self) -> None:
        """Wait for what is under way, and let go of the connection."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._asked:
            self._idle = asyncio.Event()
            await self._idle.wait()
        self.drop()

    def drop(self) -> None:
        """Let go of the connection; on the event loop. What is under way goes to the pipeline."""
        line, self._line = self._line, None
        if line is not None:
            self.loop.remove_reader(line.socket)
            self.loop.remove_writer(line.socket)
        self._link.drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        orphans = [*self._under_way(), *self._backlog]
        self._asked.clear()
        self._looked.clear()
        self._backlog.clear()
        self._unsent, self._looks, self._left, self._replies = [], False, b"", []
        for request in orphans:
            self._hand_over(request)
        self._rest()

    def forsake(self) -> None:
        """In a forked child, or when the loop is closed: the loop is not to be touched."""
        self._line = None
        self._link.drop()

    # Connecting.

    def _connect(self) -> RedisLine | None:
        """In a thread: the server is checked as for any other connection."""
        try:
            return self._link.line()
        except (OncewardError, RedisError):  # The pipeline's own connection will say what is wrong.
            self._link.drop()
            return None

    def _opened(self, opening: asyncio.Future[RedisLine | None]) -> None:
        self._opening = None
        line = None if opening.cancelled() else opening.result()
        if line is not None:
            line.socket.setblocking(False)
            self._line = line
            self.loop.add_reader(line.socket, self._readable)

    # Sending.

    def _send(self, request: LaneRequest, rows: RowFormat) -> None:
        try:
            request.prepare(rows)
        except OncewardError as error:
            request.fail(error)
            request.deliver()
            return
        unsent, commands = self._unsent, request.commands
        if not unsent:
            self.loop.call_soon(self._flush)
        if not self._asked:
            self._heard_at = self.loop.time()
            if self._timer is None:
                self._timer = self.loop.call_later(self._server.address.options.timeout_seconds, self._check)
        if request.looks:
            self._looks = True
            unsent.append(pack_args(commands[0].args))
        else:
            for command in commands:
                args = command.args
                unsent.append(args if type(args) is bytes else pack_args(args))
        self._asked.append((request, rows))

    def _flush(self) -> None:
        """At the end of a round: everything that was put in it, in one write."""
        line, unsent = self._line, self._unsent
        if line is None or not unsent:
            return
        if self._looks:
            unsent.append(TIME)
            self._asked.append(None)
        self._unsent, self._looks = [], False
        self._write(line, b"".join((self._left, *unsent)))

    def _write(self, line: RedisLine, data: bytes) -> None:
        try:
            sent = line.socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.drop()
            return
        if self._left and sent == len(data):
            self.loop.remove_writer(line.socket)
        elif not self._left and sent < len(data):
            self.loop.add_writer(line.socket, self._writable)
        self._left = data[sent:]

    def _writable(self) -> None:
        if self._line is not None:
            self._write(self._line, self._left)

    # Answers.

    def _readable(self) -> None:
        line, asked = self._line, self._asked
        if line is None:
            return
        try:
            line.fed(line.socket.recv(CHUNK))
            gets = line.gets
            while asked and self._line is line:
                reply = gets()
                if reply is False:
                    break
                sent = asked[0]
                if sent is None or type(reply) is not list or len(sent[0].commands) != 1:
                    self._read_unusual(sent, line.checked(reply))
                    continue
                asked.popleft()
                request, rows = sent
                try:
                    result = request.read(rows, [reply])
                except Exception:  # It is said to its caller as it is without a connection of one's own.
                    self._answer(request, rows, [reply])
                else:
                    future = request.future
                    if future is not None and not future.done():
                        future.set_result(result)
        except (BlockingIOError, InterruptedError):
            return
        except Exception:  # The connection broke, or what it brings makes no sense: the pipeline will say.
            self.drop()
            return
        if self._line is not line:
            return
        self._heard_at = self.loop.time()
        while self._backlog and len(self._asked) < WINDOW:
            if (known := self._server.rows) is not None:
                self._send(self._backlog.popleft(), known)
            else:
                self._hand_over(self._backlog.popleft())
        if not self._asked:
            self._rest()

    def _read_unusual(self, sent: tuple[LaneRequest, RowFormat] | None, reply: Any) -> None:
        """A reply that is not that of a put which is one command: a row, the time, one of several, or an error."""
        if sent is None:
            self._asked.popleft()
            while self._looked:
                request, rows, row = self._looked.popleft()
                self._answer(request, rows, [row, reply])
            return
        request, rows = sent
        if request.looks:
            self._asked.popleft()
            self._looked.append((request, rows, reply))
            return
        self._replies.append(reply)
        if len(self._replies) == len(request.commands):
            replies, self._replies = self._replies, []
            self._asked.popleft()
            self._answer(request, rows, replies)

    def _answer(self, request: LaneRequest, rows: RowFormat, replies: list[Any]) -> None:
        for reply in replies:
            if isinstance(reply, RedisError):
                self._hand_over(request)
                if isinstance(reply, ReadOnlyError):
                    self.drop()  # A replica by now: the next connection asks who the primary is.
                return
        self._server.read_replies(request, rows, replies)
        if request.done:
            request.deliver()
        else:
            self._send(request, rows)  # It looked, and there was nothing: now it puts.

    def _hand_over(self, request: LaneRequest) -> None:
        """Leave a put to the pipeline."""
        try:
            self._server.pipeline.submit(request)
        except OncewardError as error:
            request.fail(error)
            request.deliver()

    def _check(self) -> None:
        """A silent server is given up."""
        self._timer = None
        if not self._asked:
            return
        options = self._server.address.options
        left = self._heard_at + options.timeout_seconds - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._check)
            return
        for request in self._under_way():
            request.fail(translate_error(RedisTimeoutError("no reply"), self._server.address))
            request.deliver()
        self._asked.clear()
        self._looked.clear()
        self.drop()

    def _under_way(self) -> list[LaneRequest]:
        """Those who wait for replies."""
        return [*(one[0] for one in self._looked), *(one[0] for one in self._asked if one is not None)]

    def _rest(self) -> None:
        if self._idle is not None:
            self._idle.set()


class EventLoopLanes:
    """The lanes of a store: one for each event loop that puts."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._lanes: dict[asyncio.AbstractEventLoop, EventLoopLane] = {}
        self._possible = server.has_plain_socket
        server.at_fork.append(self._forsake)

    def submit(self, request: LaneRequest, loop: asyncio.AbstractEventLoop) -> None:
        """Take a put of a task of this loop."""
        lane = self._lanes.get(loop)
        if lane is None:
            if not self._possible:
                self._server.pipeline.submit(request)
                return
            lane = self._make(loop)
        lane.submit(request)

    async def close(self) -> None:
        """Finish what this loop has under way, and let go of all connections."""
        ours = asyncio.get_running_loop()
        for loop, lane in list(self._lanes.items()):
            if loop is ours:
                await lane.finish()
            else:
                _drop_elsewhere(lane)
        self._lanes.clear()

    def _make(self, loop: asyncio.AbstractEventLoop) -> EventLoopLane:
        for other in [one for one in list(self._lanes) if one.is_closed()]:
            if (gone := self._lanes.pop(other, None)) is not None:
                gone.forsake()
        lane = self._lanes[loop] = EventLoopLane(self._server, loop)
        return lane

    def _forsake(self) -> None:
        """In a forked child: the connections are the parent's."""
        for lane in list(self._lanes.values()):
            lane.forsake()
        self._lanes.clear()


def _drop_elsewhere(lane: EventLoopLane) -> None:
    try:
        lane.loop.call_soon_threadsafe(lane.drop)
    except RuntimeError:  # That loop is closed.
        lane.forsake()
