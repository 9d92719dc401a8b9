"""
The loops that drive flows: they perform what a generator yields, and send the result in.

    drive_steps         blocks: performs what is yielded, sends the result in, throws an error in
    drive_steps_async   awaits; a cancellation is raised at once, wherever the steps are
    run                 `drive_steps` for a flow of the core, whose effects have failpoints on both sides
    arun                awaits a flow of the core; delays a cancellation until the flow may be interrupted
    rest_of             not a loop but a generator: the rest of one that has been started, or up to where it pauses
    rest_after          the rest of a flow that somebody began without it: led there by the answers that were given

When a failpoint is armed, the performers are wrapped so that both sides of every effect can be hit; when nothing is
armed the loops are as short as they look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from onceward._core.errors import ConfigurationError
from onceward._core.flow import BOUNDARIES, INSTANT, INTERRUPTIBLE, Effect, Emit, Flow
from onceward.runtime import failpoints

T = TypeVar("T")
E = TypeVar("E")

_log = logging.getLogger("onceward")

for _at, _what in BOUNDARIES.items():
    failpoints.declare(f"{_at}.before", f"just before {_what}")
    failpoints.declare(f"{_at}.after", f"just after {_what}")


class UncancellableFuture(asyncio.Future[T]):
    """
    The result of a call that goes on even if nobody waits for it: cancelling it does nothing.

    A task that awaits it is cancelled when the result is there.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse: the call is under way."""
        return False


class BegunCoroutine(UncancellableFuture[T]):
    """
    The result of a coroutine that has begun when this is made, and goes on whoever waits for it.

    It is what a task is, without a turn of the event loop before it begins. So it has no task of its own: a coroutine
    that asks for its task (`asyncio.timeout` does) needs a real one.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._go_on()

    def _go_on(self, _: object = None) -> None:
        try:
            waited = self._coroutine.send(None)
        except StopIteration as stop:
            self.set_result(stop.value)
        except Exception as error:
            self.set_exception(error)
        except BaseException as error:
            self.set_exception(error)
            raise
        else:
            if waited is None:  # It only lets the others go first.
                self.get_loop().call_soon(self._go_on)
                return
            waited._asyncio_future_blocking = False
            waited.add_done_callback(self._go_on)


class PendingCancellation:
    """A cancellation that came during a store call. It is raised when that call has ended, however it ended."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled: asyncio.CancelledError | None = None

    def taken(self) -> asyncio.CancelledError | None:
        """Take the cancellation, to raise it; None if there is none."""
        cancelled, self.cancelled = self.cancelled, None
        return cancelled


class FlowAbandoned(BaseException):
    """Thrown into a flow whose coroutine was closed: nobody waits for its result any more."""


class UnusualAnswer(Exception):
    """Whoever goes without a flow (`gate/straight_line.py`) stops here: the flow is to be given this answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


def drive_steps(steps: Generator[E, Any, T], perform: Callable[[E], Any]) -> T:
    """
    Drive a generator to its end, blocking, and return what it returns.

    An interrupt can arrive between any two instructions, also before a result is sent in. It is thrown in like any
    other error, so that the steps can undo what they have begun.
    """
    try:
        asked = next(steps)
        while True:
            try:
                answer = perform(asked)
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(answer)
    except StopIteration as stop:
        asked = answer = None  # type: ignore[assignment]  # An error may hold this frame, and they may hold the error.
        return stop.value  # type: ignore[no-any-return]
    except BaseException as struck:
        if not getattr(steps, "gi_suspended", False):
            raise  # Theirs: they have ended with it.
        asked = answer = None  # type: ignore[assignment]
        rest: Generator[E, Any, T] = rest_of(steps, partial(steps.throw, struck))
    return drive_steps(rest, perform)


async def drive_steps_async(steps: Generator[E, Any, T], perform: Callable[[E], Awaitable[Any]]) -> T:
    """
    Drive the steps of a generator, awaiting each effect.

    A coroutine that is closed ends its steps: `GeneratorExit` is thrown in, too.
    """
    try:
        asked = next(steps)
        while True:
            try:
                answer = await perform(asked)
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(answer)
    except StopIteration as stop:
        asked = answer = None  # type: ignore[assignment]
        return stop.value  # type: ignore[no-any-return]


def rest_of(
    steps: Generator[E, Any, Any], resume: Callable[[], E], until: type | tuple[type, ...] = ()
) -> Generator[E, Any, Any]:
    """
    What is left of a generator, to be driven by any loop; `resume` says what it yields next (`lambda: next(steps)`).

    It ends when something of the type `until` is yielded, and returns that: the steps pause there, until the caller has
    handled it and resumes them. Otherwise it returns what the steps return.
    """
    begin = [resume]
    del resume  # It may hold an error, and that may come to hold this frame.
    try:
        asked = begin.pop()()
        while not isinstance(asked, until):
            try:
                answer = yield asked
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(answer)
        return asked
    except StopIteration as stop:
        asked = answer = None  # type: ignore[assignment]
        return stop.value


def rest_after(flow: Flow[T], answers: Iterable[Any], end: BaseException) -> Flow[T]:
    """The rest of a flow that somebody has begun without it, and that got these answers; then came an error, or one."""

    def resume() -> Effect:
        rewind(flow, answers)
        return flow.send(end.answer) if isinstance(end, UnusualAnswer) else flow.throw(end)

    return rest_of(flow, resume)


def rewind(flow: Flow[Any], answers: Iterable[Any]) -> None:
    """
    Lead a new flow to the effect at which somebody stands who got these answers without it.

    A flow is pure: the same answers lead it to the same place. What it wants told on the way was told.
    """
    effect = next(flow)
    for answer in answers:
        effect = flow.send(answer)
        while type(effect) is Emit:
            effect = flow.send(None)


