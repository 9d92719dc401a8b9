"""
The emitter that awaits: a task of its own sends, or whoever awaits `tick`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.flow import Flow
from onceward._core.spool import Cadence, Emitted, Held, Item, keep_on, spool, take_over
from onceward.emitter.common import EmitterBase, Ending, Recipe, log, raise_failures
from onceward.emitter.delivery import Delivery, Flushed, Lost
from onceward.gate import AsyncGate
from onceward.gate.asking import SCAN_PAGE
from onceward.gate.dead import DeadLetterBox
from onceward.gate.dead_async import AsyncDeadLetterBox
from onceward.gate.declaring import is_async
from onceward.retry.policy import Retry

T = TypeVar("T")

WRITES_AT_ONCE = 100
"""Writes to the store under way at the same time: enough for it to share the wait for the disk among them."""


class AsyncEmitter(EmitterBase):
    """
    Same as `Emitter`, but awaits: `send` is an async function, and a task on the loop of the first `emit` sends.

    Close it, or use it as `async with`: a loop that ends without that leaves what waits in the spool, where the next
    emitter of this name finds it.
    """

    def __init__(
        self,
        gate: AsyncGate,
        name: str,
        send: Callable[[list[Item]], Awaitable[Any]],
        *,
        reference: Recipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> None:
        if not isinstance(gate, AsyncGate):
            raise ConfigurationError(f"an AsyncEmitter needs an AsyncGate, not {type(gate).__name__}")
        if callable(send) and not is_async(send):
            raise ConfigurationError("send of an AsyncEmitter is an async function; a blocking one goes with Emitter")
        self._gate, self._timer = gate, timer
        super().__init__(gate, name, send, reference, retry, cadence, spool_max)
        if isinstance(self._dead, DeadLetterBox):
            raise ConfigurationError("these dead letters block and this emitter awaits; use those of its AsyncGate")
        if isinstance(self._dead, AsyncDeadLetterBox) and self.name not in self._dead.handlers:
            self._dead.handle(self.name, self._again, guarantee="repeatable")

    def _begin(self) -> None:
        super()._begin()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settle_in()

    def _settle_in(self) -> None:
        self._sending = asyncio.Lock()
        self._sender: asyncio.Task[Any] | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- for callers ---

    async def emit(self, item: Mapping[str, Any]) -> Emitted:
        """Same as `Emitter.emit`, but awaits."""
        self._be_here()
        draft = self._draft(item)
        self._spool.enter()
        held = None
        try:
            emitted, held = await self._drive(spool(draft, self._now()))
        finally:
            self._spool.entered(held)
        if held is not None and (self.waiting == 1 or self.waiting >= self.cadence.size):
            self._wake.set()
        return emitted

    async def tick(self) -> Flushed:
        """Same as `Emitter.tick`, but awaits."""
        self._be_here()
        async with self._alone():
            done = await self._tidied()
            while self._spool.is_due(self._now()):
                done = done.plus(await self._send_one())
            return done._replace(waiting=self.waiting)

    async def flush(self) -> Flushed:
        """Same as `Emitter.flush`, but awaits."""
        self._be_here()
        async with self._alone():
            done = await self._tidied()
            left = self.waiting
            while left > 0 and self._spool.waiting:
                sent = await self._send_one()
                done = done.plus(sent)
                left = left - self.cadence.size if sent.batches else 0  # An open circuit, or the store is away.
            return done._replace(waiting=self.waiting)

    async def resume(self) -> int:
        """Same as `Emitter.resume`, but awaits."""
        self._be_here()
        async with self._alone():
            found = await self._taken_over(given_up=True)
            self._spool.given_up = max(0, self._spool.given_up - found)
        self._wake.set()
        return found

    async def close(self) -> Flushed:
        """Same as `Emitter.close`, but awaits."""
        if self._closed or self._pid != os.getpid():
            return Flushed(waiting=self.waiting)
        self._be_here()
        async with self._alone():  # Not from inside of `send`.
            self._closed = True
        self._wake.set()
        try:
            done = await self.flush()
        finally:
            if self._task is not None:
                await asyncio.wait([self._task])
        if done.waiting:
            log.warning("onceward: emitter %s closed with %d items unsent; they are kept", self.name, done.waiting)
        return done

    async def __aenter__(self) -> Self:
        self._be_here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- sending ---

    async def _send_one(self) -> Flushed:
        """Send one batch, and write down what became of it."""
        batch = self._spool.take()
        taken, back, aside = len(batch), batch, 0
        try:
            try:
                batch = [held for one in batch if (held := await self._kept_on(one)) is not None]
            except OncewardError as error:
                self._hold()
                return Flushed(error=error)
            delivery = Delivery(batch, self._policy, self._environment)
            back = batch  # A cancellation from here on: all of them again.
            if not batch:
                back = []
                return Flushed(batches=1)

            async def attempt() -> Any:
                return delivery.heard(await self._send(delivery.items()))

            try:
                ended: Any = await self._policy.acall(attempt)
            except Exception as error:
                ended = error
            back = [] if delivery.attempts else batch
            if back:
                self._hold(ended)
            lost = delivery.lost(ended)
            endings, aside = await self._endings(delivery, lost)
            await self._end(endings)
            return self._report(delivery, lost, ended)
        finally:
            self._spool.taken(taken, back, aside)

    async def _kept_on(self, held: Held) -> Held | None:
        now = self._now()
        return await self._drive(keep_on(held, self._place.lease, now)) if self._needs_longer(held, now) else held

    async def _endings(self, delivery: Delivery, lost: list[Lost]) -> tuple[list[Ending], int]:
        endings = [self._sent(held) for held in delivery.sent]
        aside = 0
        for one in lost:
            ending = await self._bury(one)
            endings.append(ending or self._set_aside(one))
            aside += ending is None
        return endings, aside

    async def _bury(self, lost: Lost) -> Ending | None:
        if self._dead is None:
            return None
        try:
            put = self._dead.put(lost.stop, self._call_of(lost))
            return self._buried(await put if isinstance(put, Awaitable) else put, lost)
        except Exception as error:
            self._not_buried(error)
            return None

    async def _again(self, reference: str, data: dict[str, Any]) -> None:
        """Send what a dead letter held, alone and under its own key. Registered as the letters' handler."""
        items = self._alike(reference, data)
        raise_failures(await self._send(items), items)

    # --- the store ---

    async def _tidied(self) -> Flushed:
        """Write what could not be written before, and look whether others left something behind."""
        unended, self._unended = self._unended, []
        await self._end(unended)
        now = self._now()
        if now >= self._look_at and not self._closed:
            try:
                await self._taken_over(given_up=False)
            except OncewardError as error:
                self._look_at = now + self.cadence.seconds
                return Flushed(error=error)
            self._look_at = now + self._place.lease / 1e6
        return Flushed()

    async def _taken_over(self, *, given_up: bool) -> int:
        """Take over what nobody holds, as far as there is room; how many that were."""
        selection = self._selection(given_up=given_up)
        found, last, room = 0, b"", self._room_left() + (self.given_up if given_up else 0)
        while found < room and (page := await self._gate.store.scan(last, SCAN_PAGE, selection)):
            last = page[-1].id
            wanted = self._wanted(page, given_up=given_up)[: room - found]
            flows = [take_over(self._place, one, self._now()) for one in wanted]
            taken = [held for flow in flows if (held := await self._drive(flow)) is not None]
            self._spool.add(taken)
            found += len(taken)
        return found

    async def _end(self, endings: list[Ending]) -> None:
        for first in range(0, len(endings), WRITES_AT_ONCE):
            await asyncio.gather(*(self._end_one(one) for one in endings[first : first + WRITES_AT_ONCE]))

    async def _end_one(self, ending: Ending) -> None:
        self._gate._housekeeping.count()
        try:
            await self._drive(ending.flow())
        except OncewardError:
            self._unended.append(ending)  # The store is away: the next tick writes it.

    async def _drive(self, flow: Flow[T]) -> T:
        return await self._gate.drive(flow, self._about)

    # --- the task ---

    def _be_here(self) -> None:
        """
        In a forked child: begin with nothing, because what was waiting is the parent's. In another event loop: go on
        with what was waiting.
        """
        if self._pid != os.getpid():
            self._begin()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._settle_in()
        if self._timer and self._task is None and not self._closed:
            self._task = loop.create_task(self._keep_ticking(), name=f"onceward-emitter-{self.name}")

    async def _keep_ticking(self) -> None:
        while not self._closed:
            try:
                await self.tick()
            except Exception:
                self._hold()
                self._look_at = max(self._look_at, self._spool.hold)
                log.exception("onceward: emitter %s could not send; it goes on", self.name)
            now = self._now()
            pause = min(self._spool.due_in(now), self._look_at - now)
            try:
                async with asyncio.timeout(max(pause, 0.0)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Nobody else sends meanwhile; and `send` itself does not ask for more sending."""
        if self._sender is not None and self._sender is asyncio.current_task():
            raise ConfigurationError("send cannot flush, tick, resume or close its own emitter; it may emit")
        async with self._sending:
            self._sender = asyncio.current_task()
            try:
                yield
            finally:
                self._sender = None
