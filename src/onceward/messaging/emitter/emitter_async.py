# blocking half: emitter.py
"""
`AsyncEmitter`: stores items, and sends them in batches, by itself or when `tick` is called.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from onceward._core.colour import AWAITS
from onceward._core.errors import OncewardError
from onceward._core.flow import Flow
from onceward._core.spool import Cadence, Emitted, Item, SpooledItem, renew_item, spool_item, take_over
from onceward.gate import AsyncGate
from onceward.gate.call_factory import SCAN_PAGE
from onceward.messaging.emitter.batch_delivery import BatchDelivery, Flushed, GivenUpItem
from onceward.messaging.emitter.emitter_base import (
    WRITES_AT_ONCE,
    EmitterBase,
    FinalWrite,
    ReferenceRecipe,
    log,
    raise_failures,
)
from onceward.messaging.emitter.pacer import AsyncPacer
from onceward.retry.function_shape import maybe_await
from onceward.retry.policy import Retry

T = TypeVar("T")


class AsyncEmitter(EmitterBase):
    """
    Takes items one by one, and sends them in batches on a cadence.

        emitter = AsyncEmitter(
            gate, "usage", send, reference="usage:{customer}:{hour}", retry=Retry(), cadence=Cadence()
        )
        await emitter.emit({"customer": "c-17", "hour": "2026-07-01T10", "units": 3})

    `emit` returns when the item is in the gate's store: a crash loses nothing. `send(items)` is called once per batch,
    and each `Item` has a key that never changes: delivery is at least once, and a receiver that honours the key has
    one effect. With `timer=False` nobody sends but `tick()`, which sends what is due.

    The blocking one has a thread, and closes itself when the process ends. The awaiting one has a task on the loop of
    its first `emit`: close it, or use it as a context manager. A loop that ends without that leaves what waits in
    the spool, where the next emitter of this name finds it.
    """

    def __init__(
        self,
        gate: AsyncGate,
        name: str,
        send: Callable[[list[Item]], Awaitable[Any]],
        *,
        reference: ReferenceRecipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> None:
        self._gate, self._timer = gate, timer
        super().__init__(gate, name, send, reference, retry, cadence, spool_max, awaits=AWAITS)
        if not AWAITS:
            atexit.register(self.close)
            self._ensure_running()

    def _begin(self) -> None:
        super()._begin()
        # Around the spool, for moments. Its holder may take it again: a coroutine that is thrown away while it emits
        # gives its place back wherever that happens.
        self._lock = threading.RLock()
        self._pacer = AsyncPacer(f"onceward-emitter-{self.name}")

    # --- for callers ---

    async def emit(self, item: Mapping[str, Any]) -> Emitted:
        """
        Put an item into the spool; it is sent with its batch. Returns when it is in the store.

        An equal item of the same reference is one item (`duplicate`); another one is refused with `KeyReused`. If the
        spool is full: `SpoolFull`, and nothing was taken.
        """
        self._ensure_running()
        draft = self._draft(item)
        with self._lock:
            self._spool.enter()  # of no colour
        held = None
        try:
            emitted, held = await self._drive(spool_item(draft, self._now()))
        finally:
            with self._lock:
                self._spool.entered(held)
                waiting = len(self._spool.waiting)
        if held is not None and (waiting == 1 or waiting >= self.cadence.size):
            self._pacer.wake()
        return emitted

    async def tick(self) -> Flushed:
        """Send the batches that are due by size or by time, and now and then take over what others left behind."""
        self._ensure_running()
        async with self._pacer.alone():
            done = await self._tidied()
            while self._spool.is_due(self._now()):
                done = done.plus(await self._send_one())
            return done._replace(waiting=self.waiting)

    async def flush(self) -> Flushed:
        """Send everything that waits now, in batches, whether it is due or not."""
        self._ensure_running()
        async with self._pacer.alone():
            done = await self._tidied()
            left = self.waiting
            while left > 0 and self._spool.waiting:
                sent = await self._send_one()
                done = done.plus(sent)
                left = left - self.cadence.size if sent.batches else 0  # An open circuit, or the store is away.
            return done._replace(waiting=self.waiting)

    async def resume(self) -> int:
        """Take up the items that any process gave up and set aside; they go out with the next batches. How many."""
        self._ensure_running()
        async with self._pacer.alone():
            found = await self._taken_over(given_up=True)
            with self._lock:
                self._spool.given_up = max(0, self._spool.given_up - found)
        self._pacer.wake()
        return found

    async def close(self) -> Flushed:
        """Send what waits, and stop. What cannot be sent stays in the spool for the next emitter of this name."""
        if not AWAITS:
            atexit.unregister(self.close)
        if self._closed or self._pid != os.getpid():
            return Flushed(waiting=self.waiting)
        self._ensure_running()
        async with self._pacer.alone():  # Not from inside of `send`.
            self._closed = True
        self._pacer.wake()
        try:
            done = await self.flush()
        except GeneratorExit:
            raise  # Thrown away, perhaps by the garbage collector: nothing can be waited for.
        except BaseException:
            await self._pacer.ended()
            raise
        await self._pacer.ended()
        if done.waiting:
            log.warning("onceward: emitter %s closed with %d items unsent; they are kept", self.name, done.waiting)
        return done

    async def __aenter__(self) -> Self:
        self._ensure_running()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- sending ---

    async def _send_one(self) -> Flushed:
        """Send one batch, and store the result of each item."""
        with self._lock:
            batch = self._spool.take()
        taken, back, aside = len(batch), batch, 0
        try:
            try:
                batch = [held for one in batch if (held := await self._kept_on(one)) is not None]
            except OncewardError as error:
                self._hold()
                return Flushed(error=error)
            delivery = BatchDelivery(batch, self._policy, self._environment)
            back = batch  # An interrupt or a cancellation from here on: all of them again.
            if not batch:
                back = []
                return Flushed(batches=1)

            async def attempt() -> Any:
                return delivery.take_result(await self._send(delivery.items()))

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
            with self._lock:
                self._spool.taken(taken, back, aside)

    async def _kept_on(self, held: SpooledItem) -> SpooledItem | None:
        now = self._now()
        return await self._drive(renew_item(held, self._place.lease, now)) if self._needs_longer(held, now) else held

    async def _endings(self, delivery: BatchDelivery, lost: list[GivenUpItem]) -> tuple[list[FinalWrite], int]:
        endings = [self._sent(held) for held in delivery.sent]
        aside = 0
        for one in lost:
            ending = await self._bury(one)
            endings.append(ending or self._set_aside(one))
            aside += ending is None
        return endings, aside

    async def _bury(self, lost: GivenUpItem) -> FinalWrite | None:
        if self._dead is None:
            return None
        try:
            put = self._dead.put(lost.stop, self._call_of(lost))
            return self._buried(await maybe_await(put) if AWAITS else put, lost)
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
        """Take over items that nobody holds, as far as there is room; how many."""
        selection = self._selection(given_up=given_up)
        found, last, room = 0, b"", self._room_left() + (self.given_up if given_up else 0)
        while found < room and (page := await self._gate.store.scan(last, SCAN_PAGE, selection)):
            last = page[-1].id
            free = self._free_items(page, given_up=given_up)[: room - found]
            flows = [take_over(self._place, one, self._now()) for one in free]
            taken = [held for flow in flows if (held := await self._drive(flow)) is not None]
            with self._lock:
                self._spool.add(taken)
            found += len(taken)
        return found

    async def _end(self, endings: list[FinalWrite]) -> None:
        if AWAITS:
            for first in range(0, len(endings), WRITES_AT_ONCE):
                await asyncio.gather(*(self._end_one(one) for one in endings[first : first + WRITES_AT_ONCE]))
        else:
            for one in endings:
                self._end_one(one)

    async def _end_one(self, ending: FinalWrite) -> None:
        self._gate._purge_schedule.left -= 1
        try:
            await self._drive(ending.flow())
        except OncewardError:
            self._unended.append(ending)  # The store is away: the next tick writes it.

    async def _drive(self, flow: Flow[T]) -> T:
        return await self._gate.drive(flow, self._about)

    # --- the thread, or the task ---

    def _ensure_running(self) -> None:
        """
        In a forked child: begin with nothing, because what was waiting is the parent's. In another event loop: go on
        with what was waiting.
        """
        if self._pid != os.getpid():
            self._begin()
        self._pacer.ensure_running(self._keep_ticking if self._timer and not self._closed else None)

    async def _keep_ticking(self) -> None:
        while not self._closed:
            try:
                await self.tick()
            except Exception:
                self._hold()
                self._look_at = max(self._look_at, self._spool.hold)
                log.exception("onceward: emitter %s could not send; it will try again", self.name)
            now = self._now()
            with self._lock:
                pause = min(self._spool.due_in(now), self._look_at - now)
            await self._pacer.pause(pause)
