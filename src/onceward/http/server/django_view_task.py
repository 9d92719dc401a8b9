"""
One keyed request to an async Django view, in a task of its own.

Django cancels a request whose client has left. The view goes on all the same, so that its response is stored for a
retry. A stream passes from the view's task to Django's through a queue of one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from inspect import isawaitable
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import StreamingHttpResponse

from onceward._core.operation import Operation
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.django_commits import CommitWatch, watch_commits
from onceward.http.server.django_messages import (
    SCOPE_LABEL,
    begin_recording,
    buffer_body,
    close_response,
    django_response,
    own_response,
    streaming_response,
)
from onceward.http.server.handler_run import HandlerReport
from onceward.http.server.push_exchange import PushExchange
from onceward.http.server.request_admission import AdmittedRequest, IncomingRequest, log
from onceward.http.server.thread_offload import offload
from onceward.runtime.flow_driver import PendingCancellation, await_to_end

_running: set[asyncio.Task[Any]] = set()


class _Stream(StreamingHttpResponse):  # type: ignore[misc]  # Django is untyped.
    """Notices when nobody reads on. Where `send` raises (ASGI 2.4), Django does not close its response."""

    def __init__(self, pieces: DjangoViewTask, **more: Any) -> None:
        super().__init__(pieces, **more)
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async with aclosing(super().__aiter__()) as parts:
                async for part in parts:
                    yield part
        finally:
            self._pieces.stop_reading()


class DjangoViewTask:
    """One view in a task of its own; if its response is a stream, iterating gives its pieces."""

    scope_label = SCOPE_LABEL
    exchange: PushExchange

    def __init__(
        self,
        view: Callable[[Any], Awaitable[Any]],
        request: Any,
        report: Callable[[Any, CommitWatch], HandlerReport],
        now: Callable[[], float],
    ) -> None:
        self._view, self._request, self._report, self._now = view, request, report, now
        self._response: Any = None
        self._gone = self._read = False
        self._notice: tuple[tuple[str, str], ...] = ()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)

    async def call_scope(self, scope_of: Callable[[IncomingRequest], Any], incoming: IncomingRequest) -> object:
        """Call the scope function, in a thread: `request.user` queries the database, which Django allows only there."""
        if iscoroutinefunction(scope_of):
            return await scope_of(incoming)
        found = await sync_to_async(lambda: scope_of(incoming))()  # It may be async all the same.
        return await found if isawaitable(found) else found

    def load_body(self, admitted: AdmittedRequest, body: BodyBuffer) -> Awaitable[None] | None:
        """Read the whole body; a long one in a thread."""
        length = admitted.content_length
        if length is not None and length <= admitted.profile.memory_bytes_max:
            buffer_body(self._request, admitted, body, self._now)
            return None
        return offload(partial(buffer_body, self._request, admitted, body, self._now))

    async def serve(self) -> Any:
        """Run the view. The response: whole, once it is stored; or a stream, which is stored when it ends."""
        self._task = asyncio.create_task(self._gated())
        _running.add(self._task)  # A loop holds its tasks weakly.
        self._task.add_done_callback(_running.discard)
        kept = PendingCancellation()
        await await_to_end(self._begun, kept)
        if (cancelled := kept.taken()) is not None:
            await self._leave()
            raise cancelled
        if not self._task.done():
            return streaming_response(self._response, self, self._notice, _Stream)
        return await self._task

    async def _gated(self) -> Any:
        try:
            reply = await self.exchange.run(self._run)
            if reply is not None:
                return django_response(reply)
            return None if self._begun.done() else own_response(self._response, self.exchange.handler_response())
        finally:
            self.exchange.close()
            if self._begun.done():
                if not self._gone:
                    await self._queue.put(None)
            else:
                # By the time that whoever waits is told, this task is done.
                asyncio.get_running_loop().call_soon(self._begun.set_result, None)

    async def _run(self, operation: Operation) -> HandlerReport:
        """What the gate runs."""
        self._request.operation = operation
        with watch_commits() as commits:
            response = self._response = await self._view(self._request)
        recorder, left = self.exchange.recorder, False
        begin_recording(recorder, response)
        if response.streaming:
            try:
                left = await self._pass(response)
            finally:
                close_response(response)
        recorder.feed(b"" if response.streaming else response.content, more=False)
        return self._report(self._request, commits)._replace(left=left)

    # --- streams ---

    async def _pass(self, response: Any) -> bool:
        """Pass a stream on. True if its client left before the end."""
        recorder = self.exchange.recorder
        async with aclosing(aiter(response)) as pieces:
            async for piece in pieces:
                free = recorder.feed(piece, more=True)
                if free and not self._gone:
                    if not self._begun.done():
                        self._notice = self.exchange.begin()
                        self._begun.set_result(None)
                    await self._queue.put(free)
                if self._gone and not recorder.keeps:
                    return True  # Nobody reads it, and it cannot be kept.
        return False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._queue.get()) is not None:
            yield piece
        self._read = True
        await self._task  # If it raised, the response breaks off.
        if rest := self.exchange.handler_response().body:
            yield rest

    def close(self) -> None:
        """Called by Django, in a thread, when it sends no more of it. (Nobody closes an iterator inside a response.)"""
        if not self._task.done():
            async_to_sync(self._leave)()

    async def _leave(self) -> None:
        self.stop_reading()
        await asyncio.wait({self._task})

    def stop_reading(self) -> None:
        """Nobody reads on. The rest is recorded only."""
        if self._gone or self._read:
            return
        self._gone = True
        while not self._queue.empty():
            self._queue.get_nowait()
        self._task.add_done_callback(self._tell)

    def _tell(self, task: asyncio.Task[Any]) -> None:
        """Log what the view raised: nobody else sees it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("onceward: the response of %s ended early", self.exchange.admitted.name, exc_info=error)
