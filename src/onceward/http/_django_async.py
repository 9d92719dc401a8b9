"""
One keyed request under an awaiting gate, in Django.

The view runs in a task of its own: Django cancels a request whose client has left, and what such a request began goes
on all the same. A stream passes from that task to Django's through a queue of one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from asgiref.sync import async_to_sync

from onceward._core.errors import HandlerFailed, NotSettled, OncewardError
from onceward._core.flow import Raised
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.drive import Kept, to_the_end
from onceward.gate import AsyncGate
from onceward.http._django_commits import Commits, watched
from onceward.http._django_messages import begin, let_go, own, response_of, streamed, whole
from onceward.http.serving.answers import settled_answer
from onceward.http.serving.attempt import how_it_ended, log_failure, log_remembered, stands_for
from onceward.http.serving.reception import Admitted, Reception, log
from onceward.http.serving.recording import Recording
from onceward.http.serving.running import Unkept, refuses_by_itself
from onceward.http.serving.spool import Spool
from onceward.http.serving.weight import off_the_loop

_running: set[asyncio.Task[Any]] = set()


class AsyncExchange:
    """From the claim to the answer; if that is a stream, iterating gives its pieces."""

    def __init__(
        self,
        reception: Reception[AsyncGate],
        admitted: Admitted,
        view: Callable[[Any], Awaitable[Any]],
        request: Any,
        raised_by: Callable[[Any, Any, Commits], BaseException | None],
        spool: Spool,
    ) -> None:
        self._reception, self._admitted, self._spool = reception, admitted, spool
        self._view, self._request, self._raised_by = view, request, raised_by
        self._response: Any = None
        self._outcome: Outcome[Any] | None = None
        self._substitute: Reply | None = None
        self._told: BaseException | None = None
        self._gone = False
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)

    async def serve(self, gate: AsyncGate) -> Any:
        """The response: whole, once it is stored; or a stream that is stored at its end."""
        self._recording = Recording(self._admitted.profile, self._admitted.terms.result_bytes_max)
        self._task = asyncio.create_task(self._gated(gate))
        _running.add(self._task)  # A loop holds its tasks weakly.
        self._task.add_done_callback(_running.discard)
        kept = Kept()
        await to_the_end(self._begun, kept)
        if (cancelled := kept.taken()) is not None:
            await self._leave()
            raise cancelled
        if not self._task.done():
            return streamed(self._response, self, self._recording)
        return await self._task

    async def _gated(self, gate: AsyncGate) -> Any:
        try:
            return await self._answer(gate)
        finally:
            self._spool.close()
            if self._begun.done():
                if not self._gone:
                    await self._queue.put(None)
            else:
                # By the time that whoever waits is told, this task is done.
                asyncio.get_running_loop().call_soon(self._begun.set_result, None)

    async def _answer(self, gate: AsyncGate) -> Any:
        admitted, identity = self._admitted, self._admitted.identity
        call: Any = gate.call if identity.plan is None else gate.plan(identity.plan).call
        try:
            outcome: Outcome[Any] = await call(
                identity.key,
                self._run,
                request=await off_the_loop(admitted.fingerprint.digest, admitted.fingerprint.size),
                name=admitted.name,
                probe=admitted.profile.probe,
                marked=False,
                **admitted.options,
            )
        except BaseException as error:
            if error is self._told:
                log_failure(admitted, error)
                return self._own()
            if not isinstance(error, OncewardError):
                raise
            if isinstance(error, NotSettled) and refuses_by_itself(self._recording.result()):
                return self._own()
            refusal = self._reception.refused(admitted, error)  # Told to the log, too.
            if self._begun.done():
                raise  # Too late to say anything else: the answer breaks off.
            return response_of(refusal)
        self._outcome = outcome
        if self._substitute is not None:
            return response_of(self._substitute)
        if self._response is None:
            return response_of(self._reception.answer(admitted, outcome))
        if admitted.profile.transactional:
            settled = settled_answer(outcome, admitted.profile, self._recording.result())
            if settled is not None:
                return response_of(settled)
        return self._own()

    def _own(self) -> Any:
        if self._response.streaming:
            if self._begun.done():
                return None
            rest = self._recording.rest()
            return whole(self._response, rest, self._recording, self._admitted.profile, self._outcome)
        return own(self._response, self._recording, self._admitted.profile, self._outcome)

    async def _run(self, operation: Operation) -> Reply | Unkept:
        """What the gate runs."""
        self._request.operation = operation
        with watched() as commits:
            response = self._response = await self._view(self._request)
        recording = self._recording
        begin(recording, response)
        if response.streaming:
            try:
                await self._pass(response)
            finally:
                let_go(response)
        recording.feed(b"" if response.streaming else response.content, more=False)
        raised = self._raised_by(self._request, response, commits)
        if stands_for(self._admitted.profile, response.status_code, raised):
            log_remembered(self._admitted, raised)
            self._substitute = self._reception.refuse(HandlerFailed(), self._admitted.profile)
            return self._substitute
        how = how_it_ended(self._admitted.profile, recording.result(), raised, operation, committed=commits.seen)
        if isinstance(how, Raised):
            self._told = how.error
            raise how.error
        value: Reply | Unkept = how.value
        return value

    # --- streams ---

    async def _pass(self, response: Any) -> None:
        recording = self._recording
        async with aclosing(aiter(response)) as pieces:
            async for piece in pieces:
                free = recording.feed(piece, more=True)
                if free and not self._gone:
                    if not self._begun.done():
                        self._begun.set_result(None)
                    await self._queue.put(free)
                if self._gone and not recording.keeps:
                    return  # Nobody reads it, and it cannot be kept.

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._queue.get()) is not None:
            yield piece
        await self._task  # If it raised, the answer breaks off.
        if rest := self._recording.rest():
            yield rest

    def close(self) -> None:
        """Called by Django, in a thread, when it sends no more of it. (Nobody closes an iterator inside a response.)"""
        if not self._task.done():
            async_to_sync(self._leave)()

    async def _leave(self) -> None:
        """Nobody reads on. What was begun is recorded to its end."""
        self._gone = True
        while not self._queue.empty():
            self._queue.get_nowait()
        await asyncio.wait({self._task})
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            log.error("onceward: the answer of %s broke off", self._admitted.name, exc_info=error)