def run(flow: Flow[T], perform: Callable[[Effect], Any]) -> T:
    """Drive a flow by blocking."""
    return drive_steps(flow, _with_failpoints(perform) if failpoints.ARMED else perform)


async def arun(
    flow: Flow[T],
    instant: Callable[[Effect], Any],
    perform: Callable[[Effect], Awaitable[Any]],
    kept: PendingCancellation | None = None,
) -> T:
    """
    Drive a flow of the core, awaiting its effects; `kept` is a cancellation that came before.

    A cancellation that arrives during a store call is kept until the call has ended, and is thrown into the flow at
    the next place that may be interrupted. So a claim that was stored is released, and not forgotten.
    """
    loop = running_loop()
    if failpoints.ARMED:
        perform = _with_failpoints_async(perform)
    kept, work = kept or PendingCancellation(), None
    try:
        effect = next(flow)
        while True:
            kind = type(effect)
            try:
                if kind in INSTANT:
                    answer = instant(effect)
                elif kind not in INTERRUPTIBLE:
                    work = asyncio.ensure_future(perform(effect))
                    answer = work.result() if work.done() else await await_to_end(work, kept)
                elif (strike := kept.taken()) is not None:
                    raise strike
                else:
                    answer = await perform(effect)
            except GeneratorExit:
                leave_behind(loop, flow, work, instant, perform)
                raise
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as stop:
        effect = answer = strike = work = None  # type: ignore[assignment]
        if kept.cancelled is not None:
            raise kept.taken() from None  # type: ignore[misc]
        return stop.value  # type: ignore[no-any-return]
    except Exception as error:
        if kept.cancelled is not None:
            raise kept.taken() from error  # type: ignore[misc]
        raise


async def await_to_end(work: Awaitable[Any], kept: PendingCancellation) -> Any:
    """Await `work` to its end, whoever cancels us meanwhile; the cancellation is kept, also if the work fails."""
    future: asyncio.Future[Any] = work if isinstance(work, asyncio.Future) else asyncio.ensure_future(work)
    while not future.done():
        try:
            await (future if isinstance(future, UncancellableFuture) else asyncio.shield(future))
        except asyncio.CancelledError as error:
            if future.cancelled():
                raise
            kept.cancelled = error
        except Exception:  # noqa: S110 - raised by `result()` below, once
            pass
    return future.result()


def running_loop() -> asyncio.AbstractEventLoop:
    """The running event loop; `ConfigurationError` if there is none of asyncio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(NO_LOOP) from None


NO_LOOP = (
    "no asyncio event loop is running here, and async calls of Onceward need one. Under trio, run a blocking "
    "Gate in a thread: await trio.to_thread.run_sync(...); anyio runs on asyncio as well (backend='asyncio')"
)


def leave_behind(
    loop: asyncio.AbstractEventLoop,
    flow: Flow[Any],
    work: asyncio.Future[Any] | None,
    instant: Callable[[Effect], Any],
    perform: Callable[[Effect], Awaitable[Any]],
    answers: Iterable[Any] | None = None,
) -> None:
    """
    The coroutine is being closed, perhaps by the garbage collector: in any thread, in the middle of anything.

    So nothing is done here that may need what that thread holds. What the flow still wants written (a release, or
    doubt) is left to its event loop, which can be told so from anywhere. With `answers`, the flow has not begun: it is
    led there first.
    """
    try:
        loop.call_soon_threadsafe(_end_in_loop, flow, work, instant, perform, answers)
    except RuntimeError:
        return  # The loop has gone: the lease will lapse.


def _end_in_loop(
    flow: Flow[Any],
    work: asyncio.Future[Any] | None,
    instant: Callable[[Effect], Any],
    perform: Callable[[Effect], Awaitable[Any]],
    answers: Iterable[Any] | None,
) -> None:
    task = asyncio.get_running_loop().create_task(_end_alone(flow, work, instant, perform, answers))
    _leaving.add(task)
    task.add_done_callback(_leaving.discard)


_leaving: set[asyncio.Task[None]] = set()
"""A loop holds its tasks weakly, so these need a reference."""


async def _end_alone(
    flow: Flow[Any],
    work: asyncio.Future[Any] | None,
    instant: Callable[[Effect], Any],
    perform: Callable[[Effect], Awaitable[Any]],
    answers: Iterable[Any] | None,
) -> None:
    try:
        if answers is not None:
            rewind(flow, answers)
        if work is not None:
            await asyncio.gather(work, return_exceptions=True)  # A write that was under way lands or fails first.
        await arun(rest_of(flow, lambda: flow.throw(FlowAbandoned())), instant, perform)
    except FlowAbandoned:
        return
    except Exception as error:
        _log.warning("onceward: an operation was abandoned by its caller and could not be ended: %s", error)


def _with_failpoints(perform: Callable[[Effect], Any]) -> Callable[[Effect], Any]:
    def hitting(effect: Effect) -> Any:
        at = getattr(effect, "at", None)
        if at is None:
            return perform(effect)
        failpoints.hit(f"{at}.before")
        answer = perform(effect)
        failpoints.hit(f"{at}.after")
        return answer

    return hitting


def _with_failpoints_async(perform: Callable[[Effect], Awaitable[Any]]) -> Callable[[Effect], Awaitable[Any]]:
    async def hitting(effect: Effect) -> Any:
        at = getattr(effect, "at", None)
        if at is None:
            return await perform(effect)
        failpoints.hit(f"{at}.before")
        answer = await perform(effect)
        failpoints.hit(f"{at}.after")
        return answer

    return hitting
