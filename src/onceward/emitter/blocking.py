"""
The emitter that blocks: a thread of its own sends, or whoever calls `tick`.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.flow import Flow
from onceward._core.spool import Cadence, Emitted, Held, Item, keep_on, spool, take_over
from onceward.emitter.common import EmitterBase, Ending, Recipe, log, raise_failures
from onceward.emitter.delivery import Delivery, Flushed, Lost
from onceward.gate import Gate
from onceward.gate.asking import SCAN_PAGE, check_blocking
from onceward.gate.dead import DeadLetterBox
from onceward.gate.dead_async import AsyncDeadLetterBox
from onceward.retry.policy import Retry

T = TypeVar("T")


class Emitter(EmitterBase):
    """
    Takes events one by one, and writes them in batches on a cadence of your own.

        emitter = Emitter(gate, "usage", send, reference="usage:{customer}:{hour}", retry=Retry(), cadence=Cadence())
        emitter.emit({"customer": "c-17", "hour": "2026-07-01T10", "units": 3})

    `emit` returns when the item is in the gate's store: a crash loses nothing. `send(items)` is called once per batch,
    and each `Item` has a key that never changes: delivery is at least once, and a receiver that honours the key has
    one effect. One thread sends; with `timer=False` there is none, and `tick()` sends what is due.
    """

    def __init__(
        self,
        gate: Gate,
        name: str,
        send: Callable[[list[Item]], Any],
        *,
        reference: Recipe,
        retry: Retry,
        cadence: Cadence,
        spool_max: int = 10_000,
        timer: bool = True,
    ) -> None:
        if not isinstance(gate, Gate):
            raise ConfigurationError(f"an Emitter needs a Gate, not {type(gate).__name__}; AsyncGate has AsyncEmitter")
        if callable(send):
            check_blocking(send)
        self._gate, self._timer = gate, timer
        super().__init__(gate, name, send, reference, retry, cadence, spool_max)
        if isinstance(self._dead, AsyncDeadLetterBox):
            raise ConfigurationError("these dead letters are awaited and this emitter blocks; use gate.dead_letters()")
        if isinstance(self._dead, DeadLetterBox) and self.name not in self._dead.handlers:
            self._dead.handle(self.name, self._again, guarantee="repeatable")
        atexit.register(self.close)
        self._start()

    def _begin(self) -> None:
        super()._begin()
        self._lock = threading.Lock()
        """Around the spool: held for moments."""
        self._sending = threading.Lock()
        """Around sending: held for as long as that takes. One batch at a time."""
        self._sender: int | None = None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # --- for callers ---

    def emit(self, item: Mapping[str, Any]) -> Emitted:
        """
        Put an item into the spool; it is sent with its batch. Returns when it is in the store.

        An equal item of the same reference is one item (`duplicate`); another one is refused with `KeyReused`. If the
        spool is full: `SpoolFull`, and nothing was taken.
        """
        self._be_here()
        draft = self._draft(item)
        with self._lock:
            self._spool.enter()
        held = None
        try:
            emitted, held = self._drive(spool(draft, self._now()))
        finally:
            with self._lock:
                self._spool.entered(held)
                waiting = len(self._spool.waiting)
        if held is not None and (waiting == 1 or waiting >= self.cadence.size):
            self._wake.set()
        return emitted

    def tick(self) -> Flushed:
        """Send the batches that are due by size or by time, and now and then take over what others left behind."""
        self._be_here()
        with self._alone():
            done = self._tidied()
            while self._spool.is_due(self._now()):
                done = done.plus(self._send_one())
            return done._replace(waiting=self.waiting)

    def flush(self) -> Flushed:
        """Send everything that waits now, in batches, whether it is due or not."""
        self._be_here()
        with self._alone():
            done = self._tidied()
            left = self.waiting
            while left > 0 and self._spool.waiting:
                sent = self._send_one()
                done = done.plus(sent)
                left = left - self.cadence.size if sent.batches else 0  # An open circuit, or the store is away.
            return done._replace(waiting=self.waiting)

    def resume(self) -> int:
        """Take up what was given up and set aside, by whichever process; it goes out with the next batches."""
        self._be_here()
        with self._alone():
            found = self._taken_over(given_up=True)
            with self._lock:
                self._spool.given_up = max(0, self._spool.given_up - found)
        self._wake.set()
        return found

    def close(self) -> Flushed:
        """Send what waits, and stop. What cannot be sent stays in the spool for the next emitter of this name."""
        atexit.unregister(self.close)
        if self._closed or self._pid != os.getpid():
            return Flushed(waiting=self.waiting)
        with self._alone():  # Not from inside of `send`.
            self._closed = True
        self._wake.set()
        try:
            done = self.flush()
        finally:
            thread = self._thread
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        if done.waiting:
            log.warning("onceward: emitter %s closed with %d items unsent; they are kept", self.name, done.waiting)
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- sending ---

    def _send_one(self) -> Flushed:
        """Send one batch, and write down what became of it."""
        with self._lock:
            batch = self._spool.take()
        taken, back, aside = len(batch), batch, 0
        try:
            try:
                batch = [held for one in batch if (held := self._kept_on(one)) is not None]
            except OncewardError as error:
                self._hold()
                return Flushed(error=error)
            delivery = Delivery(batch, self._policy, self._environment)
            back = batch  # An interrupt from here on: all of them again.
            if not batch:
                back = []
                return Flushed(batches=1)

            def attempt() -> Any:
                return delivery.heard(self._send(delivery.items()))

            try:
                ended: Any = self._policy.call(attempt)
            except Exception as error:
                ended = error
            back = [] if delivery.attempts else batch
            if back:
                self._hold(ended)
            lost = delivery.lost(ended)
            endings, aside = self._endings(delivery, lost)
            self._end(endings)
            return self._report(delivery, lost, ended)
        finally:
            with self._lock:
                self._spool.taken(taken, back, aside)

    def _kept_on(self, held: Held) -> Held | None:
        now = self._now()
        return self._drive(keep_on(held, self._place.lease, now)) if self._needs_longer(held, now) else held

    def _endings(self, delivery: Delivery, lost: list[Lost]) -> tuple[list[Ending], int]:
        endings = [self._sent(held) for held in delivery.sent]
        aside = 0
        for one in lost:
            ending = self._bury(one)
            endings.append(ending or self._set_aside(one))
            aside += ending is None
        return endings, aside

    def _bury(self, lost: Lost) -> Ending | None:
        if self._dead is None:
            return None
        try:
            return self._buried(self._dead.put(lost.stop, self._call_of(lost)), lost)
        except Exception as error:
            self._not_buried(error)
            return None

    def _again(self, reference: str, data: dict[str, Any]) -> None:
        """Send what a dead letter held, alone and under its own key. Registered as the letters' handler."""
        items = self._alike(reference, data)
        raise_failures(self._send(items), items)

    # --- the store ---

    def _tidied(self) -> Flushed:
        """Write what could not be written before, and look whether others left something behind."""
        unended, self._unended = self._unended, []
        self._end(unended)
        now = self._now()
        if now >= self._look_at and not self._closed:
            try:
                self._taken_over(given_up=False)
            except OncewardError as error:
                self._look_at = now + self.cadence.seconds
                return Flushed(error=error)
            self._look_at = now + self._place.lease / 1e6
        return Flushed()

    def _taken_over(self, *, given_up: bool) -> int:
        """Take over what nobody holds, as far as there is room; how many that were."""
        selection = self._selection(given_up=given_up)
        found, last, room = 0, b"", self._room_left() + (self.given_up if given_up else 0)
        while found < room and (page := self._gate.store.scan(last, SCAN_PAGE, selection)):
            last = page[-1].id
            wanted = self._wanted(page, given_up=given_up)[: room - found]
            flows = [take_over(self._place, one, self._now()) for one in wanted]
            taken = [held for flow in flows if (held := self._drive(flow)) is not None]
            with self._lock:
                self._spool.add(taken)
            found += len(taken)
        return found

    def _end(self, endings: list[Ending]) -> None:
        for one in endings:
            self._gate._housekeeping.count()
            try:
                self._drive(one.flow())
            except OncewardError:
                self._unended.append(one)  # The store is away: the next tick writes it.

    def _drive(self, flow: Flow[T]) -> T:
        return self._gate.drive(flow, self._about)

    # --- the thread ---

    def _be_here(self) -> None:
        """In a forked child: begin with nothing. What was waiting is the parent's."""
        if self._pid != os.getpid():
            self._begin()
            self._start()

    def _start(self) -> None:
        if self._timer:
            self._thread = threading.Thread(
                target=self._keep_ticking, name=f"onceward-emitter-{self.name}", daemon=True
            )
            self._thread.start()

    def _keep_ticking(self) -> None:
        while not self._closed:
            try:
                self.tick()
            except Exception:
                self._hold()
                self._look_at = max(self._look_at, self._spool.hold)
                log.exception("onceward: emitter %s could not send; it goes on", self.name)
            now = self._now()
            with self._lock:
                pause = min(self._spool.due_in(now), self._look_at - now)
            self._wake.wait(max(pause, 0.0))
            self._wake.clear()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else sends meanwhile; and `send` itself does not ask for more sending."""
        if self._sender == threading.get_ident():
            raise ConfigurationError("send cannot flush, tick, resume or close its own emitter; it may emit")
        with self._sending:
            self._sender = threading.get_ident()
            try:
                yield
            finally:
                self._sender = None
